"""An executor is lost, and the state that it held: the job goes on from its newest epoch, with the same driver."""

from collections.abc import Callable

from epochal_operator.names import Role
from examples.cluster.live_job import LiveJob, until


def test_an_executor_is_killed(make_job: Callable[..., LiveJob]) -> None:
    job = make_job("executor", executors=1)
    job.apply()
    job.wait_ready()
    until("a window", lambda: job.epoch and job.check_output())
    [executor] = job.pods(Role.EXECUTOR)
    lost = executor["metadata"]["name"]
    job.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    # Nobody else held that state: the next generation reads the newest epoch's, in the same pod.
    job.wait_ready(generation=2)
    assert any("an executor was lost" in message for message in job.events("RecoveringInPlace"))
    assert (job.driver, job.status["restarts"]["total"]) == (f"{job.name}-driver-1", 0)
    assert [pod["metadata"]["name"] for pod in job.pods(Role.EXECUTOR)] != [lost]
    job.wait_epochs(2)
    job.check_output()
    job.delete()
