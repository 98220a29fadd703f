"""Cleanup as a Job, against a real API server and its Job controller."""

import pytest

from epochal.protocol.resolve import list_epochs
from tests.operator.fake_kubelet import wait_until
from tests.operator.harness import Bench

pytestmark = pytest.mark.usefixtures("operator")

RETENTION = {"retention": {"keep": 2, "every": 1}}


def test_a_cleanup_is_a_job_that_deletes_old_epochs_and_goes(bench: Bench) -> None:
    job = bench.apply(checkpoint=RETENTION)
    status = job.wait(lambda status: status.get("minEpoch", 1) >= 3 and not status["cleanup"]["running"], seconds=40)
    # One that succeeded is nobody's news: at every twentieth epoch it would push others out of the list.
    assert not [reason for reason, _ in bench.events() if reason.startswith("Cleanup")]
    job.patch(state="Suspended")
    status = job.wait_phase("Stopped")
    kept = sorted(list_epochs(bench.store, job.paths).manifests)
    assert min(kept) >= 3
    assert status["epoch"] in kept
    wait_until(lambda: not bench.names("jobs"))
    job.assert_exactly_once()


def test_a_cleanup_that_fails_backs_off_and_never_holds_checkpoints_up(bench: Bench) -> None:
    job = bench.apply(checkpoint=RETENTION, env=[{"name": "FAKE_CLEANUP", "value": "fail"}])
    status = job.wait(lambda status: status["cleanup"]["failures"] == 1, seconds=30)
    assert status["cleanup"]["notBefore"]
    wait_until(
        lambda: any(reason == "CleanupFailed" and "told to fail" in message for reason, message in bench.events())
    )
    job.wait_epoch(status["epoch"] + 4)
    assert sorted(list_epochs(bench.store, job.paths).manifests)[0] == 1


def test_checkpoints_wait_while_a_cleanup_exists(bench: Bench) -> None:
    job = bench.apply(checkpoint=RETENTION, env=[{"name": "FAKE_CLEANUP", "value": "hang"}])
    job.wait_condition("CleanupRunning", "True", seconds=30)
    epoch = job.status["epoch"]
    with pytest.raises(AssertionError, match="not within"):
        job.wait_epoch(epoch + 1, seconds=1.5)
    # A stop does not wait for it.
    job.patch(state="Suspended")
    assert job.wait_phase("Stopped")["epoch"] == epoch + 1
    job.delete()
    job.wait_gone()
    wait_until(lambda: not bench.names("jobs"))
