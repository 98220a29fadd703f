"""A driver that was cut off comes back when another has taken over: it can publish nothing."""

import time
from collections.abc import Callable

from cluster.node import Node
from epochal.control.driver_client import DriverClient, DriverUnreachable
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import CheckpointState
from epochal.protocol.epochs import Epoch, Generation
from examples.cluster.live_job import LiveJob, until
from tests.e2e.driver_api import access
from tests.e2e.driver_process import driver_pid, without_runtime
from tests.e2e.network import cut_off


def test_a_driver_that_comes_back_publishes_nothing(make_job: Callable[..., LiveJob], node: Node) -> None:
    job = make_job("zombie")
    job.spec["driver"]["unreachableTimeout"] = "5s"
    job.apply()
    job.wait_ready()
    until("an epoch", lambda: job.epoch)
    old = access(job)
    with without_runtime(driver_pid(job)):
        with cut_off(node, old.address):
            until("the driver to be given up", lambda: job.status["phase"] == "Restarting")
            # As people do with a node that is lost; the operator would do it by itself, later.
            job.kubectl("delete", "pod", f"{job.name}-driver-1", "--grace-period=0", "--force")
            job.wait_ready(generation=2)
            newest = job.wait_epochs(1)
        assert old.client.status().generation == 1, "the old driver is gone: nothing would be tried"
        # What a controller might have sent just before it lost sight of that driver.
        epoch = Epoch(newest + 1000)
        barrier = CheckpointBarrier(epoch=epoch, min_epoch=Epoch(1), timestamp=int(time.time() * 1e6), then_stop=False)
        old.client.post_barrier(Generation(1), barrier)
        until("the old driver to give up", lambda: _has_given_up(old.client, epoch))
        published = [name for name in job.objects("store") if name.endswith(f"{epoch:010d}/manifest.json")]
        assert published == []
        job.wait_epochs(1)
    assert job.generation == 2
    job.check_output()
    job.delete()


def _has_given_up(driver: DriverClient, epoch: Epoch) -> bool:
    try:
        report = driver.get_checkpoint(epoch)
    except DriverUnreachable:
        return True
    return report is None or report.state is CheckpointState.FAILED
