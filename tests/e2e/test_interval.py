"""Checkpoints come on the interval, and an edit of it applies without a restart."""

import time
from datetime import datetime
from itertools import pairwise

from examples.cluster.live_job import LiveJob, until


def test_checkpoints_come_on_the_interval(running: LiveJob) -> None:
    running.wait_epochs(3)
    newest = [done for done in running.status["history"] if done["state"] == "Ready"][:4]
    ended = [datetime.fromisoformat(done["finished"]) for done in newest]
    periods = [(after - before).total_seconds() for after, before in pairwise(ended)]
    # The next one begins when 2 seconds have passed since the last one ended, and takes its own time.
    assert all(period >= 2 for period in periods), periods
    took = [float(done["duration"].removesuffix("s")) for done in newest]
    assert min(period - took[n] for n, period in enumerate(periods)) < 10, (periods, took)


def test_an_edit_of_the_interval_applies_at_once(running: LiveJob) -> None:
    generation = running.generation
    running.patch({"checkpoint": {"interval": "1h"}})
    time.sleep(3)
    until("the one in flight to end", lambda: not running.status.get("inFlight"))
    before = running.epoch
    time.sleep(8)
    assert running.epoch == before
    running.patch({"checkpoint": {"interval": "2s"}})
    running.wait_epochs(2)
    assert running.generation == generation
