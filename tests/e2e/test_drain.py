"""A node is drained as `kubectl drain` does it: the driver leaves with a last checkpoint, and its sidecar with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes.client import CoreV1Api, V1Eviction, V1ObjectMeta
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config

from cluster.images import PROJECT
from epochal_operator.names import Role
from examples.cluster.live_job import Cluster, LiveJob, until


def test_a_drain_waits_for_the_last_checkpoint(make_job: Callable[..., LiveJob], cluster: Cluster) -> None:
    job = make_job("drained")
    job.spec["checkpoint"]["interval"] = "1h"
    restricted = job.spec["driver"]["podTemplate"]["spec"]["containers"][0].get("securityContext")
    sidecar = {"name": "proxy", "image": PROJECT["spark"], "command": ["sleep", "3600"], "securityContext": restricted}
    job.spec["driver"]["podTemplate"]["spec"]["containers"].append(sidecar)
    job.apply()
    job.wait_ready()
    until("the driver to be guarded", lambda: evicted(job, job.driver) == 429)
    with cordoned(cluster):
        until("the eviction to be allowed, or not needed any more", lambda: evicted(job, f"{job.name}-driver-1") != 429)
        waiting = until("the next driver to wait for a node", lambda: _unschedulable(job))
        assert waiting.endswith("driver-2")
        assert job.epoch == 1
        [said] = job.events("Draining")
        assert "is cordoned" in said
    job.wait_ready(generation=2)
    assert any("restored from epoch 1" in message for message in job.events("Restored"))
    assert job.status["restarts"]["total"] == 0
    until("the sidecar to end, too", lambda: [pod["metadata"]["name"] for pod in job.pods(Role.DRIVER)] == [job.driver])
    job.check_output()
    job.delete()


def test_an_executor_that_is_evicted_works_on_until_the_last_checkpoint(make_job: Callable[..., LiveJob]) -> None:
    """Its state goes with it, so the whole generation goes."""
    job = make_job("evicted", executors=1)
    job.spec["checkpoint"]["interval"] = "1h"
    job.apply()
    job.wait_ready()
    [executor] = until("the executor", lambda: job.pods(Role.EXECUTOR))
    name = executor["metadata"]["name"]
    until("it to run", lambda: job.pods(Role.EXECUTOR)[0]["status"]["phase"] == "Running")
    assert evicted(job, name, really=True) == 201
    job.wait_ready(generation=2)
    [said] = job.events("Draining")
    assert f"executor {name} has to go: EvictionByEvictionAPI" in said
    assert any("restored from epoch 1" in message for message in job.events("Restored"))
    assert job.status["restarts"]["total"] == 0
    job.check_output()
    job.delete()


def evicted(job: LiveJob, pod: str, *, really: bool = False) -> int:
    """What the API server answers to an eviction: 429 if a PodDisruptionBudget does not let it."""
    api = CoreV1Api(new_client_from_config(str(job.cluster.kubeconfig)))  # type: ignore[no-untyped-call]
    body = V1Eviction(metadata=V1ObjectMeta(name=pod, namespace=job.namespace))
    try:
        if really:
            api.create_namespaced_pod_eviction(pod, job.namespace, body)
        else:
            api.create_namespaced_pod_eviction(pod, job.namespace, body, dry_run="All")
    except ApiException as error:
        return int(error.status)
    return 201


@contextmanager
def cordoned(cluster: Cluster) -> Iterator[None]:
    names = [node["metadata"]["name"] for node in cluster.get("nodes")["items"]]
    cluster.kubectl("cordon", *names)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", *names)


def _unschedulable(job: LiveJob) -> str:
    for pod in job.pods(Role.DRIVER):
        conditions: list[dict[str, Any]] = pod["status"].get("conditions", [])
        if any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions):
            return str(pod["metadata"]["name"])
    return ""
