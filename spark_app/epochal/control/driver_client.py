"""Talking to a job's driver: typed questions, typed answers, and three ways in which it can go wrong."""

import http.client
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from epochal.control.exchange import BoundedConnection, NoAnswerError, TooLargeError, exchange
from epochal.control.foreign import clean
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    RELEASE_HEADER,
    CheckpointReport,
    CheckpointRequest,
    DriverPhase,
    DriverStatus,
    HealthReport,
    Refusal,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.version import __version__

LARGEST_ANSWER = 1024 * 1024
"""Hundreds of drivers may answer at the same time. A status has a few hundred bytes for each operator of the graph."""

REST = 2.0
"""A driver that was waited for in vain is left alone for so many times as long."""

MOST_SKIPPED = 10
"""Epochs that a driver may name as not used: people are told of a few."""

_T = TypeVar("_T")


class DriverUnreachable(Exception):  # noqa: N818 - named by what is seen
    """Nothing answers, or not in time: what became of the request is not known. ``hung``: it was waited for in vain.
    ``why``: what people are told, where it will not answer by itself; in words that stay the same meanwhile."""

    def __init__(self, message: str, *, hung: bool = False, why: str = "") -> None:
        super().__init__(message)
        self.hung, self.why = hung, why


class DriverWithoutTls(DriverUnreachable):
    """It is there, and its image is too old to be asked as it has to be."""


