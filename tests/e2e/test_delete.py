"""A deleted job makes a last checkpoint and leaves nothing in the cluster; its epochs stay in the store."""

from epochal_operator.names import JOB_LABEL
from examples.cluster.live_job import LiveJob, until


def test_a_deleted_job_stops_with_a_last_checkpoint(running: LiveJob) -> None:
    before = running.epoch
    running.delete()
    epochs = sorted(
        int(name.split("/epochs/")[1].split("/")[0]) for name in running.objects("store") if "/epochs/" in name
    )
    last = epochs[-1]
    assert last > before
    assert running.manifest(last).then_stop
    where = f"--selector={JOB_LABEL}={running.name}"
    until(
        "all to be gone",
        lambda: (
            not running.cluster.get(f"--namespace={running.namespace}", "pods,services,secrets,jobs", where)["items"]
        ),
    )
