"""A checkpoint that takes too long is aborted; after too many in a row the driver is replaced."""

from collections.abc import Callable
from pathlib import Path

from examples.cluster.live_job import LiveJob

PROGRAM = Path(__file__).parent / "slow_pipeline.py"


def test_slow_checkpoints_are_aborted_and_in_the_end_the_driver_is_replaced(make_job: Callable[..., LiveJob]) -> None:
    job = make_job("slow", "slow", program=PROGRAM)
    job.spec["checkpoint"].update(timeout="2s", tolerableFailures=1)
    job.apply()
    said = job.wait_event("CheckpointTimedOut")
    assert "epoch 1" in said[0]
    job.wait_ready(generation=2)
    job.wait_event("RestartScheduled")
    failed = [done for done in job.status["history"] if done["state"] == "Failed"]
    assert len(failed) >= 2
    job.patch({"checkpoint": {"timeout": "1m"}})
    job.wait_epochs(1)
    assert job.epoch > 2, "failed epochs' numbers are not used again"
    job.delete()
