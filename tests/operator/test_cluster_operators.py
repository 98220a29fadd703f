"""Operators that are two, that follow each other, and that lose the API server for a while."""

import time
from collections import Counter
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from tests.operator.fake_kubelet import FakeKubelet
from tests.operator.harness import Bench, OperatorProcess


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operator.log"


def test_the_api_server_goes_away_and_comes_back(bench: Bench, control_plane: ControlPlane, log: Path) -> None:
    with OperatorProcess(control_plane.kubeconfig, log, f"--namespaces={bench.namespace}") as operator:
        job = bench.apply()
        epoch = job.wait_epoch(2)["epoch"]
        control_plane.stop()
        time.sleep(2)
        control_plane.start()
        status = job.wait_epoch(epoch + 3, seconds=60)
        assert operator.running()
    assert status["generation"] == 1, "the driver went on all the while"
    job.assert_exactly_once()


def test_two_operators_at_once_do_no_harm(
    bench: Bench, control_plane: ControlPlane, kubelet: FakeKubelet, log: Path
) -> None:
    options = (control_plane.kubeconfig, log, f"--namespaces={bench.namespace}")
    with OperatorProcess(*options), OperatorProcess(*options):
        job = bench.apply(checkpoint={"retention": {"keep": 2, "every": 1}})
        job.wait_epoch(6)
        kubelet.crash(bench.namespace, kubelet.alive(bench.namespace)[0].name)
        job.wait_generation(2)
        job.wait_epoch(job.status["epoch"] + 2)
        job.patch(state="Suspended")
        job.wait_phase("Stopped")
    job.assert_exactly_once()
    assert not kubelet.overlaps
    epochs = Counter(epoch for owner, epoch, _ in kubelet.barriers if owner == f"{bench.namespace}/job")
    assert set(epochs.values()) == {1}
