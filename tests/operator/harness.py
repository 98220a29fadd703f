"""A real API server with the CRD, a fake node, and the operator as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kubernetes
from kubernetes.client import ApiClient, Configuration

from epochal.control.job import DEFAULT_SERVICE_ACCOUNT
from epochal.control.schema import load_crd
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import Store, open_store
from epochal_operator.api import Api, ApiError, JsonObject, NotFoundError, path
from epochal_operator.controller import Controller
from epochal_operator.names import PLURAL
from epochal_operator.reporting.metrics import OperatorMetrics
from tests.operator.fake_kubelet import wait_until
from tests.support.fake_driver import stretches

REPOSITORY = Path(__file__).resolve().parents[2]
TICK = 0.1


def load_api(kubeconfig: Path) -> Api:
    configuration = Configuration()
    kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
        str(kubeconfig), client_configuration=configuration
    )
    configuration.connection_pool_maxsize = 64
    return Api(ApiClient(configuration))


def install_crd(api: Api) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    try:
        api._send("POST", PLURAL, crds, body=load_crd())
    except ApiError as error:
        if error.code != 409:
            raise

    def served() -> bool:
        try:
            api.list(PLURAL, None)
        except NotFoundError:
            return False
        return True

    wait_until(served)


def patch(api: Api, where: str, body: JsonObject, *, kind: str = "merge-patch") -> None:
    headers = {"Content-Type": f"application/{kind}+json"}
    answer = api._request("PATCH", where, body=json.dumps(body).encode(), headers=headers, timeout=(5, 10))
    assert answer.status < 300, answer.response.data


@dataclass
class Bench:
    """A namespace of its own, with a store of its own."""

    api: Api
    directory: Path
    namespace: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.api._send("POST", "pods", "/api/v1/namespaces", body=body)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT_SERVICE_ACCOUNT}}
        self.api.create("serviceaccounts", self.namespace, account)

    @property
    def store(self) -> Store:
        return open_store(f"file://{self.directory}/store")

    @property
    def output(self) -> Path:
        return self.directory / "output"

    def manifest(self, name: str = "job", **changes: Any) -> JsonObject:
        """A job that often makes a checkpoint; ``changes`` are fields of its spec, ``script`` is the driver's."""
        script = {"output": str(self.output)} | changes.pop("script", {})
        checkpoint = {
            "interval": "300ms",
            "timeout": "30s",
            "retention": {"keep": 50, "every": 50},
            "storage": {"uri": f"file://{self.directory}/store"},
        } | changes.pop("checkpoint", {})
        spec = {
            "image": "epochal:test",
            "pipeline": {"module": "fake", "parameters": {key: str(value) for key, value in script.items()}},
            "checkpoint": checkpoint,
            "restartPolicy": {"backoff": "100ms", "maxBackoff": "500ms", "resetAfter": "10s", "maxRestarts": 5},
        } | changes
        return {
            "apiVersion": "epochal.dev/v1alpha1",
            "kind": "StreamingJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }

    def apply(self, name: str = "job", **changes: Any) -> "JobHandle":
        self.api.create(PLURAL, self.namespace, self.manifest(name, **changes))
        return JobHandle(self, name)

    def objects(self, kind: str) -> list[JsonObject]:
        return list(self.api.list(kind, self.namespace).get("items") or [])

    def delete(self, kind: str, name: str, *, grace: int | None = None) -> None:
        """As a person would: whatever has that name now."""
        with suppress(NotFoundError):
            found = self.api.get(kind, self.namespace, name)
            self.api.delete(kind, self.namespace, name, uid=found["metadata"]["uid"], grace=grace)

    def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.objects(kind)]

    def events(self) -> list[tuple[str, str]]:
        answer = self.api._json("GET", "pods", f"/api/v1/namespaces/{self.namespace}/events")
        return [(item["reason"], item["message"]) for item in answer["items"]]


