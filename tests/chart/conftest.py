"""A cluster for the chart alone: its CRD belongs to a release, which another test's would get in the way of."""

from collections.abc import Iterator

import pytest

from cluster.control_plane import ControlPlane
from tests.chart.cluster import JOB_NAMESPACE, ChartCluster
from tests.chart.render import RELEASE_NAMESPACE


@pytest.fixture(scope="package")
def chart_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartCluster]:
    with ControlPlane() as plane:
        cluster = ChartCluster(plane, tmp_path_factory.mktemp("helm"))
        cluster.make_namespaces(RELEASE_NAMESPACE, JOB_NAMESPACE, "team-b", "jobs")
        yield cluster
