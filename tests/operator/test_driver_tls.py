"""The control channel over TLS: the real control server with the operator's keys, asked by the operator's clients and
by others."""

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store
from kubernetes.client import Configuration
from kubernetes.stream.ws_client import PortForward
from prometheus_client import CollectorRegistry, Counter

from epochal.control.driver_channel import NegotiatedDriver, SecuredDriver
from epochal.control.driver_client import DriverClient, DriverError, DriverUnreachable, DriverWithoutTls, Trust
from epochal.protocol.control import (
    SERVER_TOKEN_FILE,
    CheckpointReport,
    CheckpointRequest,
    DriverPhase,
    DriverStatus,
    Refusal,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.runtime.http.control_server import ControlServer
from epochal.runtime.http.server_tls import server_context
from epochal_operator.kubernetes import driver_forward
from epochal_operator.kubernetes.driver_forward import ForwardedDriver
from epochal_operator.kubernetes.driver_keys import BadKeysError, DriverKeys, new_keys
from epochal_operator.kubernetes.manifests.resources import keys_secret
from epochal_operator.names import CONTROL_PORT
from tests.operator.test_resources import SPEC

HOST = "revenue-driver-7.shop"
CONFIG_MAP = {"metadata": {"name": "c", "uid": "u", "labels": {"epochal.dev/generation": "7"}}}


class Engine:
    def status(self) -> DriverStatus:
        return DriverStatus(
            namespace="shop", job="revenue", generation=Generation(7), phase=DriverPhase.RUNNING, started=1
        )

    def start_checkpoint(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        raise NotImplementedError

    def checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        return None

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        return None


@dataclass
class Driver:
    """One of this release, with what the operator has given it."""

    data: dict[str, bytes]
    server: ControlServer
    address: str = field(init=False)

    def __post_init__(self) -> None:
        self.address = self.server.address.removeprefix("https://")

    @property
    def keys(self) -> DriverKeys:
        return DriverKeys.of(keys_secret(SPEC, CONFIG_MAP, "keys", self.data))

    def client(self, *, keys: DriverKeys | None = None, host: str = HOST, token: str | None = None) -> DriverClient:
        keys = keys or self.keys
        trust = Trust.of(keys.authority, host)
        return DriverClient(f"https://{self.address}", token or keys.token, timeout=2, trust=trust)

    def plain(self, token: str) -> DriverClient:
        return DriverClient(f"http://{self.address}", token, timeout=2)


def serve(directory: Path, data: dict[str, bytes]) -> ControlServer:
    for name, content in data.items():
        (directory / name).write_bytes(content)
    registry = CollectorRegistry()
    Counter("epochal_test", "A count", registry=registry).inc()
    token = (directory / SERVER_TOKEN_FILE).read_text()
    return ControlServer(Engine(), token=token, tls=server_context(directory), registry=registry, longest_request=0.5)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    data = new_keys(HOST)
    with serve(tmp_path, data) as server:
        yield Driver(data, server)


def get(address: str, path: str, token: str | None = None) -> tuple[int, str]:
    """Without TLS."""
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_a_driver_is_asked_over_tls(driver: Driver) -> None:
    assert driver.client().status().generation == 7
    assert driver.client().get_checkpoint(Epoch(3)) is None


def test_the_certificate_of_another_generation_is_not_taken(driver: Driver) -> None:
    other = DriverKeys.of(keys_secret(SPEC, CONFIG_MAP, "keys", new_keys(HOST)))
    with pytest.raises(DriverUnreachable, match="CERTIFICATE_VERIFY_FAILED") as caught:
        driver.client(keys=other).status()
    assert caught.value.why.startswith("what answers does not have the certificate of this generation's Secret (CERT")


def test_a_certificate_for_another_driver_is_not_taken(driver: Driver) -> None:
    with pytest.raises(DriverUnreachable, match="Hostname mismatch"):
        driver.client(host="revenue-driver-8.shop").status()


def test_the_token_is_needed_over_tls_too_and_the_one_for_old_drivers_is_not_taken(driver: Driver) -> None:
    for token in ("guessed", driver.keys.plain_token):
        with pytest.raises(DriverError, match="401") as caught:
            driver.client(token=token).status()
        assert caught.value.why == "it does not take the token of its Secret"


@pytest.mark.parametrize("path", ["/v1/status", "/v1/checkpoints/3", "/nothing"])
def test_without_tls_nothing_is_told_of_the_job_whatever_the_token(driver: Driver, path: str) -> None:
    answers = {get(driver.address, path, token) for token in (None, "guessed", driver.keys.token)}
    [(status, text)] = answers
    assert status == 426
    assert json.loads(text) == {"error": "this driver answers that over TLS only"}


def test_probes_and_metrics_need_neither_tls_nor_a_token(driver: Driver) -> None:
    assert get(driver.address, "/healthz") == (200, '{"ok":true,"tls":true}\n')
    assert get(driver.address, "/readyz")[0] == 200
    status, text = get(driver.address, "/metrics")
    assert status == 200
    assert "epochal_test_total 1.0" in text


def test_a_driver_of_a_release_before_tls_is_asked_without_and_one_of_this_release_is_not(driver: Driver) -> None:
    keys = driver.keys
    assert NegotiatedDriver(driver.client(), driver.plain(keys.plain_token)).status().generation == 7
    with ControlServer(Engine(), token=keys.plain_token) as old:
        address = old.address.removeprefix("http://")
        secured = DriverClient(f"https://{address}", keys.token, trust=Trust.of(keys.authority, HOST))
        assert NegotiatedDriver(secured, DriverClient(old.address, keys.plain_token)).status().generation == 7


def test_a_driver_that_is_too_old_for_tls_is_told_from_one_that_is_away_and_from_an_impostor(driver: Driver) -> None:
    keys = driver.keys
    asked = SecuredDriver(driver.client(), driver.plain(keys.plain_token))
    assert asked.status().generation == 7
    with ControlServer(Engine(), token=keys.plain_token) as old:
        address = old.address.removeprefix("http://")
        secured = DriverClient(f"https://{address}", keys.token, trust=Trust.of(keys.authority, HOST))
        too_old = SecuredDriver(secured, DriverClient(old.address, keys.plain_token))
        with pytest.raises(DriverWithoutTls) as caught:
            too_old.status()
        assert "its image is of a release before TLS" in caught.value.why
    other = DriverKeys.of(keys_secret(SPEC, CONFIG_MAP, "keys", new_keys(HOST)))
    for mistaken in (too_old, SecuredDriver(driver.client(keys=other), driver.plain(keys.plain_token))):
        with pytest.raises(DriverUnreachable) as away:
            mistaken.status()
        assert not isinstance(away.value, DriverWithoutTls)


def test_whoever_pretends_that_a_driver_cannot_do_tls_learns_nothing_that_it_takes(driver: Driver) -> None:
    """And a driver that was asked over TLS once is not asked otherwise, whatever stands in its place."""
    with ControlServer(Engine(), token=driver.keys.plain_token) as impostor:
        between = DriverClient(impostor.address, driver.keys.plain_token)
        fooled = NegotiatedDriver(driver.client(), between)
        assert fooled.status().generation == 7, "it answers like an old driver"
        with pytest.raises(DriverError, match="401"):
            driver.client(token=driver.keys.plain_token).status()
        asked = NegotiatedDriver(driver.client(), driver.plain(driver.keys.plain_token))
        asked.status()
        asked._plain = between
        driver.server.stop()
        with pytest.raises(DriverUnreachable):
            asked.status()


def carry(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(4096):
            other.sendall(data)
    for end in (one, other):
        end.close()


class Forwarded:
    """As the client library forwards a port: a pair of sockets, of which a thread carries one's bytes to the pod."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        kind: Any = PortForward._Port
        self.port = kind(0, CONTROL_PORT)
        self._driver = socket.create_connection((host, int(port)))
        for one, other in ((self.port.python, self._driver), (self._driver, self.port.python)):
            threading.Thread(target=carry, args=(one, other), daemon=True).start()

    def socket(self, number: int) -> socket.socket:
        assert number == CONTROL_PORT
        inner: socket.socket = self.port.socket
        return inner


def test_a_driver_is_asked_over_tls_through_the_api_server_too(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(ask: object, pod: str, namespace: str, *, ports: str) -> Forwarded:
        assert (pod, namespace, ports) == ("revenue-driver-7", "shop", str(CONTROL_PORT))
        return Forwarded(driver.address)

    monkeypatch.setattr(driver_forward, "portforward", forward)
    where = {"namespace": "shop", "pod": "revenue-driver-7", "timeout": 2.0}

    def forwarded(keys: DriverKeys) -> DriverClient:
        plain = ForwardedDriver(Configuration(), token=keys.plain_token, **where)  # type: ignore[arg-type]
        trust = Trust.of(keys.authority, HOST)
        secured = ForwardedDriver(Configuration(), token=keys.token, trust=trust, **where)  # type: ignore[arg-type]
        return NegotiatedDriver(secured, plain)

    assert forwarded(driver.keys).status().generation == 7
    with pytest.raises(DriverUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        forwarded(DriverKeys.of(keys_secret(SPEC, CONFIG_MAP, "keys", new_keys(HOST)))).status()


def test_a_handshake_that_comes_byte_by_byte_holds_no_thread(driver: Driver) -> None:
    """Each byte comes in time; all of them do not."""
    host, port = driver.address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        begun = time.monotonic()
        with suppress(OSError):
            for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100):
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
        assert time.monotonic() - begun < 5, "the server has closed it"
    assert driver.client().status().generation == 7


def test_those_who_connect_and_say_nothing_keep_nobody_out(driver: Driver) -> None:
    host, port = driver.address.split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(100)]
    time.sleep(0.8)
    assert driver.client().status().generation == 7
    for connection in idle:
        connection.close()


def test_a_driver_that_hangs_in_the_handshake_is_not_waited_for(driver: Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # It is connected to, and nobody looks.
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        client = DriverClient(address, "token", timeout=0.3, trust=Trust.of(driver.keys.authority, HOST))
        begun = time.monotonic()
        with pytest.raises(DriverUnreachable) as caught:
            client.status()
        assert caught.value.hung
        assert time.monotonic() - begun < 2


def test_only_the_newest_tls_is_spoken(driver: Driver) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    host, port = driver.address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection, pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(connection)


@pytest.mark.parametrize("year", [2001, 2026, 2226, 9999])
def test_a_driver_is_trusted_whatever_the_operators_clock_says(year: int) -> None:
    """A standby whose clock is days off would otherwise call all healthy drivers silent, and end them."""
    data = new_keys(HOST)
    store = Store([x509.load_pem_x509_certificate(data["ca.crt"])])
    then = PolicyBuilder().store(store).time(datetime(year, 1, 1, tzinfo=UTC))
    then.build_server_verifier(x509.DNSName(HOST)).verify(x509.load_pem_x509_certificate(data["tls.crt"]), [])


def test_a_certificate_is_its_generations_and_its_authority_signs_no_other() -> None:
    first, second = new_keys(HOST), new_keys(HOST)
    certificate = x509.load_pem_x509_certificate(first["tls.crt"])
    authority = x509.load_pem_x509_certificate(first["ca.crt"])
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert all(b"PRIVATE KEY" not in value for name, value in first.items() if name != "tls.key")
    private = first["tls.key"]
    assert private.count(b"PRIVATE KEY") == 2, "the driver's alone: the authority's is nowhere"
    assert not set(first.values()) & set(second.values())


NO_CERTIFICATE = {"token": "eA==", "server-token": "eA==", "ca.crt": "eA=="}
LINE_BREAK = {"token": "eAo="}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"token": "eA=="[:3]},
        {"token": "", "server-token": "eA=="},
        {"token": "eA==", "ca.crt": "eA=="},
        NO_CERTIFICATE,
        LINE_BREAK,
    ],
)
def test_a_secret_that_somebody_has_spoilt_is_not_used(data: dict[str, str]) -> None:
    with pytest.raises(BadKeysError, match="Secret keys"):
        DriverKeys.of({"metadata": {"name": "keys"}, "data": data})
