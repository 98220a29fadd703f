"""The object store goes away for a minute: no epoch comes, and none is lost."""

import time

from cluster.node import Node
from examples.cluster.live_job import LiveJob, until


def test_the_job_outlives_its_store_being_away(running: LiveJob, node: Node) -> None:
    server = node.parts["versitygw"]
    before = running.epoch
    node.daemons.stop(server)
    try:
        time.sleep(60)
        assert running.epoch <= before + 1, "an epoch cannot complete without a store"
    finally:
        node.daemons.start(server)
    running.wait_ready()
    running.wait_epochs(2)
    until("a window", running.check_output)
