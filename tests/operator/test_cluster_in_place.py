"""Against a real API server: a driver that begins the next generation in its own pod, and what then finds the pod."""

from collections import Counter
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from epochal.control.events import EventReason
from epochal_operator.kubernetes import pod_state
from epochal_operator.kubernetes.dependents import KEYS_CHECK_EVERY
from tests.operator.fake_kubelet import FakeKubelet, wait_until
from tests.operator.harness import Bench, JobHandle, OperatorProcess, Rounds

MESSAGE = "generation 2 begins in the driver that was started as generation 1"


@pytest.mark.parametrize("point", ["barrier@3", "published@3", "committed@3"])
def test_a_driver_goes_on_in_its_pod_while_the_operator_is_restarted(
    bench: Bench, control_plane: ControlPlane, kubelet: FakeKubelet, tmp_path: Path, point: str
) -> None:
    operator = OperatorProcess(control_plane.kubeconfig, tmp_path / "operator.log", f"--namespaces={bench.namespace}")
    with operator:
        job = bench.apply(script={"lose": point, "recovering": 3.0})
        status = job.wait_generation(2)
        assert status["phase"] == "Starting"
        assert status["record"]["process"] == 1
        ready = job.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Starting")
        assert ready["message"].startswith(MESSAGE)
        wait_until(lambda: any(reason == "RecoveringInPlace" for reason, _ in bench.events()))
        operator.kill()
        operator.start()
        job.wait_phase("Running")
        status = job.wait_epoch(status["epoch"] + 3)
        assert (status["generation"], status["restarts"]) == (2, {"inARow": 0, "total": 0})
        assert job.condition("Ready")["message"] == "generation 2 runs"
        assert bench.names("pods") == ["job-driver-1"]
        told = [message for reason, message in bench.events() if reason == "RecoveringInPlace"]
        assert told == [f"{MESSAGE}: an executor was lost: generation 2 goes on in the same driver"]
        # What it needs goes by its pod's number.
        bench.delete("configmaps", "job-driver-1")
        wait_until(lambda: "job-driver-1" in bench.names("configmaps"))
        assert "job-driver-2" not in bench.names("configmaps")
        kubelet.crash(bench.namespace, "job-driver-1")
        status = job.wait(lambda status: status["generation"] == 3 and status["phase"] == "Running")
        job.wait_epoch(status["epoch"] + 2)
        assert status["restarts"]["total"] == 1
        assert status["restarts"]["message"] == "the driver of generation 2 ended with code 1: crashed"
        assert sorted(bench.names("pods")) == ["job-driver-1", "job-driver-3"]
        wait_until(lambda: "job-driver-1" not in bench.names("configmaps"))
        job.patch(state="Suspended")
        job.wait_phase("Stopped")
    assert not kubelet.overlaps
    epochs = Counter(epoch for owner, epoch, _ in kubelet.barriers if owner == f"{bench.namespace}/job")
    assert set(epochs.values()) == {1}
    job.assert_exactly_once()


def gone_on(bench: Bench, rounds: Rounds) -> JobHandle:
    job = bench.apply(script={"lose": "committed@2"})
    rounds.until(job, lambda status: status.get("generation") == 2 and status["phase"] == "Running")
    return job


def test_its_secret_comes_back_as_it_was(bench: Bench, rounds: Rounds) -> None:
    job = gone_on(bench, rounds)
    name = pod_state.keys_of(bench.api.get("pods", bench.namespace, "job-driver-1"))
    before = bench.api.get("secrets", bench.namespace, name)
    bench.delete("secrets", name)
    rounds.ahead += KEYS_CHECK_EVERY + 1
    epoch = job.status["epoch"]
    reasons = rounds.until(job, lambda status: status["epoch"] > epoch)
    assert EventReason.REPAIRED in reasons
    assert bench.api.get("secrets", bench.namespace, name)["data"] == before["data"]
    assert job.status["generation"] == 2


def test_a_pod_whose_sidecar_runs_on_stays_until_it_is_written_down_how_its_driver_ended(
    bench: Bench, rounds: Rounds, kubelet: FakeKubelet
) -> None:
    job = gone_on(bench, rounds)
    [container] = kubelet.alive(bench.namespace)
    terminated = {"exitCode": 1, "reason": "Error", "message": "", "startedAt": None, "finishedAt": None}
    ended = {"name": "driver", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    kubelet._set(container, {"phase": "Running", "containerStatuses": [ended | {"state": {"terminated": terminated}}]})
    known = rounds.controller._jobs[job.get()["metadata"]["uid"]].backend
    assert known is not None
    wait_until(lambda: any(pod_state.runs_on(pod) for pod in known._drivers()))
    record = known.load()
    assert record is not None
    known.end_leftovers(record)
    assert "deletionTimestamp" not in bench.api.get("pods", bench.namespace, "job-driver-1")["metadata"]
    rounds.until(job, lambda status: status["generation"] == 3 and status["phase"] == "Running")
    assert job.status["restarts"]["message"].startswith("the driver of generation 2 ended with code 1")
    wait_until(lambda: bench.names("pods") == ["job-driver-3"])
