"""A node without containers: it runs the pods of a real API server as threads of this process.

A driver pod becomes a :class:`tests.support.fake_driver.FakeEngine` behind the real control server, on a loopback
address of its own, started with what the pod's ConfigMap and Secret say. A cleanup pod runs the real cleanup. What the
pod's image is called decides what becomes of it:

==================  ===================================================================================================
``epochal:test``    runs
``old:…``           runs, and does not know of TLS
``missing:…``       cannot be pulled
``too-big:…``       finds no node
==================  ===================================================================================================

The variable ``FAKE_CLEANUP`` of a job's ``env`` says ``fail`` or ``hang``; ``FAKE_NODE=lost`` lets pods never end.
"""

import base64
import itertools
import os
import secrets
import ssl
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
from pyarrow import parquet

from epochal.protocol.cleanup import NotCleaned, clean
from epochal.protocol.control import (
    IN_PLACE_VARIABLE,
    SECRETS_VARIABLE,
    SERVER_TOKEN_FILE,
    TOKEN_VARIABLE,
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverConfig,
    Refusal,
)
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import open_store
from epochal.runtime.http.control_server import ControlServer
from epochal.runtime.http.server_tls import server_context
from epochal_operator.api import Api, ApiError, GoneError, JsonObject, NotFoundError, path
from epochal_operator.kubernetes.manifests.resources import CONFIG_KEY
from epochal_operator.names import CONTROL_PORT, JOB_LABEL, ROLE_LABEL, SELECTOR, Role
from tests.support.fake_driver import FakeEngine, Script

NODE = "fake"
KILLED = 137
TERMINATED = 143


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ThreadScript(Script):
    """As a script, but what dies is a thread of this process and not the process."""

    engine: "ThreadEngine"

    def at(self, point: str, epoch: int = 0) -> None:
        here = {point, f"{point}@{epoch}"}
        if self.die in here:
            self.engine.kill(KILLED)
        if self.engine.done.is_set() or self.hang in here:
            threading.Event().wait()  # the dead do nothing more


class ThreadEngine(FakeEngine):
    def kill(self, code: int, message: str = "") -> None:
        self.last_words = message
        self.exit_code = code
        self.done.set()

    last_words = ""
    barriers: list[tuple[str, Epoch, int]]
    """Shared by all drivers of a node: job, epoch and generation of each barrier that arrived for the first time."""

    def start_checkpoint(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        known = request.barrier.epoch in self._reports
        answer = super().start_checkpoint(request)
        if not known and isinstance(answer, CheckpointReport):
            job = f"{self.config.namespace}/{self.config.job}"
            self.barriers.append((job, request.barrier.epoch, request.generation))
        return answer

    def _checkpoint(self, request: CheckpointRequest) -> None:
        try:
            super()._checkpoint(request)
        except Exception as error:
            if self._reports[request.barrier.epoch].state is CheckpointState.FAILED:
                return  # it was given up meanwhile, and finds that others have gone on
            traceback.print_exc()
            self.kill(1, f"{type(error).__name__}: {error}")

    def end(self, code: int, message: str) -> None:
        self.kill(code, message)


@dataclass
class Container:
    """A pod that runs here."""

    pod: JsonObject
    address: str = ""
    engine: ThreadEngine | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])