class DriverRefused(Exception):  # noqa: N818
    """The driver understood the barrier and does not take it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class DriverError(Exception):
    """The driver's answer makes no sense, or says that the request did not. ``why`` as above."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.why = "it does not take the token of its Secret" if status == HTTPStatus.UNAUTHORIZED else ""


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificate a driver has to show: one for ``name``, by the only authority that ``context`` knows."""

    context: ssl.SSLContext
    name: str

    @classmethod
    def of(cls, authority: str, name: str) -> "Trust":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=authority)
        return cls(context, name)


class DriverClient:
    """One driver's control server. Keeps no connection, so it may be shared and needs no closing. With ``trust`` it
    talks over TLS, and shows the token to nobody else."""

    def __init__(self, address: str, token: str, *, timeout: float = 5.0, trust: Trust | None = None) -> None:
        parts, scheme = urlsplit(address), "https" if trust else "http"
        if parts.scheme != scheme or not parts.hostname or not parts.port:
            raise ValueError(f"a driver's address is {scheme}://HOST:PORT, not {address!r}")
        self.address = address
        self._host, self._port = parts.hostname, parts.port
        self._token, self._trust = token, trust
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
        status, data = self.request("POST", "/v1/checkpoints", body)
        if status == HTTPStatus.CONFLICT:
            raise DriverRefused(_decoded(data, Refusal))
        return self._checked(status, data, CheckpointReport, HTTPStatus.ACCEPTED)

    def get_checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        """What became of an epoch; None if the driver has never seen its barrier."""
        return self._report("GET", epoch)

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        """Ask the driver to give an epoch up; None if it has never seen its barrier."""
        return self._report("DELETE", epoch)

    def offers_tls(self) -> bool:
        """Whether it answers questions about its job over TLS only. Asked without the token."""
        status, data = self.request("GET", "/healthz", token=False)
        return self._checked(status, data, HealthReport, HTTPStatus.OK).tls

    def _report(self, method: str, epoch: Epoch) -> CheckpointReport | None:
        status, data = self.request(method, f"/v1/checkpoints/{epoch}")
        if status == HTTPStatus.NOT_FOUND:
            return None
        return self._checked(status, data, CheckpointReport, HTTPStatus.OK)

    def _expect(self, method: str, path: str, kind: type[_T]) -> _T:
        status, data = self.request(method, path)
        return self._checked(status, data, kind, HTTPStatus.OK)

    def _checked(self, status: int, data: bytes, kind: type[_T], expected: HTTPStatus) -> _T:
        if status != expected:
            raise DriverError(f"the driver at {self.address} answers {status}: {_error_in(data)}", status)
        return _decoded(data, kind)

    def _connect(self) -> http.client.HTTPConnection:
        trust = self._trust
        return BoundedConnection(
            trust.name if trust else self._host,
            self._port,
            address=self._host,
            timeout=self._timeout,
            context=trust.context if trust else None,
        )

    def request(self, method: str, path: str, body: bytes | None = None, *, token: bool = True) -> tuple[int, bytes]:
        headers = {RELEASE_HEADER: __version__}
        if token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = exchange(
                self._connect(),
                method,
                path,
                headers=headers,
                body=body,
                seconds=self._timeout,
                largest=LARGEST_ANSWER,
            )
        except NoAnswerError as error:
            message = f"the driver at {self.address} does not answer: {clean(str(error))}"
            raise DriverUnreachable(message, hung=error.hung, why=_mistrust(error.__cause__)) from error
        except TooLargeError as error:
            raise DriverError(f"the driver at {self.address}: {error}") from error
        return answer.status, answer.data


class RememberingDriver(DriverClient):
    """Asks a driver that runs well only now and then how it does: hundreds of jobs are looked at every second, and
    almost always nothing has happened. Of a checkpoint it always asks.

    One that was waited for in vain is left alone for a while, and counts as silent: otherwise a driver that hangs would
    hold a thread for as long as it hangs."""

    def __init__(self, driver: DriverClient, clock: Callable[[], float], heartbeat: float) -> None:
        self._driver, self._clock, self._heartbeat = driver, clock, heartbeat
        self._known: tuple[float, DriverStatus] | None = None
        self._hung: tuple[float, float] | None = None
        """Since when it is left alone, and for how long."""

    @property
    def key(self) -> tuple[str, str]:
        return self._driver.key

    def status(self) -> DriverStatus:
        now = self._clock()
        if self._known is not None and 0 <= now - self._known[0] < self._heartbeat:
            return self._known[1]
        self._known = None
        status = self._asked(self._driver.status)
        if status.phase is DriverPhase.RUNNING and not status.finished:
            self._known = (now, status)
        return status

    def post_barrier(self, generation: Generation, barrier: CheckpointBarrier) -> CheckpointReport:
        try:
            return self._asked(lambda: self._driver.post_barrier(generation, barrier))
        except (DriverRefused, DriverError, DriverUnreachable):
            self._known = None
            raise

    def get_checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        return self._asked(lambda: self._driver.get_checkpoint(epoch))

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        return self._asked(lambda: self._driver.abort(epoch))

    def _asked(self, question: Callable[[], _T]) -> _T:
        begun = self._clock()
        if self._hung is not None and 0 <= begun - self._hung[0] < self._hung[1]:
            raise DriverUnreachable("the driver did not answer in time; it is asked again soon")
        self._hung = None
        try:
            return question()
        except DriverUnreachable as error:
            if error.hung:
                self._known = None
                now = self._clock()
                self._hung = (now, REST * max(0.0, now - begun))
            raise


def _decoded(data: bytes, kind: type[_T]) -> _T:
    try:
        answer = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise DriverError(f"the driver's answer is not a valid {kind.__name__}: {clean(str(error))}") from error
    return _cleaned(answer)


def _cleaned(answer: _T) -> _T:
    """With texts that can be shown: whatever a driver says reaches people through here."""
    match answer:
        case DriverStatus(message=message, skipped_epochs=skipped, checkpoint=checkpoint):
            some = list(skipped.items())[:MOST_SKIPPED]
            return msgspec.structs.replace(
                answer,
                message=clean(message),
                skipped_epochs={clean(epoch): clean(why) for epoch, why in some},
                checkpoint=_cleaned(checkpoint),
            )
        case CheckpointReport(message=message) | Refusal(message=message):
            return msgspec.structs.replace(answer, message=clean(message))
        case _:
            return answer


def _mistrust(error: BaseException | None) -> str:
    """Whatever answers is not taken for the driver."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return ""
    said = f"CERTIFICATE_VERIFY_FAILED: {error.verify_message}"
    return f"what answers does not have the certificate of this generation's Secret ({said})"


def _error_in(data: bytes) -> str:
    try:
        said = str(msgspec.json.decode(data, type=dict[str, str])["error"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        said = data[:300].decode("utf-8", "replace")
    return clean(said, 300)
