"""Hundreds of drivers in one process, for measuring the operator: they answer as drivers do, and do nothing else.

Each driver pod that appears gets a loopback address of its own, and an answer there for all that the operator asks,
over TLS as the pod's Secret says.
"""

import asyncio
import base64
import itertools
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from aiohttp import web

from epochal.protocol.control import (
    CERTIFICATE_FILE,
    PRIVATE_KEY_FILE,
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverPhase,
    DriverStatus,
)
from epochal.protocol.epochs import NO_EPOCH, Generation
from epochal.runtime.http.server_tls import server_context
from epochal_operator.api import Api, ApiError, JsonObject, path
from epochal_operator.kubernetes.pod_state import is_driver, keys_of, label
from epochal_operator.names import CONTROL_PORT, GENERATION_LABEL, JOB_LABEL, SELECTOR

CHECKPOINT_SECONDS = 0.5
HANG_SECONDS = 30.0
"""Longer than anybody waits for an answer."""


def micros() -> int:
    return time.time_ns() // 1000


class SimulatedDriver:
    def __init__(self, pod: JsonObject) -> None:
        self.started = micros()
        self.namespace = pod["metadata"]["namespace"]
        self.job = label(pod, JOB_LABEL)
        self.generation = Generation(int(label(pod, GENERATION_LABEL)))
        self.reports: dict[int, CheckpointReport] = {}

    def status(self) -> DriverStatus:
        return DriverStatus(
            namespace=self.namespace,
            job=self.job,
            generation=self.generation,
            phase=DriverPhase.RUNNING,
            started=self.started,
            restored_epoch=NO_EPOCH,
            newest_number=NO_EPOCH,
        )

    def begin(self, request: CheckpointRequest) -> CheckpointReport:
        report = CheckpointReport(
            epoch=request.barrier.epoch,
            generation=request.generation,
            then_stop=request.barrier.then_stop,
            state=CheckpointState.IN_PROGRESS,
            started=micros(),
        )
        self.reports.setdefault(request.barrier.epoch, report)
        return self.reports[request.barrier.epoch]

    def report(self, epoch: int) -> CheckpointReport | None:
        report = self.reports.get(epoch)
        if report and report.finished is None and micros() - report.started > CHECKPOINT_SECONDS * 1_000_000:
            report = msgspec.structs.replace(report, state=CheckpointState.READY, finished=micros(), bytes=1000)
            self.reports = {epoch: report}
        return report


class SimulatedNode:
    """Runs every driver pod of the cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._drivers: dict[str, SimulatedDriver] = {}
        self._addresses = _addresses()
        self.hanging: set[str] = set()
        """Jobs whose drivers take requests and do not answer."""
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._threads = [
            threading.Thread(target=self._serve, daemon=True),
            threading.Thread(target=self._watch, daemon=True),
        ]

    def start(self) -> "SimulatedNode":
        self._threads[0].start()
        asyncio.run_coroutine_threadsafe(self._set_up(), self._loop).result(10)
        self._threads[1].start()
        return self

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _set_up(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/status", self._get_status)
        app.router.add_post("/v1/checkpoints", self._post_checkpoint)
        app.router.add_get("/v1/checkpoints/{epoch}", self._get_checkpoint)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()

    async def _driver(self, request: web.Request) -> SimulatedDriver:
        assert request.transport is not None
        driver = self._drivers[request.transport.get_extra_info("sockname")[0]]
        if driver.job in self.hanging:
            await asyncio.sleep(HANG_SECONDS)
        return driver

    async def _get_status(self, request: web.Request) -> web.Response:
        return _json((await self._driver(request)).status())

    async def _post_checkpoint(self, request: web.Request) -> web.Response:
        wanted = msgspec.json.decode(await request.read(), type=CheckpointRequest)
        return _json((await self._driver(request)).begin(wanted), status=202)

    async def _get_checkpoint(self, request: web.Request) -> web.Response:
        report = (await self._driver(request)).report(int(request.match_info["epoch"]))
        return _json(report) if report else web.Response(status=404)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            try:
                listed = self._api.list("pods", None, selector=SELECTOR)
                for pod in listed.get("items") or []:
                    self._run(pod)
                version = listed["metadata"]["resourceVersion"]
                for event in self._api.watch("pods", None, selector=SELECTOR, version=version, seconds=600):
                    if event["type"] == "ADDED":
                        self._run(event["object"])
            except ApiError:
                time.sleep(0.5)

    def _run(self, pod: JsonObject) -> None:
        if not is_driver(pod) or pod["status"].get("podIP"):
            return
        address = next(self._addresses)
        self._drivers[address] = SimulatedDriver(pod)
        asyncio.run_coroutine_threadsafe(self._listen(address, self._certificate(pod)), self._loop).result(10)
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        metadata = pod["metadata"]
        answer = self._api._request(
            "PATCH",
            path("pods", metadata["namespace"], metadata["name"], "status"),
            body=msgspec.json.encode({"status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
            timeout=(5, 30),
        )
        answer.response.drain_conn()

    def _certificate(self, pod: JsonObject) -> ssl.SSLContext:
        data = self._api.get("secrets", pod["metadata"]["namespace"], keys_of(pod))["data"]
        with tempfile.TemporaryDirectory() as directory:
            for name in (CERTIFICATE_FILE, PRIVATE_KEY_FILE):
                Path(directory, name).write_bytes(base64.b64decode(data[name]))
            return server_context(Path(directory))

    async def _listen(self, address: str, certificate: ssl.SSLContext) -> None:
        assert self._runner is not None
        site = web.TCPSite(self._runner, address, CONTROL_PORT, reuse_address=True, ssl_context=certificate)
        await site.start()


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _addresses() -> Iterator[str]:
    """Loopback addresses that another run on this machine does not use."""
    second = 2 + os.getpid() % 250
    for third, last in itertools.product(range(256), range(1, 255)):
        yield f"127.{second}.{third}.{last}"
