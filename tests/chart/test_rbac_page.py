"""docs/rbac.md says what a real API server says."""

import pytest

from tests.chart.cluster import ChartCluster
from tests.chart.rbac import PAGE, VALUES, WRITE, page

pytestmark = pytest.mark.cluster


def test_the_page_is_up_to_date(chart_cluster: ChartCluster) -> None:
    chart_cluster.install(VALUES)
    chart_cluster.wait_for_crd()
    try:
        assert page(chart_cluster) == PAGE.read_text(encoding="utf-8"), WRITE
    finally:
        chart_cluster.uninstall()
        chart_cluster.kubectl("delete", "crd/streamingjobs.epochal.dev")
