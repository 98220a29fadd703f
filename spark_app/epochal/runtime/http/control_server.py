"""The driver's control server: the controller asks, the engine answers.

It trusts nobody: a bearer token on everything but the two probes, a limit on the size of a body and on the time that a
request may take to arrive, and no detail of an error that is not the caller's.

With TLS, one port answers both: a connection that begins with a handshake is secured, and a plain one gets probes and
metrics only. A kubelet must be able to probe a driver before anybody knows whether its image can do TLS, and Prometheus
cannot know a token that changes with each generation.
"""

import hmac
import io
import logging
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, exposition

from epochal.protocol.control import (
    FEATURES,
    RELEASE_HEADER,
    CheckpointReport,
    CheckpointRequest,
    DriverPhase,
    DriverStatus,
    HealthReport,
    Refusal,
)
from epochal.protocol.epochs import MAX_EPOCH, Epoch
from epochal.protocol.first_release import for_first_release
from epochal.runtime.http.server_tls import secured
from epochal.version import __version__

logger = logging.getLogger(__name__)

JSON = "application/json"
LARGEST_BODY = 64 * 1024
LONGEST_REQUEST = 10.0
"""Seconds that a request may take to arrive in full."""
MOST_CONNECTIONS = 64
FORGOTTEN_AFTER = 60.0
"""Seconds without a question of the controller after which the driver is not ready any more: a PodDisruptionBudget
guards drivers that are, and without a controller nobody would move this one off a node that is drained."""
_DRAINED = 256 * 1024
_EPOCH_PATH = re.compile(r"/v1/checkpoints/(?P<epoch>[^/]+)")


class ControlledEngine(Protocol):
    """What the control server needs of an engine. Called from several threads, and must answer without waiting for a
    checkpoint."""

    def status(self) -> DriverStatus: ...

    def start_checkpoint(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        """Take a barrier. The same one again answers what became of it."""

    def checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        """What became of an epoch; None if its barrier was never seen."""

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        """Give the epoch up if it is not published yet; the report says which."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class _RequestError(Exception):
    def __init__(self, status: HTTPStatus, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.answer = _Answer(status, _encode({"error": message}), headers=headers)


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


class ControlServer:
    """Serves one engine until :meth:`stop`. ``port`` 0 takes a free one; see :attr:`address`. ``tls``: the certificate
    that it shows; with None everything is plain, and metrics need the token, too."""

    def __init__(
        self,
        engine: ControlledEngine,
        *,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        registry: CollectorRegistry | None = None,
        tls: ssl.SSLContext | None = None,
        longest_request: float = LONGEST_REQUEST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not token:
            raise ValueError("the control server needs a token: an empty one would let everybody in")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        handler = type("Handler", (_Handler,), {"longest_request": longest_request})
        api = _Api(engine, token, registry or CollectorRegistry(), clock, tls=tls is not None)
        self._server = _Server((host, port), handler, api, family, tls)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="control-server", daemon=True
        )

    def start(self) -> "ControlServer":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Answer what has begun, take nothing new, free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        host = host.decode() if isinstance(host, bytes) else host
        scheme = "https" if self._server.tls else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def __enter__(self) -> "ControlServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


# --- what is asked and answered ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    authorization: str
    content_type: str
    release: str
    """The client's; empty for one of release 0.1.0."""
    secured: bool
    read_body: Callable[[], bytes]


class _Api:
    """Paths and methods. Knows nothing of sockets."""

    def __init__(
        self,
        engine: ControlledEngine,
        token: str,
        registry: CollectorRegistry,
        clock: Callable[[], float],
        *,
        tls: bool,
    ) -> None:
        self._engine, self._tls = engine, tls
        self._clock = clock
        self._asked = clock()
        self._expected = f"Bearer {token}".encode()
        self._registry = registry

    def answer(self, request: _Request) -> _Answer:
        path = urlsplit(request.path).path
        match path:
            case "/healthz":
                return self._only(request, GET=lambda: _Answer(HTTPStatus.OK, _encode(HealthReport(tls=self._tls))))
            case "/readyz":
                return self._only(request, GET=self._ready)
            case "/metrics" if self._tls:
                return self._only(request, GET=self._metrics)
            case _:
                self._check_channel(request)
                self._check_token(request)
                return self._answer_known(request, path)

    def _answer_known(self, request: _Request, path: str) -> _Answer:
        match path:
            case "/metrics":
                return self._only(request, GET=self._metrics)
            case "/v1/status":
                self._asked = self._clock()
                return self._only(request, GET=lambda: _told(request, HTTPStatus.OK, self._status()))
            case "/v1/checkpoints":
                return self._only(request, POST=lambda: self._post(request))
            case _:
                pass
        if matched := _EPOCH_PATH.fullmatch(path):
            epoch = _epoch(matched["epoch"])
            return self._only(
                request,
                GET=lambda: self._report(request, epoch, self._engine.checkpoint(epoch)),
                DELETE=lambda: self._report(request, epoch, self._engine.abort(epoch)),
            )
        raise _RequestError(HTTPStatus.NOT_FOUND, f"no such path: {path}")

    def _only(self, request: _Request, **methods: Callable[[], _Answer]) -> _Answer:
        if request.method not in methods:
            allowed = ", ".join(sorted(methods))
            message = f"{request.method} is not possible here: use {allowed}"
            raise _RequestError(HTTPStatus.METHOD_NOT_ALLOWED, message, ("Allow", allowed))
        return methods[request.method]()

    def _check_channel(self, request: _Request) -> None:
        """Before the token is looked at: whether it is right is not told to those who listen."""
        if self._tls and not request.secured:
            raise _RequestError(HTTPStatus.UPGRADE_REQUIRED, "this driver answers that over TLS only")

    def _check_token(self, request: _Request) -> None:
        # In constant time: how long it takes tells nothing of how much was right.
        given = request.authorization.encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._expected):
            message = "a bearer token is needed" if not given else "the bearer token is wrong"
            raise _RequestError(HTTPStatus.UNAUTHORIZED, message, ("WWW-Authenticate", "Bearer"))

    def _status(self) -> DriverStatus:
        return replace(self._engine.status(), release=__version__, features=tuple(sorted(FEATURES)))

    def _ready(self) -> _Answer:
        phase = self._engine.status().phase
        ready = phase is DriverPhase.RUNNING and self._clock() - self._asked <= FORGOTTEN_AFTER
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _Answer(status, _encode({"ready": ready, "phase": phase}))

    def _metrics(self) -> _Answer:
        text = exposition.generate_latest(self._registry)
        return _Answer(HTTPStatus.OK, text, exposition.CONTENT_TYPE_PLAIN_0_0_4)

    def _post(self, request: _Request) -> _Answer:
        if request.content_type.partition(";")[0].strip().lower() != JSON:
            message = f"the body must be {JSON}, not {request.content_type or 'of no type'}"
            raise _RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        try:
            wanted = msgspec.json.decode(request.read_body(), type=CheckpointRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _RequestError(HTTPStatus.BAD_REQUEST, f"not a checkpoint request: {error}") from error
        match self._engine.start_checkpoint(wanted):
            case Refusal() as refusal:
                return _told(request, HTTPStatus.CONFLICT, refusal)
            case report:
                return _told(request, HTTPStatus.ACCEPTED, report)

    def _report(self, request: _Request, epoch: Epoch, report: CheckpointReport | None) -> _Answer:
        if report is None:
            raise _RequestError(HTTPStatus.NOT_FOUND, f"no barrier of epoch {epoch} was seen here")
        return _told(request, HTTPStatus.OK, report)


def _told(request: _Request, status: HTTPStatus, message: DriverStatus | CheckpointReport | Refusal) -> _Answer:
    return _Answer(status, _encode(message if request.release else for_first_release(message)))


def _epoch(text: str) -> Epoch:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_EPOCH):
        raise _RequestError(HTTPStatus.BAD_REQUEST, f"an epoch is a number from 1 to {MAX_EPOCH}")
    return Epoch(int(text))


