"""The driver is lost in one way after another: a new generation goes on, and the output is as if nothing had been."""

import signal
import time

from cluster.node import Node
from examples.cluster.live_job import LiveJob, until
from tests.e2e.driver_api import driver_status
from tests.e2e.driver_process import kill_driver_process


def test_the_driver_process_is_killed(running: LiveJob) -> None:
    generation = running.generation
    kill_driver_process(running)
    assert_goes_on(running, generation, "kill -9")
    assert running.status["restarts"]["total"] >= 1
    assert "ended with code 137" in running.status["restarts"]["message"]


def test_the_drivers_pod_is_deleted(running: LiveJob) -> None:
    generation = running.generation
    running.kubectl("delete", "pod", running.driver, "--grace-period=0", "--force")
    assert_goes_on(running, generation, "pod deleted")


def test_the_kubelet_is_restarted(running: LiveJob, node: Node) -> None:
    """Pods run on without it. Checkpoints need not: a cleanup that nobody starts holds them back until it is there."""
    generation = running.generation
    kubelet = node.parts["kubelet"]
    node.daemons.stop(kubelet, number=signal.SIGKILL)
    batch = driver_status(running).sources[0].batch
    until("a batch without a kubelet", lambda: driver_status(running).sources[0].batch > batch + 1)
    node.daemons.start(kubelet)
    until("the node to be ready", node.node_is_ready)
    running.wait_epochs(1)
    assert running.generation == generation
    running.check_output()


def assert_goes_on(job: LiveJob, generation: int, how: str) -> None:
    began = time.monotonic()
    job.wait_ready(generation=generation + 1)
    until("a batch", lambda: driver_status(job).sources[0].rows > 0)
    print(f"{how}: processing again after {time.monotonic() - began:.1f} s")
    job.wait_epochs(2)
    assert job.generation == generation + 1
    job.check_output()
