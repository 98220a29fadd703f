"""Going back would bring committed output a second time: the job waits for a choice, and goes on with it."""

from collections.abc import Callable
from pathlib import Path

from epochal_operator.names import Role
from examples.cluster.live_job import LiveJob, until

PROGRAM = Path(__file__).parent / "notifying_pipeline.py"


def test_a_job_that_would_repeat_output_waits_until_the_spec_chooses(make_job: Callable[..., LiveJob]) -> None:
    job = make_job("waiting", program=PROGRAM)
    job.apply()
    job.wait_ready()
    newest = job.wait_epochs(3)
    job.suspend()
    job.wait_phase("Stopped")
    job.patch({"state": "Running", "restore": {"fromEpoch": newest - 1}})
    job.wait_phase("Waiting")
    [said] = job.wait_event("OutputWouldRepeat")
    stalled = until("the condition", lambda: (one := job.condition("Stalled"))["status"] == "True" and one)
    assert stalled["reason"] == "OutputWouldRepeat"
    for message in (said, stalled["message"], job.status["message"]):
        assert "'out'" in message or " out" in message
        assert f"epoch {newest - 1}" in message
    assert job.condition("Ready")["status"] == "False"
    until("its driver to leave", lambda: not job.pods(Role.DRIVER))
    assert job.generation == 2
    job.patch({"restore": {"onCommittedOutput": "Repeat"}})
    job.wait_ready(generation=3)
    assert job.condition("Stalled")["status"] == "False"
    assert any(f"restored from epoch {newest - 1}" in message for message in job.events("Restored"))
    job.wait_epochs(1)
    assert job.generation == 3
    job.delete()
