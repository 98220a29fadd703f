"""The driver's control server, asked by the real client and by clients that mean no good."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter

from epochal.control.driver_client import DriverClient, DriverError, DriverRefused, DriverUnreachable
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverPhase,
    DriverStatus,
    Refusal,
    RefusalReason,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.runtime.http.control_server import LARGEST_BODY, ControlServer

TOKEN = "s3cret"
BARRIER = CheckpointBarrier(epoch=Epoch(3), min_epoch=Epoch(1), timestamp=5, then_stop=False)
REPORT = CheckpointReport(
    epoch=Epoch(3), generation=Generation(1), then_stop=False, state=CheckpointState.IN_PROGRESS, started=7
)


@dataclass
class Engine:
    phase: DriverPhase = DriverPhase.RUNNING
    answer: CheckpointReport | Refusal = REPORT
    requests: list[CheckpointRequest] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    broken: bool = False

    def status(self) -> DriverStatus:
        if self.broken:
            raise RuntimeError("secret detail")
        return DriverStatus(namespace="n", job="j", generation=Generation(1), phase=self.phase, started=1)

    def start_checkpoint(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        self.requests.append(request)
        return self.answer

    def checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        return REPORT if epoch == 3 else None

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        self.aborted.append(epoch)
        return REPORT if epoch == 3 else None


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def server(engine: Engine) -> Iterator[ControlServer]:
    registry = CollectorRegistry()
    Counter("epochal_test", "A count", registry=registry).inc()
    with ControlServer(engine, token=TOKEN, registry=registry, longest_request=1.0) as server:
        yield server


@pytest.fixture
def client(server: ControlServer) -> DriverClient:
    return DriverClient(server.address, TOKEN)


def ask(
    server: ControlServer,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    token: str | None = TOKEN,
    content_type: str = "application/json",
) -> tuple[int, dict[str, object]]:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    headers = {"Content-Type": content_type} if body is not None else {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(method, path, body=body, headers=headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, json.loads(data) if data else {}


def test_a_barrier_reaches_the_engine(client: DriverClient, engine: Engine) -> None:
    assert client.post_barrier(Generation(1), BARRIER) == REPORT
    assert engine.requests == [CheckpointRequest(generation=Generation(1), barrier=BARRIER)]


def test_a_refusal_comes_back_with_its_reason(client: DriverClient, engine: Engine) -> None:
    engine.answer = Refusal(reason=RefusalReason.CHECKPOINT_IN_FLIGHT, message="one is in flight")
    with pytest.raises(DriverRefused, match="one is in flight") as caught:
        client.post_barrier(Generation(1), BARRIER)
    assert caught.value.refusal.reason is RefusalReason.CHECKPOINT_IN_FLIGHT


def test_reports_status_and_abort(client: DriverClient, engine: Engine) -> None:
    assert client.get_checkpoint(Epoch(3)) == REPORT
    assert client.get_checkpoint(Epoch(4)) is None
    assert client.abort(Epoch(3)) == REPORT
    assert engine.aborted == [3]
    assert client.status().phase is DriverPhase.RUNNING


def test_probes_need_no_token_and_ready_means_running(server: ControlServer, engine: Engine) -> None:
    assert ask(server, "GET", "/healthz", token=None)[0] == 200
    assert ask(server, "GET", "/readyz", token=None)[0] == 200
    engine.phase = DriverPhase.STARTING
    assert ask(server, "GET", "/readyz", token=None) == (503, {"ready": False, "phase": "Starting"})


def test_a_driver_that_no_controller_asks_for_is_not_ready(engine: Engine) -> None:
    """So no PodDisruptionBudget guards it, and a drain does not wait for a controller that is away."""
    now = 0.0
    with ControlServer(engine, token=TOKEN, clock=lambda: now) as server:
        now = 60.0
        assert ask(server, "GET", "/readyz", token=None)[0] == 200
        now = 61.0
        assert ask(server, "GET", "/readyz", token=None) == (503, {"ready": False, "phase": "Running"})
        assert ask(server, "GET", "/v1/status", token="wrong")[0] == 401
        assert ask(server, "GET", "/readyz", token=None)[0] == 503
        assert ask(server, "GET", "/v1/status")[0] == 200
        assert ask(server, "GET", "/readyz", token=None)[0] == 200


@pytest.mark.parametrize("path", ["/v1/status", "/v1/checkpoints/3", "/metrics", "/nothing"])
@pytest.mark.parametrize("token", [None, "wrong", "", "s3cret\u00e9"])
def test_without_the_token_nothing_is_told(server: ControlServer, path: str, token: str | None) -> None:
    status, answer = ask(server, "GET", path, token=token)
    assert status == 401
    assert "bearer token" in str(answer["error"])


def test_metrics(server: ControlServer) -> None:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert b"epochal_test_total 1.0" in connection.getresponse().read()
    connection.close()


GOOD = msgspec.json.encode(CheckpointRequest(generation=Generation(1), barrier=BARRIER))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[" * 60_000, "not a checkpoint request"),
        (b'{"generation": 1}', "barrier"),
        (GOOD.replace(b'"epoch":3', b'"epoch":"3"'), "epoch"),
        (GOOD.replace(b'"epoch":3', b'"epoch":0'), "epoch"),
        (GOOD.replace(b'"min_epoch":1', b'"min_epoch":9'), "min_epoch"),
        (GOOD.replace(b"3", b"\xff"), "not a checkpoint request"),
    ],
)
def test_a_wrong_body_is_refused_and_the_field_named(
    server: ControlServer, engine: Engine, body: bytes, named: str
) -> None:
    status, answer = ask(server, "POST", "/v1/checkpoints", body)
    assert status == 400
    assert named in str(answer["error"])
    assert not engine.requests


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1", 404),
        ("GET", "/v1/checkpoints/3/more", 404),
        ("GET", "/v1/checkpoints/x", 400),
        ("GET", "/v1/checkpoints/0", 400),
        ("GET", "/v1/checkpoints/99999999999", 400),
        ("GET", "/v1/checkpoints/\u0663".encode().decode("latin-1"), 400),
        ("GET", "/v1/checkpoints", 405),
        ("PUT", "/v1/checkpoints/3", 405),
        ("POST", "/healthz", 405),
        ("BREW", "/v1/status", 405),
    ],
)
def test_clear_errors(server: ControlServer, method: str, path: str, expected: int) -> None:
    parts = urlsplit(server.address)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=5) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode("latin-1"))
        answer = _read_all(connection)
    assert int(answer.split()[1]) == expected
    assert b'{"error":' in answer


def test_large_and_mistyped_bodies(server: ControlServer, engine: Engine) -> None:
    assert ask(server, "POST", "/v1/checkpoints", b" " * (LARGEST_BODY + 1))[0] == 413
    assert ask(server, "POST", "/v1/checkpoints", GOOD, content_type="text/plain")[0] == 415
    assert ask(server, "POST", "/v1/checkpoints", GOOD, content_type="application/json; charset=utf-8")[0] == 202
    assert len(engine.requests) == 1


def test_an_error_inside_tells_nothing(server: ControlServer, engine: Engine) -> None:
    engine.broken = True
    status, answer = ask(server, "GET", "/v1/status")
    assert (status, answer) == (500, {"error": "internal error: see the driver's log"})


def test_what_is_no_http_gets_json_too(server: ControlServer) -> None:
    parts = urlsplit(server.address)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=5) as connection:
        connection.sendall(b"what is this\r\n\r\n")
        assert b'{"error":' in _read_all(connection)


def test_a_client_that_drips_bytes_is_cut_off(server: ControlServer) -> None:
    """A byte each 0.1 s would keep any timeout of a single read from passing."""
    parts = urlsplit(server.address)
    begun = time.monotonic()
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=5) as connection:
        try:
            for _ in range(100):
                connection.sendall(b"G")
                time.sleep(0.1)
        except OSError:
            pass
    assert time.monotonic() - begun < 5


def test_a_body_that_never_comes_is_answered(server: ControlServer, client: DriverClient) -> None:
    parts = urlsplit(server.address)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=5) as connection:
        head = f"POST /v1/checkpoints HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Content-Length: 100\r\n\r\n{")
        assert client.status().generation == 1  # others are served meanwhile
        assert b" 408 " in _read_all(connection)


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(ValueError, match="token"):
        ControlServer(Engine(), token="")


def test_the_client_tells_unreachable_from_wrong(server: ControlServer) -> None:
    with pytest.raises(DriverError, match="401") as caught:
        DriverClient(server.address, "wrong").status()
    assert caught.value.status == 401
    server.stop()
    with pytest.raises(DriverUnreachable):
        DriverClient(server.address, TOKEN, timeout=1).status()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", b"nonsense\r\n\r\n", b"HT"]
)
def test_the_client_never_waits_for_ever(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = DriverClient(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN, timeout=0.5)

        def serve() -> None:
            connection, _ = listener.accept()
            connections.append(connection)
            connection.sendall(answer)

        connections: list[socket.socket] = []
        thread = threading.Thread(target=serve)
        thread.start()
        begun = time.monotonic()
        with pytest.raises(DriverUnreachable):
            client.status()
        assert time.monotonic() - begun < 3
        thread.join()
        for connection in connections:
            connection.close()


def _read_all(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(4096):
        data += part
    return data