class FakeKubelet:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._stop = threading.Event()
        self._addresses = _addresses()
        self.containers: dict[str, Container] = {}
        self.overlaps: list[str] = []
        self.barriers: list[tuple[str, Epoch, int]] = []
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in (self._run, self._heartbeat)]
        self._lock = threading.Lock()

    def __enter__(self) -> "FakeKubelet":
        # The first table loads pandas, which takes many seconds on a busy machine: not within a checkpoint's timeout.
        parquet.write_table(pyarrow.table({"key": ["warm"], "value": [1]}), BytesIO())
        self._make_node()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for container in list(self.containers.values()):
            if container.engine is not None:
                container.engine.kill(KILLED)

    def alive(self, namespace: str) -> list[Container]:
        """The drivers that run in a namespace."""
        return [
            container
            for container in list(self.containers.values())
            if container.engine is not None
            and container.pod["metadata"]["namespace"] == namespace
            and not container.ended.is_set()
        ]

    def crash(self, namespace: str, name: str) -> None:
        [container] = [container for container in self.alive(namespace) if container.name == name]
        assert container.engine is not None
        container.engine.kill(1, "crashed")

    # --- the node -----------------------------------------------------------------------------------------------------

    def _make_node(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        try:
            self._api._send("POST", "pods", "/api/v1/nodes", body=node)
        except ApiError as error:
            if error.code != 409:
                raise

    def _heartbeat(self) -> None:
        while not self._stop.wait(5):
            condition = {
                "type": "Ready",
                "status": "True",
                "reason": "Fake",
                "message": "",
                "lastHeartbeatTime": now(),
                "lastTransitionTime": now(),
            }
            self._patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [condition]}})

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                listed = self._api.list("pods", None, selector=SELECTOR)
                for pod in listed.get("items") or []:
                    self._see(pod)
                version = listed["metadata"]["resourceVersion"]
                for event in self._api.watch("pods", None, selector=SELECTOR, version=version, seconds=60):
                    if self._stop.is_set():
                        return
                    if event["type"] == "DELETED":
                        self._gone(event["object"])
                    elif event["type"] != "BOOKMARK":
                        self._see(event["object"])
            except (GoneError, ApiError):
                self._stop.wait(0.2)

    def _see(self, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            known = self.containers.get(uid)
            if known is None:
                if pod["status"].get("phase") != "Pending" or "deletionTimestamp" in pod["metadata"]:
                    return
                known = self.containers[uid] = Container(pod)
                threading.Thread(target=self._start, args=(known,), daemon=True).start()
                return
        if "deletionTimestamp" in pod["metadata"] and _variable(pod, "FAKE_NODE") != "lost":
            threading.Thread(target=self._terminate, args=(known,), daemon=True).start()

    def _gone(self, pod: JsonObject) -> None:
        container = self.containers.get(pod["metadata"]["uid"])
        if container is not None and container.engine is not None:
            container.engine.kill(KILLED)

    def _terminate(self, container: Container) -> None:
        """As a kubelet does: the container is asked to end, then the pod is deleted for good."""
        if container.engine is not None:
            container.engine.kill(TERMINATED, "ended by SIGTERM")
            container.ended.wait(5)
        metadata = container.pod["metadata"]
        self._api.delete("pods", metadata["namespace"], metadata["name"], grace=0, uid=metadata["uid"])

    def _start(self, container: Container) -> None:
        image = container.pod["spec"]["containers"][0]["image"]
        if image.startswith("too-big"):
            message = "0/1 nodes are available: 1 Insufficient memory"
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            self._set(container, {"phase": "Pending", "conditions": [condition]})
            return
        self._wait_for_node(container)
        self._bind(container)
        if image.startswith("missing"):
            self._waiting(container, "ImagePullBackOff", f'Back-off pulling image "{image}"')
            return
        role = container.pod["metadata"]["labels"].get(ROLE_LABEL)
        try:
            if role == Role.DRIVER:
                self._run_driver(container)
            elif role == Role.CLEANUP:
                self._run_cleanup(container)
            else:
                self._set(container, {"phase": "Running"})
        except NotFoundError as error:
            # Looked at again, as a kubelet does.
            self._waiting(container, "CreateContainerConfigError", str(error))
            if not self._stop.wait(0.5):
                self._start(container)

    def _wait_for_node(self, container: Container) -> None:
        """As the scheduler does while the node is cordoned."""
        told = False
        while self._api.get("nodes", None, NODE)["spec"].get("unschedulable") and not self._stop.wait(0.2):
            message = "0/1 nodes are available: 1 node(s) were unschedulable"
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            if not told:
                self._set(container, {"phase": "Pending", "conditions": [condition]})
            told = True

    def _bind(self, container: Container) -> None:
        metadata = container.pod["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        try:
            where = path("pods", metadata["namespace"], metadata["name"], "binding")
            self._api._send("POST", "pods", where, body=body)
        except ApiError:
            return  # bound already, or gone

    # --- drivers ------------------------------------------------------------------------------------------------------

    def _run_driver(self, container: Container) -> None:
        config = self._config(container)
        token, tls = self._control_secrets(container)
        script = ThreadScript.of(config)
        if script.exit >= 0:
            self._ended(container, script.exit, "told to exit")
            return
        options = config.storage
        assert options.endpoint is None, "the fake node knows local stores only"
        engine = ThreadEngine(config, open_store(config.storage.uri), script)
        engine.barriers = self.barriers
        engine.followed = bool(_variable(container.pod, IN_PLACE_VARIABLE))
        assert isinstance(script, ThreadScript)
        self._note_overlap(container)
        script.engine = container.engine = engine
        with self._lock:
            container.address = next(self._addresses)
        with ControlServer(engine, token=token, tls=tls, host=container.address, port=CONTROL_PORT):
            self._running(container)
            threading.Thread(target=_begin, args=(engine,), daemon=True).start()
            engine.done.wait()
        container.ended.set()
        self._ended(container, engine.exit_code, engine.last_words)

    def _note_overlap(self, container: Container) -> None:
        """Two drivers of one job at the same time are what the operator must never bring about."""
        job = container.pod["metadata"]["labels"][JOB_LABEL]
        for other in self.alive(container.pod["metadata"]["namespace"]):
            if other.pod["metadata"]["labels"][JOB_LABEL] == job:
                self.overlaps.append(f"{other.pod['metadata']['namespace']}: {other.name} and {container.name}")

    def _config(self, container: Container) -> DriverConfig:
        namespace = container.pod["metadata"]["namespace"]
        volumes = {volume["name"]: volume for volume in container.pod["spec"]["volumes"]}
        name = volumes["epochal-driver"]["configMap"]["name"]
        text = self._api.get("configmaps", namespace, name)["data"][CONFIG_KEY]
        return msgspec.json.decode(text, type=DriverConfig)

    def _control_secrets(self, container: Container) -> tuple[str, ssl.SSLContext | None]:
        """As a driver finds them in its variables and files; an old one does not know of the files."""
        spec, namespace = container.pod["spec"], container.pod["metadata"]["namespace"]
        env = {item["name"]: item for item in spec["containers"][0]["env"]}
        named = env[TOKEN_VARIABLE]["valueFrom"]["secretKeyRef"]
        token = self._secret(namespace, named["name"])[named["key"]].decode()
        if SECRETS_VARIABLE not in env or spec["containers"][0]["image"].startswith("old"):
            return token, None
        [volume] = [volume["secret"] for volume in spec["volumes"] if volume["name"] == "epochal-secrets"]
        data = self._secret(namespace, volume["secretName"])
        with tempfile.TemporaryDirectory() as directory:
            for item in volume["items"]:
                Path(directory, item["path"]).write_bytes(data[item["key"]])
            return Path(directory, SERVER_TOKEN_FILE).read_text(), server_context(Path(directory))

    def _secret(self, namespace: str, name: str) -> dict[str, bytes]:
        data = self._api.get("secrets", namespace, name)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    # --- cleanups -----------------------------------------------------------------------------------------------------

    def _run_cleanup(self, container: Container) -> None:
        command = container.pod["spec"]["containers"][0]["command"]
        assert command[:4] == ["python", "-m", "epochal.cli", "cleanup"], command
        given = dict(option.removeprefix("--").split("=", 1) for option in command[5:])
        self._running(container)
        match _variable(container.pod, "FAKE_CLEANUP"):
            case "hang":
                return
            case "fail":
                self._ended(container, 1, "told to fail")
                return
            case _:
                paths = JobPaths(given["namespace"], given["job"])
                done = clean(open_store(command[4]), paths, Epoch(int(given["min-epoch"])))
                refused = isinstance(done, NotCleaned)
                self._ended(container, 1 if refused else 0, done.message if isinstance(done, NotCleaned) else "")

    # --- what is told of them -----------------------------------------------------------------------------------------

    def _running(self, container: Container) -> None:
        status = {
            "phase": "Running",
            "startTime": now(),
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [_container(container, {"running": {"startedAt": now()}}, ready=True)],
        }
        if container.address:
            status |= {"podIP": container.address, "podIPs": [{"ip": container.address}]}
        self._set(container, status)

    def _waiting(self, container: Container, reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        self._set(container, {"phase": "Pending", "containerStatuses": [_container(container, state)]})

    def _ended(self, container: Container, code: int, message: str) -> None:
        terminated = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "message": message,
            "startedAt": now(),
            "finishedAt": now(),
        }
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [_container(container, {"terminated": terminated})],
        }
        self._set(container, status)
        container.ended.set()

    def _set(self, container: Container, status: JsonObject) -> None:
        metadata = container.pod["metadata"]
        self._patch(path("pods", metadata["namespace"], metadata["name"], "status"), {"status": status})

    def _patch(self, where: str, body: JsonObject) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        for _ in range(20):
            try:
                answer = self._api._request(
                    "PATCH", where, body=msgspec.json.encode(body), headers=headers, timeout=(5, 5)
                )
                answer.response.drain_conn()
                if answer.status < 500:
                    return
            except ApiError:
                pass
            if self._stop.wait(0.2):
                return


def _begin(engine: ThreadEngine) -> None:
    try:
        engine.begin()
    except Exception as error:
        engine.kill(1, f"{type(error).__name__}: {error}")


def _variable(pod: JsonObject, name: str) -> str:
    env: list[dict[str, Any]] = pod["spec"]["containers"][0].get("env") or []
    return next((str(item.get("value", "")) for item in env if item["name"] == name), "")


def _container(container: Container, state: JsonObject, *, ready: bool = False) -> JsonObject:
    spec = container.pod["spec"]["containers"][0]
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }


def _addresses() -> Iterator[str]:
    """Loopback addresses that no other process uses: its id tells it apart from most, chance from the rest."""
    first = 2 + (os.getpid() + secrets.randbelow(50)) % 250
    for third, last in itertools.product(range(256), range(1, 255)):
        yield f"127.{first}.{third}.{last}"
    raise AssertionError("no address is left")


def wait_until(what: Any, *, seconds: float = 90.0, every: float = 0.05) -> Any:
    """Ask until the answer is true; what it was last is in the error."""
    end = time.monotonic() + seconds
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s; last: {answer!r}")
        time.sleep(every)
