"""Which nodes are being emptied, and which pods have to leave them."""

from typing import Any

import pytest

from epochal_operator.api import ApiError, JsonObject
from epochal_operator.kubernetes import pod_state
from epochal_operator.kubernetes.nodes import Nodes
from tests.operator.fake_kubelet import wait_until
from tests.operator.test_watch_cache import ScriptedApi


def node(name: str, *taints: str, **spec: Any) -> JsonObject:
    marks = [{"key": taint, "effect": "NoSchedule"} for taint in taints]
    return {"metadata": {"name": name, "resourceVersion": "11"}, "spec": {"taints": marks, **spec}}


def pod(where: str, *tolerated: JsonObject) -> JsonObject:
    return {"metadata": {"name": "driver"}, "spec": {"nodeName": where, "tolerations": list(tolerated)}}


def seen(*nodes: JsonObject, events: tuple[JsonObject, ...] = ()) -> Nodes:
    api = ScriptedApi([(10, list(nodes))], [list(events)] if events else [])
    found = Nodes(api)
    found.start()
    wait_until(lambda: len(api.asked) == 2 + bool(events))
    return found


DRAINS = [
    (node("n"), ""),
    (node("n", "dedicated", "node.kubernetes.io/not-ready"), ""),
    (node("n", unschedulable=True), "its node n is cordoned"),
    (node("n", "node.kubernetes.io/unschedulable", unschedulable=True), "its node n is cordoned"),
    (node("n", "ToBeDeletedByClusterAutoscaler"), "its node n is being emptied (ToBeDeletedByClusterAutoscaler)"),
    (node("n", "karpenter.sh/disrupted"), "its node n is being emptied (karpenter.sh/disrupted)"),
    (node("other", unschedulable=True), ""),
]


@pytest.mark.parametrize(("found", "said"), DRAINS)
def test_which_marks_count(found: JsonObject, said: str) -> None:
    nodes = seen(found)
    assert nodes.known.is_set()
    assert nodes.drains(pod("n")) == said
    assert nodes.drains({"metadata": {}, "spec": {}}) == "", "a pod that is on no node yet"


@pytest.mark.parametrize(
    "tolerated",
    [
        {"operator": "Exists"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    ],
)
def test_what_tolerates_the_mark_may_stay(tolerated: JsonObject) -> None:
    assert seen(node("n", unschedulable=True)).drains(pod("n", tolerated)) == ""


def test_another_toleration_changes_nothing() -> None:
    nodes = seen(node("n", unschedulable=True))
    assert nodes.drains(pod("n", {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"})) != ""


def test_marks_come_and_go() -> None:
    cordon = {"type": "MODIFIED", "object": node("a", unschedulable=True)}
    uncordon = {"type": "MODIFIED", "object": node("b")}
    gone = {"type": "DELETED", "object": node("c", unschedulable=True)}
    nodes = seen(
        node("a"), node("b", unschedulable=True), node("c", unschedulable=True), events=(cordon, uncordon, gone)
    )
    assert [bool(nodes.drains(pod(name))) for name in "abc"] == [True, False, False]
    assert nodes.changes == 4


class NotAllowed(ScriptedApi):
    def list(self, kind: str, namespace: str | None, *, selector: str = "", name: str = "") -> JsonObject:
        raise ApiError("GET /api/v1/nodes: nodes is forbidden", 403)


def test_an_operator_that_may_not_see_nodes_goes_on_without() -> None:
    nodes = Nodes(NotAllowed([], []))
    nodes.start()
    assert not nodes.known.is_set()
    assert nodes.problem() is None
    assert nodes.drains(pod("n")) == ""


def test_executors_belong_to_a_driver_by_its_uid() -> None:
    def executor(name: str, owner: str, phase: str = "Running") -> JsonObject:
        metadata = {"name": name, "labels": {"epochal.dev/role": "executor"}, "ownerReferences": [{"uid": owner}]}
        return {"metadata": metadata, "status": {"phase": phase}}

    driver = {"metadata": {"uid": "d2"}}
    pods = [executor("old", "d1"), executor("mine", "d2"), executor("over", "d2", "Failed"), driver | {"status": {}}]
    assert [pod["metadata"]["name"] for pod in pod_state.executors_of(driver, pods)] == ["mine"]


def test_only_what_kubernetes_takes_away_counts_as_disrupted() -> None:
    """Spark deletes executors, too: when the driver fails, for one."""
    deleted: JsonObject = {"metadata": {"deletionTimestamp": "2026-11-18T12:00:00Z"}, "status": {}}
    assert pod_state.disrupted(deleted) == ""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicted"}
    deleted["status"]["conditions"] = [condition]
    assert pod_state.disrupted(deleted) == "EvictionByEvictionAPI: evicted"
