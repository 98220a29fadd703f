"""Two operators with the chart's rights and one Lease: one works, the other is healthy and takes over."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import free_port
from tests.chart.cluster import JOB_NAMESPACE, ChartCluster
from tests.chart.render import RELEASE_NAMESPACE
from tests.operator.fake_kubelet import wait_until
from tests.operator.harness import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def kubeconfig(chart_cluster: ChartCluster, tmp_path: Path) -> Iterator[Path]:
    """Of the operator's service account, as the chart makes it with ha.enabled."""
    chart_cluster.install({"ha": {"enabled": True}, "watchNamespaces": [JOB_NAMESPACE]})
    chart_cluster.wait_for_crd()
    yield chart_cluster.kubeconfig_of("epochal", RELEASE_NAMESPACE, tmp_path / "kubeconfig")
    chart_cluster.uninstall()
    chart_cluster.kubectl("delete", "crd/streamingjobs.epochal.dev")


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_the_one_that_waits_is_healthy_and_takes_over(kubeconfig: Path, tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    operators = [
        OperatorProcess(
            kubeconfig,
            tmp_path / f"{number}.log",
            *(f"--namespaces={JOB_NAMESPACE}", f"--health-port={port}"),
            *("--lease=epochal", f"--lease-namespace={RELEASE_NAMESPACE}"),
        )
        for number, port in enumerate(ports)
    ]

    def leads(number: int) -> bool:
        return "Leading: this operator holds Lease" in operators[number].log.read_text()

    with operators[0]:
        wait_until(lambda: leads(0) and healthy(ports[0]), seconds=40)
        with operators[1]:
            wait_until(lambda: healthy(ports[1]), seconds=40)
            time.sleep(1)
            assert not leads(1)
            operators[0].kill()
            # The Lease has to run out first.
            wait_until(lambda: leads(1), seconds=60)
            wait_until(lambda: healthy(ports[1]), seconds=20)
            assert "orbidden" not in operators[1].log.read_text()
