"""A real API server with a healthy operator and job on it, as objects: nothing runs. Tests break one thing."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import kubernetes

from cluster.control_plane import ControlPlane
from epochal.cli.cluster.client import ClusterError, JsonObject, KubeContext, MissingObjectError, path
from epochal.cli.doctor.cluster_checks import DRIVER_RIGHTS, RIGHTS
from epochal.control.labels import PLURAL
from epochal.control.schema import load_crd
from epochal.version import __version__

SYSTEM = "epochal-system"
OPERATOR_LABELS = {"app.kubernetes.io/name": "epochal-operator", "app.kubernetes.io/version": __version__}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def stamp(ago: float = 0.0) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago))


class World:
    def __init__(self, plane: ControlPlane) -> None:
        self.kubeconfig: Path = plane.kubeconfig
        client = kubernetes.config.new_client_from_config(str(plane.kubeconfig))  # type: ignore[no-untyped-call]
        self.cluster = KubeContext(client, "shop", "")
        self._namespaces: set[str] = set()

    def put(self, where: str, body: Mapping[str, Any]) -> JsonObject:
        """Create it, or make it be so; with its status."""
        name = body["metadata"]["name"]
        with suppress(ClusterError):
            self.cluster.json("DELETE", f"{where}/{name}", {"gracePeriodSeconds": "0"})
        made = self.cluster.json("POST", where, body=body)
        if "status" in body:
            status = {"status": body["status"]}
            made = self.cluster.json(
                "PATCH", f"{where}/{name}/status", body=status, content="application/merge-patch+json"
            )
        return made

    def drop(self, where: str) -> None:
        with suppress(ClusterError):
            self.cluster.json("DELETE", where, {"gracePeriodSeconds": "0"})

    def namespace(self, name: str) -> None:
        if name not in self._namespaces:
            with suppress(ClusterError):
                self.cluster.create("namespaces", None, {"metadata": {"name": name}})
            self._namespaces.add(name)

    def crd(self, change: Any = None) -> None:
        crd = load_crd() if change is None else change(load_crd())
        name = crd["metadata"]["name"]
        try:
            there = self.cluster.json("GET", f"{CRDS}/{name}")["metadata"]["resourceVersion"]
        except ClusterError:
            self.cluster.json("POST", CRDS, body=crd)
        else:
            versioned = {**crd, "metadata": {**crd["metadata"], "resourceVersion": there}}
            self.cluster.json("PUT", f"{CRDS}/{name}", body=versioned)
        for _ in range(200):
            with suppress(ClusterError):
                self.cluster.list(PLURAL, None)
                return
            time.sleep(0.05)
        raise AssertionError("the CRD is not served")

    def drop_crd(self) -> None:
        """And wait until it is gone: its objects go first."""
        where = f"{CRDS}/streamingjobs.epochal.dev"
        self.drop(where)
        for _ in range(400):
            try:
                self.cluster.json("GET", where)
            except MissingObjectError:
                return
            time.sleep(0.05)
        raise AssertionError("the CRD does not go")

    # --- the healthy world --------------------------------------------------------------------------------------------

    def heal(self) -> None:
        for name in (SYSTEM, "shop"):
            self.namespace(name)
        self.crd()
        for pod in self.cluster.list("pods", None):
            self.drop(path("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))
        for quota in self.cluster.list("resourcequotas", "shop"):
            self.drop(path("resourcequotas", "shop", quota["metadata"]["name"]))
        for one in self.cluster.list("deployments", None):
            self.drop(path("deployments", one["metadata"]["namespace"], one["metadata"]["name"]))
        self.operator()
        self.lease()
        self.rules()
        self.put(path("serviceaccounts", "shop"), {"metadata": {"name": "epochal-driver"}})
        self.secret()
        self.job()

    def operator(self, *arguments: str, name: str = "epochal", ready: int = 1, **spec: Any) -> None:
        arguments = arguments or ("--own-namespace=epochal-system", "--lease=epochal")
        container = {"name": "operator", "image": f"epochal-operator:{__version__}", "args": list(arguments)}
        labels = {**OPERATOR_LABELS, **spec.pop("labels", {})}
        self.put(
            path("deployments", SYSTEM),
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {**OPERATOR_LABELS, "app": name}},
                        "spec": {"serviceAccountName": "epochal", "containers": [container]},
                    },
                    **spec,
                },
                "status": {"replicas": 1, "readyReplicas": ready, "updatedReplicas": 1},
            },
        )

    def lease(self, ago: float = 1.0, holder: str = "epochal-1") -> None:
        renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - ago))
        spec = {"holderIdentity": holder, "renewTime": renewed} if holder else {}
        self.put(path("leases", SYSTEM), {"metadata": {"name": "epochal"}, "spec": spec})

    def rules(self, *, operator: bool = True, driver: bool = True) -> None:
        for name, who, where, rules, wanted in (
            ("epochal", "epochal", SYSTEM, RIGHTS, operator),
            ("epochal-driver", "epochal-driver", "shop", DRIVER_RIGHTS, driver),
        ):
            role = [{"apiGroups": [g], "resources": [r], "verbs": verbs.split()} for g, r, verbs in rules]
            self.put(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": role if wanted else []})
            self.put(
                f"{RBAC}/clusterrolebindings",
                {
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": who, "namespace": where}],
                },
            )

    def secret(self, **data: str) -> None:
        data = data or {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "very-secret"}
        self.put(path("secrets", "shop"), {"metadata": {"name": "keys"}, "stringData": data})

    def job(
        self, status: Mapping[str, Any] | None = None, *, finalizers: tuple[str, ...] = (), **spec: Any
    ) -> JsonObject:
        """A job that runs; ``status`` is laid over its status, ``spec`` over its spec."""
        self.put(path(PLURAL, "shop"), job_manifest(finalizers=finalizers, **spec))
        found = {**running(), **(status or {})}
        where = f"{path(PLURAL, 'shop', 'clicks')}/status"
        content = "application/merge-patch+json"
        return self.cluster.json("PATCH", where, body={"status": found}, content=content)

    def pod(
        self, name: str = "clicks-driver-3", role: str = "driver", *, env: list[JsonObject] | None = None, **status: Any
    ) -> None:
        labels = {"epochal.dev/job": "clicks", "epochal.dev/role": role, "epochal.dev/generation": "3"}
        container = {"name": role, "image": "registry.example/clicks:1", "env": env or []}
        spec = {"containers": [container], "restartPolicy": "Never"}
        self.put(
            path("pods", "shop"),
            {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Pending", **status}},
        )


def job_manifest(finalizers: tuple[str, ...] = (), **spec: Any) -> JsonObject:
    storage = {"uri": "s3://bucket/jobs", "credentialsSecret": {"name": "keys"}}
    return {
        "apiVersion": "epochal.dev/v1alpha1",
        "kind": "StreamingJob",
        "metadata": {"name": "clicks", "namespace": "shop", "finalizers": list(finalizers)},
        "spec": {
            "image": "registry.example/clicks:1",
            "pipeline": {"module": "clicks"},
            "checkpoint": {"interval": "10s", "storage": storage},
            **spec,
        },
    }


def running(**more: Any) -> JsonObject:
    last = {"epoch": 7, "generation": 3, "state": "Ready", "finished": stamp(5), "duration": "1.2s", "bytes": 4096}
    failed = {
        "epoch": 6,
        "generation": 3,
        "state": "Failed",
        "finished": stamp(20),
        "duration": "3.0s",
        "message": "full",
    }
    return {
        "observedGeneration": 1,
        "phase": "Running",
        "message": "",
        "generation": 3,
        "epoch": 7,
        "minEpoch": 4,
        "executors": 1,
        "lag": "2.5s",
        "rowsPerSecond": 1200,
        "graph": [{"from": "clicks", "to": "counts"}, {"from": "counts", "to": "out"}],
        "lastCheckpoint": last,
        "history": [last, failed],
        "restarts": {"inARow": 0, "total": 2, "message": "the driver of generation 2 was lost"},
        "lateRows": 0,
        "cleanup": {"running": False, "failures": 0},
        "conditions": conditions(),
        **more,
    }


def conditions(**changes: tuple[str, str, str]) -> list[JsonObject]:
    """``Ready=("False", "Failed", "why")``"""
    found = {
        "Ready": ("True", "Running", "generation 3 runs"),
        "CheckpointFresh": ("True", "Recent", ""),
        "Stalled": ("False", "Progressing", ""),
        **changes,
    }
    return [
        {"type": kind, "status": one[0], "reason": one[1], "message": one[2], "lastTransitionTime": stamp(300)}
        for kind, one in found.items()
    ]