# --- how it gets there and back ---------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        handler: type["_Handler"],
        api: _Api,
        family: socket.AddressFamily,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.address_family = family
        self.api, self.tls = api, tls
        self._longest_handshake = handler.longest_request
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer's would look the host's name up, which takes seconds where there is no DNS.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        with secured(request, self.tls, self._longest_handshake) as connection:
            super().finish_request(connection, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("Connection from %s broke: %s", client_address, sys.exc_info()[1])


class _Deadline(io.RawIOBase):
    """Reads a socket until a moment: a timeout for each read alone would let a client send a byte a second for ever."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long to arrive")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection: the controller asks rarely, and an idle connection would hold a thread."""

    protocol_version = "HTTP/1.1"
    server: _Server
    longest_request = LONGEST_REQUEST

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Deadline(self.connection, self.longest_request))

    def handle(self) -> None:
        self.handle_one_request()

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        self.close_connection = True
        # The base class looks for do_GET and so on; here every method goes the same way.
        self._serve()
        return False

    def _serve(self) -> None:
        request = _Request(
            method=self.command,
            path=self.path,
            authorization=self.headers.get("Authorization", ""),
            content_type=self.headers.get("Content-Type", ""),
            release=self.headers.get(RELEASE_HEADER, ""),
            secured=isinstance(self.connection, ssl.SSLSocket),
            read_body=self._read_body,
        )
        try:
            answer = self.server.api.answer(request)
        except _RequestError as error:
            answer = error.answer
        except (TimeoutError, ConnectionError):
            self._send(_Answer(HTTPStatus.REQUEST_TIMEOUT, _encode({"error": "the body took too long to arrive"})))
            return
        except Exception:
            logger.exception("Control server failed to answer %s %s", self.command, self.path)
            message = "internal error: see the driver's log"
            answer = _Answer(HTTPStatus.INTERNAL_SERVER_ERROR, _encode({"error": message}))
        self._send(answer)

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _RequestError(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
        if len(length) > 12 or int(length) > LARGEST_BODY:
            raise _RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {LARGEST_BODY} bytes at most")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise _RequestError(HTTPStatus.BAD_REQUEST, "the body ends before its Content-Length")
        return body

    def _send(self, answer: _Answer) -> None:
        self.connection.settimeout(self.longest_request)
        self.send_response(answer.status)
        for name, value in (("Content-Type", answer.content_type), *answer.headers):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()
        self._drain()

    def _drain(self) -> None:
        """Read what the client has sent and nobody wanted: closing before that resets the connection, and the client
        may never see the answer."""
        try:
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(0.5)
            for _ in range(_DRAINED // 8192):
                if not self.connection.recv(8192):
                    break
        except OSError:
            pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class says of requests that are no HTTP; in its own words it would be a page of HTML."""
        self.command = getattr(self, "command", None) or ""
        self._send(_Answer(HTTPStatus(code), _encode({"error": message or HTTPStatus(code).phrase})))

    def version_string(self) -> str:
        return "epochal"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        logger.debug("Control server: " + format, *args)  # noqa: G003
