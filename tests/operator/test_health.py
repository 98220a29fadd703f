"""What the liveness probe sees, and that what hangs is alone in that."""

import asyncio
import json
import math
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from cluster.processes import free_port
from epochal_operator.process.health import Beat, Health
from epochal_operator.process.reconcile_pools import SLOW, SLOW_FOR, ReconcilePools
from epochal_operator.process.vital_threads import EXIT_BROKEN


def test_a_beat_that_stays_out_is_a_problem_until_the_next() -> None:
    now = 0.0
    beat = Beat("nothing has happened", 30.0, lambda: now)
    assert beat.problem() is None, "it has not begun"
    beat.beat()
    now = 30.0
    assert beat.problem() is None
    now = 31.0
    assert beat.problem() == "nothing has happened for 31 s"
    beat.beat()
    assert beat.problem() is None
    now = 99.0
    beat.rest()
    assert beat.problem() is None


def test_the_probe_answers_with_the_problems() -> None:
    health, port = Health(), free_port()
    found: list[str] = []
    health.add("watches", lambda: found[0] if found else None)
    health.serve(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
        assert json.load(answer) == {"healthy": True, "problems": {}}
    found.append("a thread is dead")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz")
    with error.value as answer:
        assert answer.code == 503
        assert json.load(answer)["problems"] == {"watches": "a thread is dead"}
    # A minute of being unhealthy would end this process.
    found.clear()


@pytest.mark.parametrize("body", ["raise ValueError('x')", "sys.exit(0)", "return"])
def test_the_end_of_a_vital_thread_is_the_end_of_the_process(body: str) -> None:
    program = f"""
import sys, threading
from epochal_operator.process.vital_threads import vital_thread
def run():
    {body}
vital_thread("watch", run).start()
threading.Event().wait()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert ended.returncode == EXIT_BROKEN
    assert "thread watch" in ended.stderr


def test_rounds_that_hang_hold_up_no_other() -> None:
    """Three times as many hang as there are threads; each has had one slow round, as each would have had."""
    rounds = ReconcilePools(4)
    hang = threading.Event()

    async def play() -> None:
        hung = [f"hung-{number}" for number in range(12)]
        rounds._slow_until.update(dict.fromkeys(hung, math.inf))
        waiting = [asyncio.ensure_future(rounds.run(job, hang.wait)) for job in hung]
        for number in range(40):
            assert await asyncio.wait_for(rounds.run(f"job-{number % 8}", lambda: True), 5)
        assert not any(task.done() for task in waiting)
        hang.set()
        await asyncio.gather(*waiting)

    try:
        asyncio.run(play())
    finally:
        hang.set()
        assert rounds.close(5)


def test_a_job_is_among_the_slow_until_it_was_quick_for_a_while() -> None:
    now = 0.0
    rounds = ReconcilePools(1, clock=lambda: now)

    def taking(seconds: float) -> str:
        def function() -> str:
            nonlocal now
            now += seconds
            return threading.current_thread().name

        return rounds._submit("job", function).result(5).rpartition("_")[0]

    assert [taking(seconds) for seconds in (SLOW, 0.0, SLOW_FOR, SLOW_FOR)] == ["round", *["slow-round"] * 3]
    now += SLOW_FOR
    assert taking(0.0) == "round"
    assert rounds.close(5)


def test_rounds_that_do_not_end_are_told_at_the_end() -> None:
    rounds = ReconcilePools(2)
    hang = threading.Event()
    rounds._submit("job", hang.wait)
    assert not rounds.close(0.1)
    hang.set()
    assert rounds.close(5)


def test_no_round_is_expected_where_there_is_no_job() -> None:
    rounds = ReconcilePools(1)

    def expected() -> bool:
        return rounds._beat._last is not None

    assert not expected()
    with rounds.of_job("job"):
        assert expected()
    assert not expected()
    assert rounds.close(1)
