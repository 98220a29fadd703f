"""Talking to a job's driver: typed questions, typed answers, and three ways in which it can go wrong."""

import http.client
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from epochal.control.deadlines import Deadlines
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    RELEASE_HEADER,
    CheckpointReport,
    CheckpointRequest,
    DriverPhase,
    DriverStatus,
    Refusal,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.version import __version__

LARGEST_ANSWER = 16 * 1024 * 1024

_T = TypeVar("_T")
_DEADLINES = Deadlines()


class DriverUnreachable(Exception):  # noqa: N818 - named by what is seen
    """Nothing answers, or not in time: what became of the request is not known."""


class DriverRefused(Exception):  # noqa: N818
    """The driver understood the barrier and does not take it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class DriverError(Exception):
    """The driver's answer makes no sense, or says that the request did not."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class DriverClient:
    """One driver's control server. Keeps no connection, so it may be shared and needs no closing."""

    def __init__(self, address: str, token: str, *, timeout: float = 5.0) -> None:
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise ValueError(f"a driver's address is http://HOST:PORT, not {address!r}")
        self.address = address
        self._host, self._port = parts.hostname, parts.port
        self._token = token
        self._timeout = timeout

    @property
    def key(self) -> tuple[str, str]:
        """Which driver it talks to, and as whom."""
        return self.address, self._token

    def status(self) -> DriverStatus:
        return self._expect("GET", "/v1/status", DriverStatus)

    def post_barrier(self, generation: Generation, barrier: CheckpointBarrier) -> CheckpointReport:
        """Send a barrier. Sending the same one twice is harmless."""
        body = msgspec.json.encode(CheckpointRequest(generation=generation, barrier=barrier))
        status, data = self._request("POST", "/v1/checkpoints", body)
        if status == HTTPStatus.CONFLICT:
            raise DriverRefused(_decoded(data, Refusal))
        return self._checked(status, data, CheckpointReport, HTTPStatus.ACCEPTED)

    def get_checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        """What became of an epoch; None if the driver has never seen its barrier."""
        return self._report("GET", epoch)

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        """Ask the driver to give an epoch up; None if it has never seen its barrier."""
        return self._report("DELETE", epoch)

    def _report(self, method: str, epoch: Epoch) -> CheckpointReport | None:
        status, data = self._request(method, f"/v1/checkpoints/{epoch}")
        if status == HTTPStatus.NOT_FOUND:
            return None
        return self._checked(status, data, CheckpointReport, HTTPStatus.OK)

    def _expect(self, method: str, path: str, kind: type[_T]) -> _T:
        status, data = self._request(method, path)
        return self._checked(status, data, kind, HTTPStatus.OK)

    def _checked(self, status: int, data: bytes, kind: type[_T], expected: HTTPStatus) -> _T:
        if status != expected:
            raise DriverError(f"the driver at {self.address} answers {status}: {_error_in(data)}", status)
        return _decoded(data, kind)

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", RELEASE_HEADER: __version__}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connect()
        try:
            # One limit over the whole exchange: the socket's own begins anew with every byte.
            with _DEADLINES.limit(self._timeout, _closing(connection)):
                connection.request(method, path, body=body, headers=headers)
                response = connection.getresponse()
                data = response.read(LARGEST_ANSWER + 1)
                if response.length and len(data) <= LARGEST_ANSWER:
                    raise http.client.IncompleteRead(data, response.length)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # The last two: what http.client makes of a connection that was closed under it.
            why = str(error) or type(error).__name__
            raise DriverUnreachable(f"the driver at {self.address} does not answer: {why}") from error
        finally:
            connection.close()
        if len(data) > LARGEST_ANSWER:
            raise DriverError(f"the driver at {self.address} answers with more than {LARGEST_ANSWER} bytes")
        return response.status, data


class RememberingDriver(DriverClient):
    """Asks a driver that runs well only now and then how it does: hundreds of jobs are looked at every second, and
    almost always nothing has happened. Of a checkpoint it always asks."""

    def __init__(self, driver: DriverClient, clock: Callable[[], float], heartbeat: float) -> None:
        self._driver, self._clock, self._heartbeat = driver, clock, heartbeat
        self._known: tuple[float, DriverStatus] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self._driver.key

    def status(self) -> DriverStatus:
        now = self._clock()
        if self._known is not None and 0 <= now - self._known[0] < self._heartbeat:
            return self._known[1]
        self._known = None
        status = self._driver.status()
        if status.phase is DriverPhase.RUNNING and not status.finished:
            self._known = (now, status)
        return status

    def post_barrier(self, generation: Generation, barrier: CheckpointBarrier) -> CheckpointReport:
        try:
            return self._driver.post_barrier(generation, barrier)
        except (DriverRefused, DriverError, DriverUnreachable):
            self._known = None
            raise

    def get_checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        return self._driver.get_checkpoint(epoch)

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        return self._driver.abort(epoch)


def _closing(connection: http.client.HTTPConnection) -> Callable[[], None]:
    def close() -> None:
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    return close


def _decoded(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DriverError(f"the driver's answer is no {kind.__name__}: {error}") from error


def _error_in(data: bytes) -> str:
    try:
        return str(msgspec.json.decode(data, type=dict[str, str])["error"])[:300]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return data[:100].decode("utf-8", "replace")
