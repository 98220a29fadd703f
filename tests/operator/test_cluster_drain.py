"""A node is emptied, against a real API server: drivers leave it with a last checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from epochal_operator.api import Api
from tests.operator.fake_kubelet import NODE, wait_until
from tests.operator.harness import Bench, patch

pytestmark = pytest.mark.usefixtures("operator")


@contextmanager
def cordoned(api: Api) -> Iterator[None]:
    where = f"/api/v1/nodes/{NODE}"
    patch(api, where, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        patch(api, where, {"spec": {"unschedulable": None}})


def test_a_driver_leaves_a_cordoned_node_with_a_last_checkpoint(bench: Bench) -> None:
    job = bench.apply(checkpoint={"interval": "1h"})
    job.wait_phase("Running")
    with cordoned(bench.api):
        status = job.wait(lambda status: status["generation"] == 2 and "unschedulable" in status["message"])
        assert status["epoch"] == 1
        assert status["restarts"]["total"] == 0
        [said] = [message for reason, message in bench.events() if reason == "Draining"]
        assert f"its node {NODE} is cordoned" in said
    job.wait(lambda status: status["phase"] == "Running")
    assert job.status["generation"] == 2
    job.assert_exactly_once()


def test_a_driver_that_tolerates_the_cordon_stays_and_does_not_move_for_ever(bench: Bench) -> None:
    """Where it may run on such a node, its successor could be put on the same one."""
    tolerations = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]
    tolerant = bench.apply("tolerant", driver={"podTemplate": {"spec": {"tolerations": tolerations}}})
    other = bench.apply("other", script={"output": str(bench.directory / "other")})
    tolerant.wait_epoch(1)
    other.wait_epoch(1)
    with cordoned(bench.api):
        other.wait_generation(2)
        tolerant.wait_epoch(tolerant.status["epoch"] + 3)
    assert tolerant.status["generation"] == 1


def test_each_job_has_a_budget_that_lets_no_ready_driver_be_evicted(bench: Bench) -> None:
    job = bench.apply()
    job.wait_phase("Running")
    [budget] = bench.objects("poddisruptionbudgets")
    assert budget["metadata"]["ownerReferences"][0]["uid"] == job.get()["metadata"]["uid"]
    spec = budget["spec"]
    assert (spec["minAvailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    [driver] = bench.objects("pods")
    assert spec["selector"]["matchLabels"].items() <= driver["metadata"]["labels"].items()
    # A second generation finds it there.
    bench.api.delete("pods", bench.namespace, driver["metadata"]["name"], uid=driver["metadata"]["uid"])
    job.wait(lambda status: status["generation"] == 2 and status["phase"] == "Running")
    wait_until(lambda: len(bench.objects("poddisruptionbudgets")) == 1)
