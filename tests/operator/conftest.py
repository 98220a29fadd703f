"""Fixtures of the tests that run the operator against a real API server."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from epochal_operator.api import Api
from epochal_operator.controller import Controller
from epochal_operator.kubernetes.backend import Cluster
from epochal_operator.kubernetes.nodes import Nodes
from epochal_operator.kubernetes.watch_cache import Watched
from epochal_operator.names import PLURAL
from epochal_operator.reporting.metrics import OperatorMetrics
from epochal_operator.stores.store_access import StoreRules, Stores
from tests.operator.fake_kubelet import FakeKubelet
from tests.operator.harness import Bench, OperatorProcess, Rounds, install_crd, load_api


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    api = load_api(control_plane.kubeconfig)
    install_crd(api)
    return api


@pytest.fixture(scope="session")
def kubelet(api: Api) -> Iterator[FakeKubelet]:
    with FakeKubelet(api) as kubelet:
        yield kubelet


@pytest.fixture
def bench(api: Api, kubelet: FakeKubelet, tmp_path: Path) -> Iterator[Bench]:
    """A namespace and a store that no other test knows."""
    bench = Bench(api, tmp_path)
    yield bench
    # Jobs that go on would take their share of the machine from the tests that follow.
    for name in bench.names(PLURAL):
        bench.delete(PLURAL, name)


@pytest.fixture
def rounds(api: Api, bench: Bench) -> Iterator[Rounds]:
    metrics = OperatorMetrics()
    watched = Watched(api, [bench.namespace])
    watched.start()
    rounds: Rounds
    cluster = Cluster(
        api=api,
        watched=watched,
        nodes=Nodes(api),
        clock=lambda: time.time() + rounds.ahead,
        stores=Stores(api, StoreRules(local=True)),
        driver_timeout=0.5,
        heartbeat=0.3,
    )
    controller = Controller(cluster, metrics, deletion_timeout=100.0)
    rounds = Rounds(bench, controller, metrics)
    yield rounds
    watched.stop()


@pytest.fixture(scope="module")
def operator(
    control_plane: ControlPlane, api: Api, kubelet: FakeKubelet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator for all jobs of a module's tests."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(control_plane.kubeconfig, log) as operator:
        yield operator
        assert operator.running(), log.read_text()[-3000:]
