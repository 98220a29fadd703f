"""What is broken, and mended again. Nothing here touches a job: no outage in the table needs a hand."""
# ruff: noqa: ARG001  every act is given the same

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from kubernetes.client import CoreV1Api, V1Eviction, V1ObjectMeta
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config

from benchmarks.outages.jobs import OutageJob, Sink
from benchmarks.outages.operators import Operators
from benchmarks.outages.servers import Servers
from cluster.node import Node
from epochal_operator.names import JOB_LABEL
from examples.cluster.live_job import Cluster, until
from tests.e2e.driver_process import driver_pid

QUOTA = "nothing"
DRAINED_WITHIN = 600.0
EVICTED_AGAIN = 5.0
"""Seconds after which an eviction that was refused is asked for again: those of `kubectl drain`."""


@dataclass(frozen=True)
class Scene:
    cluster: Cluster
    node: Node
    servers: Servers
    operators: Operators
    namespace: str
    image: str
    real_image: str


Act = Callable[[Scene, list[OutageJob]], None]


@dataclass(frozen=True, kw_only=True)
class Outage:
    """``concerned``: the jobs that see it; all if None. ``seconds`` 0: it is over as soon as it has begun."""

    name: str
    title: str
    seconds: float
    rounds: int
    begin: Act
    mend: Act
    concerned: Sink | None = None
    new_driver: bool = False
    """Drivers are lost by it, so only epochs of new ones tell that the job goes on."""
    new_operator: bool = False
    """Only epochs that were begun after it tell that somebody begins some."""


def _nothing(scene: Scene, jobs: list[OutageJob]) -> None:
    """It mends itself."""


# --- servers ---


def _stop_server(name: str, scene: Scene, jobs: list[OutageJob]) -> None:
    scene.servers.named(name).stop()


def _start_server(name: str, scene: Scene, jobs: list[OutageJob]) -> None:
    scene.servers.named(name).start()


def _stop_api_server(scene: Scene, jobs: list[OutageJob]) -> None:
    scene.node.daemons.stop(scene.node.parts["kube-apiserver"], number=signal.SIGKILL)


def _start_api_server(scene: Scene, jobs: list[OutageJob]) -> None:
    node = scene.node
    node.daemons.start(node.parts["kube-apiserver"])
    until("the API server", node.api_is_ready)
    # Some of them end without it; a machine's init starts them again.
    for part in node.parts.values():
        node.daemons.start(part)


# --- pods ---


def _kill_drivers(jobs: list[OutageJob]) -> None:
    for pid in [driver_pid(job.live) for job in jobs]:
        os.kill(pid, signal.SIGKILL)


def _no_pods(scene: Scene, jobs: list[OutageJob]) -> None:
    metadata = {"name": QUOTA, "namespace": scene.namespace}
    scene.cluster.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}}
    )
    where = ("resourcequota", f"--namespace={scene.namespace}", QUOTA)
    until("the quota to hold", lambda: scene.cluster.get(*where).get("status", {}).get("hard"))
    _kill_drivers(jobs)


def _pods_again(scene: Scene, jobs: list[OutageJob]) -> None:
    scene.cluster.kubectl("delete", "resourcequota", f"--namespace={scene.namespace}", QUOTA)


def _no_image(scene: Scene, jobs: list[OutageJob]) -> None:
    scene.node.containerd.forget(scene.image)
    _kill_drivers(jobs)


def _image_again(scene: Scene, jobs: list[OutageJob]) -> None:
    scene.node.containerd.tag(scene.real_image, scene.image)


def _drain(scene: Scene, jobs: list[OutageJob]) -> None:
    """Cordon the node and evict all pods of all jobs, as `kubectl drain` does. This cluster has no other node: it takes
    pods again when it is empty."""
    name = scene.cluster.get("nodes")["items"][0]["metadata"]["name"]
    scene.cluster.kubectl("cordon", name)
    try:
        _evict(scene, jobs)
    finally:
        scene.cluster.kubectl("uncordon", name)


def _evict(scene: Scene, jobs: list[OutageJob]) -> None:
    api = CoreV1Api(new_client_from_config(str(scene.cluster.kubeconfig)))  # type: ignore[no-untyped-call]
    names = ",".join(job.name for job in jobs)
    pods: list[Any] = api.list_namespaced_pod(scene.namespace, label_selector=f"{JOB_LABEL} in ({names})").items
    running = [pod.metadata.name for pod in pods if pod.status.phase in ("Pending", "Running")]
    with ThreadPoolExecutor(len(running)) as pool:
        list(pool.map(partial(_evict_pod, api, scene.namespace), running))


def _evict_pod(api: CoreV1Api, namespace: str, name: str) -> None:
    late = time.monotonic() + DRAINED_WITHIN
    while True:
        if time.monotonic() > late:
            raise SystemExit(f"pod {name} could not be evicted within {DRAINED_WITHIN:.0f} s")
        try:
            body = V1Eviction(metadata=V1ObjectMeta(name=name, namespace=namespace))
            api.create_namespaced_pod_eviction(name, namespace, body)
        except ApiException as error:
            if error.status == 404:
                return
            if error.status != 429:
                raise
            time.sleep(EVICTED_AGAIN)
        else:
            return


def _kill_operator(scene: Scene, jobs: list[OutageJob]) -> None:
    until("an operator that leads, and one that waits", scene.operators.complete)
    scene.operators.kill_leader()


def _server(name: str, concerned: Sink | None, rounds: int) -> Outage:
    return Outage(
        name=name.lower(),
        title=f"{name} away",
        seconds=300,
        rounds=rounds,
        begin=partial(_stop_server, name),
        mend=partial(_start_server, name),
        concerned=concerned,
    )


OUTAGES = (
    Outage(
        name="operator", title="operator and its standby killed in turns", seconds=0, rounds=4,
        begin=_kill_operator, mend=_nothing, new_operator=True,
    ),
    Outage(
        name="drain", title="node drained: cordoned, all pods evicted", seconds=0, rounds=1,
        begin=_drain, mend=_nothing, new_driver=True,
    ),
    Outage(
        name="image", title="image missing, drivers killed", seconds=60, rounds=1,
        begin=_no_image, mend=_image_again, new_driver=True,
    ),
    Outage(
        name="quota", title="quota of 0 pods, drivers killed", seconds=120, rounds=1,
        begin=_no_pods, mend=_pods_again, new_driver=True,
    ),
    Outage(
        name="api-server", title="API server away", seconds=120, rounds=1,
        begin=_stop_api_server, mend=_start_api_server,
    ),
    _server("S3", None, 1),
    _server("PostgreSQL", Sink.POSTGRES, 2),
    _server("Kafka", Sink.KAFKA, 2),
)  # fmt: skip

TOGETHER = ("postgresql", "kafka")
"""They concern different jobs, so they happen at the same time."""


def edited(cluster: Cluster, namespace: str) -> list[str]:
    """Jobs whose spec somebody has changed since they were made, or asked to restart: there must be none."""
    found = json.loads(cluster.kubectl("get", f"--namespace={namespace}", "streamingjobs", "--output=json"))["items"]
    return [
        one["metadata"]["name"]
        for one in found
        if one["metadata"]["generation"] != 1 or "epochal.dev/restart" in one["metadata"].get("annotations", {})
    ]
