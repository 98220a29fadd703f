"""A StreamingJob on the cluster of `make cluster`, as a person with kubectl and an S3 client has it before them."""

import copy
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet
import yaml
from kubernetes.client import CustomObjectsApi
from kubernetes.config import new_client_from_config
from obstore.store import S3Store

from cluster.images import PROJECT, REPOSITORY
from cluster.kubectl import kubectl
from cluster.layout import layout
from cluster.s3 import S3Access, read_access
from epochal.control.schema import API_VERSION, GROUP, KIND, VERSION
from epochal.protocol.documents import Manifest, decode
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import JobPaths
from epochal_operator.names import JOB_LABEL, PLURAL, ROLE_LABEL, Role
from examples.cluster import expected

HERE = Path(__file__).parent
CHART = REPOSITORY / "charts" / "epochal"
HELM = Path(sys.executable).parent / "helm"
RELEASE, RELEASE_NAMESPACE = "epochal", "epochal-system"
OPERATOR = f"deployment/{RELEASE}"
PATIENCE = 400.0
"""Seconds that anything may take on a machine that is busy with other things."""


class TooLateError(Exception):
    """What was waited for did not come."""


def until(what: str, found: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """Wait until ``found`` returns something true, and return that."""
    deadline = time.monotonic() + timeout
    while not (result := found()):
        if time.monotonic() > deadline:
            raise TooLateError(f"waited {timeout:.0f} s for {what}")
        time.sleep(0.5)
    return result


class Cluster:
    """The API server and the object store."""

    def __init__(self) -> None:
        self.kubeconfig = layout().kubeconfig
        self.s3: S3Access = read_access(layout())
        # What is asked for every second is asked for without a new process each time.
        self.jobs = CustomObjectsApi(new_client_from_config(str(self.kubeconfig)))  # type: ignore[no-untyped-call]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return kubectl(self.kubeconfig, *arguments, stdin=stdin)

    def get(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "--output=json", *arguments))
        return found

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def helm(self, *arguments: str) -> str:
        command = [str(HELM), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout

    def install_operator(self, *, ha: bool = False) -> None:
        """By the chart, with the images that `make cluster` has built; a second time changes nothing. ``ha``: two of
        them, of which one waits."""
        repository, _, tag = PROJECT["operator"].rpartition(":")
        values = {
            "image.repository": repository,
            "image.tag": tag,
            "operator.defaultImage": PROJECT["spark"],
            "operator.logFormat": "plain",
            "workload.create": "false",
            "ha.enabled": str(ha).lower(),
        }
        self.helm(
            "upgrade", "--install", RELEASE, str(CHART), f"--namespace={RELEASE_NAMESPACE}", "--create-namespace",
            "--wait", f"--timeout={PATIENCE:.0f}s", *(f"--set={key}={value}" for key, value in values.items()),
        )  # fmt: skip

    def operator(self, *arguments: str) -> str:
        """kubectl about the operator's Deployment: `operator("scale", "--replicas=0")`."""
        return self.kubectl(arguments[0], f"--namespace={RELEASE_NAMESPACE}", OPERATOR, *arguments[1:])

    def make_namespace(self, namespace: str) -> None:
        """A namespace that jobs can run in: the chart's service account for drivers, and the keys of the store."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        account = self.helm(
            "template",
            RELEASE,
            str(CHART),
            f"--namespace={RELEASE_NAMESPACE}",
            f"--set=workload.namespaces={{{namespace}}}",
            "--show-only=templates/rbac-workload.yaml",
        )
        self.kubectl("apply", "--filename=-", stdin=account)
        keys = {"AWS_ACCESS_KEY_ID": self.s3.access_key, "AWS_SECRET_ACCESS_KEY": self.s3.secret_key}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3", "namespace": namespace}}
        self.apply({**secret, "stringData": keys})

    def store(self, prefix: str) -> S3Store:
        return S3Store(
            self.s3.bucket,
            prefix=prefix,
            endpoint=self.s3.endpoint,
            region=self.s3.region,
            access_key_id=self.s3.access_key,
            secret_access_key=self.s3.secret_key,
            client_options={"allow_http": True, "timeout": "20s"},
        )


def _ended(pod: dict[str, Any]) -> bool:
    """Whether nothing runs in it any more. A pod that is being deleted stays ``Running`` for a moment after that."""
    containers = pod["status"].get("containerStatuses", [])
    return bool(containers) and all("terminated" in container["state"] for container in containers)


@dataclass
class LiveJob:
    """One job in a namespace; its store and its output are below a prefix named after both."""

    cluster: Cluster
    namespace: str
    name: str = "orders"
    program: Path = HERE / "pipeline.py"
    spec: dict[str, Any] = field(default_factory=lambda: yaml.safe_load((HERE / "job.yaml").read_text())["spec"])

    def __post_init__(self) -> None:
        access, spec = self.cluster.s3, copy.deepcopy(self.spec)
        spec["pipeline"]["configMap"]["name"] = self.name
        spec["pipeline"]["parameters"]["output"] = f"s3://{access.bucket}/{self.prefix}/output"
        storage = spec["checkpoint"]["storage"]
        storage.update(uri=f"s3://{access.bucket}/{self.prefix}/store", endpoint=access.endpoint, region=access.region)
        self.spec = spec

    @property
    def prefix(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self.namespace, self.name)

    # --- what a person does ---

    def apply(self) -> None:
        self._apply_program()
        metadata = {"name": self.name, "namespace": self.namespace}
        self.cluster.apply({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": self.spec})

    def _apply_program(self) -> None:
        metadata = {"name": self.name, "namespace": self.namespace}
        text = {"pipeline.py": self.program.read_text()}
        self.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": text})

    def patch(self, spec: dict[str, Any]) -> None:
        self.kubectl("patch", "streamingjob", self.name, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def suspend(self) -> None:
        self.patch({"state": "Suspended"})

    def resume(self) -> None:
        self.patch({"state": "Running"})

    def delete(self) -> None:
        self.kubectl("delete", "streamingjob", self.name, f"--timeout={PATIENCE:.0f}s")

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(arguments[0], f"--namespace={self.namespace}", *arguments[1:])

    # --- what a person sees ---

    @property
    def status(self) -> dict[str, Any]:
        found: Any = self.cluster.jobs.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, self.name)
        return dict(found.get("status") or {})

    @property
    def epoch(self) -> int:
        return int(self.status.get("epoch", 0))

    @property
    def generation(self) -> int:
        return int(self.status.get("generation", 0))

    def condition(self, kind: str) -> dict[str, Any]:
        return next((one for one in self.status.get("conditions", []) if one["type"] == kind), {"status": "Absent"})

    def events(self, reason: str) -> list[str]:
        """The messages of the job's events with this reason."""
        selector = f"--field-selector=involvedObject.kind=StreamingJob,involvedObject.name={self.name},reason={reason}"
        found = self.cluster.get(f"--namespace={self.namespace}", "events", selector)
        return [str(event["message"]) for event in found["items"]]

    def pods(self, role: Role) -> list[dict[str, Any]]:
        selector = f"--selector={JOB_LABEL}={self.name},{ROLE_LABEL}={role}"
        found = self.cluster.get(f"--namespace={self.namespace}", "pods", selector)
        return [pod for pod in found["items"] if pod["status"]["phase"] in ("Pending", "Running") and not _ended(pod)]

    @property
    def driver(self) -> str:
        """Its pod has the generation with which it was started."""
        status = self.status
        return f"{self.name}-driver-{(status.get('record') or {}).get('process') or status.get('generation')}"

    # --- waiting ---

    def wait_ready(self, *, generation: int = 1, timeout: float = PATIENCE) -> None:
        """Until a driver of this generation or a later one runs."""

        def ready() -> bool:
            status = self.status
            return status.get("generation", 0) >= generation and status.get("phase") == "Running"

        until(f"{self.prefix} to be Ready", ready, timeout)

    def wait_phase(self, phase: str, timeout: float = PATIENCE) -> None:
        until(f"{self.prefix} to be {phase}", lambda: self.status.get("phase") == phase, timeout)

    def wait_epochs(self, more: int, timeout: float = PATIENCE) -> int:
        """Until so many more epochs than now have completed; the newest is returned."""
        wanted = self.epoch + more
        until(f"{self.prefix} to complete epoch {wanted}", lambda: self.epoch >= wanted, timeout)
        return self.epoch

    def wait_event(self, reason: str, timeout: float = PATIENCE) -> list[str]:
        found: list[str] = until(f"an event {reason} of {self.prefix}", lambda: self.events(reason), timeout)
        return found

    # --- the store ---

    def objects(self, below: str = "") -> list[str]:
        pages = self.cluster.store(self.prefix).list(below or None)
        return sorted(str(meta["path"]) for page in pages for meta in page)

    def manifest(self, epoch: int) -> Manifest:
        name = self.paths.manifest(Epoch(epoch))
        return decode(name, bytes(self.cluster.store(f"{self.prefix}/store").get(name).bytes()), Manifest)

    def output(self, until_epoch: int, *, below: str = "output", without: int | None = None) -> list[dict[str, Any]]:
        """All rows that the epochs up to this one have brought out; those of the epoch ``without`` left out."""
        store, rows = self.cluster.store(self.prefix), []
        for name in (one for one in self.objects(below) if one.endswith(".parquet")):
            epoch = int(name.split("epoch-")[1].split("-")[0])
            if epoch <= until_epoch and epoch != without:
                rows += pyarrow.parquet.read_table(io.BytesIO(bytes(store.get(name).bytes()))).to_pylist()
        return rows

    def check_output(self, *, without: int | None = None) -> int:
        """Compare the output with the computed one, window by window, and return how many windows are out.

        How many there must be is what the newest epoch's manifest says: all windows that end by its watermark.
        """
        epoch = self.epoch
        watermark = self.manifest(epoch).operators["revenue"].watermark
        windows = max(0, (watermark or 0) // (expected.WINDOW_SECONDS * 1_000_000))
        expected.check(self.output(epoch, without=without), windows=windows)
        return windows
