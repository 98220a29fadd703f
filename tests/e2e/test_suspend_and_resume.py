"""Suspending ends a job with a last checkpoint; resuming goes on from there."""

from epochal_operator.names import Role
from examples.cluster.live_job import LiveJob


def test_a_suspended_job_makes_a_last_checkpoint_and_goes_on_from_it(running: LiveJob) -> None:
    generation = running.generation
    running.suspend()
    running.wait_phase("Stopped")
    last = running.epoch
    manifest = running.manifest(last)
    assert manifest.then_stop
    assert running.pods(Role.DRIVER) == []
    assert f"stopped with epoch {last}" in running.events("Stopped")
    running.check_output()

    running.resume()
    running.wait_ready(generation=generation + 1)
    running.wait_epochs(1)
    assert f"generation {generation + 1} runs, restored from epoch {last}" in running.events("Restored")
    assert running.manifest(last + 1).parent == last
    running.check_output()
