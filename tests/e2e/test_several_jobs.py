"""Two jobs in one namespace, and one of the same name in another: none gets in another's way."""

from collections.abc import Callable

from examples.cluster.live_job import LiveJob, until


def test_jobs_side_by_side(make_job: Callable[..., LiveJob]) -> None:
    jobs = [make_job("side", "one"), make_job("side", "two"), make_job("by-side", "one")]
    for job in jobs:
        job.apply()
    for job in jobs:
        job.wait_ready()
    for job in jobs:
        wait_window(job)
        assert job.generation == 1
    jobs[0].delete()
    for job in jobs[1:]:
        job.wait_epochs(1)
        assert job.generation == 1
        job.check_output()


def wait_window(job: LiveJob) -> None:
    until(f"a window of {job.prefix}", lambda: job.epoch and job.check_output())
