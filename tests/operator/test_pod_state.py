"""What is made of a driver's pod: by its own container, whatever the others do."""

from typing import Any

import pytest

from epochal_operator.api import JsonObject
from epochal_operator.kubernetes import pod_state

STARTED = "2026-11-18T12:00:00Z"


def pod(phase: str = "Running", **status: Any) -> JsonObject:
    labels = {"epochal.dev/role": "driver", "epochal.dev/generation": "3"}
    return {"metadata": {"name": "job-driver-3", "labels": labels}, "status": {"phase": phase, **status}}


def container(name: str = "driver", **state: Any) -> JsonObject:
    return {"name": name, "state": state}


def terminated(code: int, reason: str = "Error", message: str = "", name: str = "driver") -> JsonObject:
    return container(name, terminated={"exitCode": code, "reason": reason, "message": message})


RUNS = container(running={"startedAt": STARTED})
SIDECAR = container("proxy", running={"startedAt": STARTED})


def test_the_drivers_container_counts_although_a_sidecar_runs_on() -> None:
    found = pod(containerStatuses=[SIDECAR, terminated(0, "Completed")])
    ended = pod_state.ended(found)
    assert ended is not None
    assert ended.code == 0
    assert pod_state.runs_on(found)
    found["metadata"]["deletionTimestamp"] = STARTED
    assert not pod_state.runs_on(found)


def test_a_driver_alone_leaves_nothing_running() -> None:
    assert not pod_state.runs_on(pod("Failed", containerStatuses=[terminated(1)]))
    assert not pod_state.runs_on(pod(containerStatuses=[RUNS]))


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_sidecar_that_ended_is_not_the_drivers_end(code: int) -> None:
    found = pod(containerStatuses=[terminated(code, name="proxy"), RUNS])
    assert pod_state.ended(found) is None
    assert pod_state.waits_for(found) == ""
    assert not pod_state.runs_on(found)


ENDS = [
    (pod("Failed", containerStatuses=[terminated(1, message="2026-11-18 12:00:00,000 ERROR x boom")]), 1, "boom"),
    (
        pod("Failed", containerStatuses=[terminated(137, "OOMKilled")]),
        137,
        "it ran out of memory (OOMKilled): raise spec.driver.memory, or make its batches smaller",
    ),
    (
        pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
        None,
        "Evicted: The node was low on resource: memory.",
    ),
    (
        pod("Failed", reason="NodeLost", containerStatuses=[RUNS]),
        None,
        "NodeLost",
    ),
    (
        pod(
            "Failed",
            initContainerStatuses=[terminated(2, message="no such host", name="fetch")],
            containerStatuses=[container(waiting={"reason": "PodInitializing"})],
        ),
        None,
        "init container fetch ended with code 2: no such host",
    ),
    (pod("Failed"), None, ""),
]


@pytest.mark.parametrize(("found", "code", "message"), ENDS)
def test_every_end_says_why(found: JsonObject, code: int | None, message: str) -> None:
    ended = pod_state.ended(found)
    assert ended is not None
    assert (ended.generation, ended.code, ended.message) == (3, code, message)


WAITS = [
    ([container(waiting={"reason": "ContainerCreating"})], ""),
    ([container(waiting={"reason": "ErrImagePull", "message": "not found"})], "ErrImagePull: not found"),
    ([container(waiting={"reason": "ImagePullBackOff", "message": "Back-off"})], "ImagePullBackOff: Back-off"),
    (
        [container(waiting={"reason": "CreateContainerConfigError", "message": 'secret "x" not found'})],
        'CreateContainerConfigError: secret "x" not found',
    ),
    # The driver runs: what its sidecar waits for is not what it waits for.
    ([container("proxy", waiting={"reason": "ImagePullBackOff", "message": "Back-off"}), RUNS], ""),
]


@pytest.mark.parametrize(("statuses", "said"), WAITS)
def test_what_a_pod_waits_for(statuses: list[JsonObject], said: str) -> None:
    assert pod_state.waits_for(pod(containerStatuses=statuses)) == said


LEAVES = [
    ({}, [], ""),
    ({"deletionTimestamp": STARTED}, [], "its pod is being deleted"),
    (
        {"deletionTimestamp": STARTED},
        [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicted"}],
        "its pod has to go: EvictionByEvictionAPI: evicted",
    ),
    (
        {},
        [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
        "its pod has to go: PreemptionByScheduler",
    ),
    ({}, [{"type": "DisruptionTarget", "status": "False", "reason": "x"}], ""),
]


@pytest.mark.parametrize(("metadata", "conditions", "said"), LEAVES)
def test_why_a_pod_has_to_go(metadata: JsonObject, conditions: list[JsonObject], said: str) -> None:
    found = pod(containerStatuses=[RUNS], conditions=conditions)
    found["metadata"] |= metadata
    assert pod_state.leaving(found) == said


def test_when_the_driver_began() -> None:
    assert pod_state.running_since(pod(containerStatuses=[SIDECAR, RUNS])) == 1795003200.0
    assert pod_state.running_since(pod(containerStatuses=[SIDECAR, container(waiting={})])) is None
    assert pod_state.running_since(pod("Pending")) is None