@dataclass
class JobHandle:
    bench: Bench
    name: str

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self.bench.namespace, self.name)

    def get(self) -> JsonObject:
        return self.bench.api.get(PLURAL, self.bench.namespace, self.name)

    @property
    def status(self) -> JsonObject:
        return self.get().get("status") or {}

    def condition(self, kind: str) -> JsonObject:
        found = [condition for condition in self.status.get("conditions") or [] if condition["type"] == kind]
        return found[0] if found else {"status": "Missing", "reason": "", "message": ""}

    def patch(self, **spec: Any) -> None:
        patch(self.bench.api, path(PLURAL, self.bench.namespace, self.name), {"spec": spec})

    def annotate(self, name: str, value: str) -> None:
        body = {"metadata": {"annotations": {name: value}}}
        patch(self.bench.api, path(PLURAL, self.bench.namespace, self.name), body)

    def delete(self) -> None:
        self.bench.delete(PLURAL, self.name)

    def exists(self) -> bool:
        try:
            self.get()
        except NotFoundError:
            return False
        return True

    def wait(self, what: Callable[[JsonObject], Any], *, seconds: float = 90.0) -> JsonObject:
        """Until its status is as asked for."""
        status: JsonObject = {}

        def holds() -> bool:
            nonlocal status
            status = self.status
            return bool(status) and bool(what(status))

        try:
            wait_until(holds, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(status, indent=1)[:4000]}\n{self.bench.events()}") from None
        return status

    def wait_condition(self, kind: str, status: str, reason: str | None = None, *, seconds: float = 90.0) -> JsonObject:
        def holds() -> JsonObject | None:
            found = self.condition(kind)
            return found if found["status"] == status and reason in (None, found["reason"]) else None

        found: JsonObject = wait_until(holds, seconds=seconds)
        return found

    def wait_phase(self, *phases: str, seconds: float = 90.0) -> JsonObject:
        return self.wait(lambda status: status.get("phase") in phases, seconds=seconds)

    def wait_epoch(self, epoch: int, *, seconds: float = 90.0) -> JsonObject:
        return self.wait(lambda status: status.get("epoch", 0) >= epoch, seconds=seconds)

    def wait_generation(self, generation: int, *, seconds: float = 90.0) -> JsonObject:
        return self.wait(lambda status: status.get("generation", 0) >= generation, seconds=seconds)

    def wait_gone(self, *, seconds: float = 90.0) -> None:
        wait_until(lambda: not self.exists(), seconds=seconds)

    def assert_exactly_once(self) -> None:
        """What the sink has committed is one unbroken stretch from 0."""
        end = 0
        for begin, until in stretches(self.bench.output):
            assert begin == end, f"lost or doubled at {end}: {stretches(self.bench.output)}"
            end = until
        assert end > 0


@dataclass
class Rounds:
    """Of one controller in this process, whose clock can be set."""

    bench: Bench
    controller: Controller
    metrics: OperatorMetrics
    ahead: float = 0.0
    """How far the clock is ahead of the real one."""

    def until(self, job: JobHandle, what: Callable[[JsonObject], object], *, seconds: float = 60.0) -> list[str]:
        """Rounds until the status is as asked for; the reasons of all events."""
        reasons: list[str] = []
        end = time.monotonic() + seconds
        while True:
            body = job.get()
            if what(body.get("status") or {}):
                return reasons
            assert time.monotonic() < end, body.get("status")
            reasons += [event.reason for event in self.controller.tick(body)]
            time.sleep(0.05)

    def delete(self, job: JobHandle, *, seconds: float = 60.0) -> list[str]:
        reasons: list[str] = []
        body = job.get()
        end = time.monotonic() + seconds
        while True:
            gone, events = self.controller.delete_step(body)
            reasons += [event.reason for event in events]
            if gone:
                return reasons
            assert time.monotonic() < end
            time.sleep(0.05)


class OperatorProcess:
    """``python -m epochal_operator`` (or a module around it) against the API server of the tests."""

    def __init__(
        self, kubeconfig: Path, log: Path, *options: str, module: str = "epochal_operator", **env: str
    ) -> None:
        self.log = log
        self._command = [
            *(sys.executable, "-m", module, f"--tick={TICK}", "--driver-access=direct", "--health-port=0"),
            *("--metrics-port=0", "--threads=32", "--driver-timeout=1", "--heartbeat=0.3", "--local-stores", *options),
        ]
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), **env}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **env: str) -> "OperatorProcess":
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env={**self._env, **env}, stdout=log, stderr=log, cwd=REPOSITORY
            )
        return self

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def __enter__(self) -> "OperatorProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.running():
            self.stop()
