"""Old epochs are deleted from the store, and while that is under way no checkpoint begins."""

import os
import signal
import time

from cluster.node import Node
from epochal_operator.names import Role
from examples.cluster.live_job import LiveJob, until


def test_checkpoints_wait_while_a_cleanup_exists(running: LiveJob, node: Node) -> None:
    scheduler = node.daemons.pid(node.parts["kube-scheduler"])
    assert scheduler is not None
    # Nobody finds a place for the cleanup's pod, so that its Job stays.
    os.kill(scheduler, signal.SIGSTOP)
    try:
        until("a cleanup that waits", lambda: _waiting_cleanup(running))
        until("its condition", lambda: running.condition("CleanupRunning")["status"] == "True")
        before = running.epoch
        time.sleep(8)
        assert running.epoch == before
    finally:
        os.kill(scheduler, signal.SIGCONT)
    running.wait_epochs(1)


def _waiting_cleanup(job: LiveJob) -> bool:
    pods = job.pods(Role.CLEANUP)
    return bool(pods) and not pods[0]["spec"].get("nodeName") and not job.status.get("inFlight")


def test_a_cleanup_deletes_what_nobody_needs_any_more(running: LiveJob) -> None:
    # The next cleanup may have begun: min_epoch moves at its start, and the epochs below are gone at its end.
    until("all epochs below min_epoch to be gone", lambda: running.status.get("minEpoch", 1) > 1 and _is_clean(running))
    # Nothing was taken that a kept epoch needs. Another cleanup may come while the test looks: suspended, none does.
    running.suspend()
    running.wait_phase("Stopped")
    kept = range(running.status["minEpoch"], running.epoch + 1)
    needed = set().union(*(running.manifest(epoch).objects() for epoch in kept))
    assert needed <= {name.removeprefix("store/") for name in running.objects("store")}
    assert running.check_output()
    running.resume()


def _is_clean(job: LiveJob) -> bool:
    smallest: int = job.status["minEpoch"]
    epochs = {int(name.split("/epochs/")[1].split("/")[0]) for name in job.objects("store") if "/epochs/" in name}
    return min(epochs) >= smallest
