"""The one way in which the operator reads what a tenant serves: bounded in bytes and in time, whatever the server does.

A server may accept and never answer, send a byte a second, send for ever, or point somewhere else. So one limit of time
holds over all of an exchange, the handshake of TLS included; no more bytes are read than are allowed; and redirects are
answers like any other: nothing is ever asked of a host that was not named.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from epochal.control.deadlines import Deadlines

PIECE = 64 * 1024

_DEADLINES = Deadlines()


class NoAnswerError(Exception):
    """Nothing answers, or not in time: what became of the request is not known. ``hung``: it was waited for in vain."""

    def __init__(self, message: str, *, hung: bool) -> None:
        super().__init__(message)
        self.hung = hung


class TooLargeError(Exception):
    """The answer is larger than may be read."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    data: bytes


class BoundedConnection(http.client.HTTPConnection):
    """To ``address``, which belongs to ``host``: whoever resolved the name has looked at it. With TLS if there is a
    ``context``. The socket is known from the beginning, so that it can be closed while TLS shakes hands."""

    def __init__(self, host: str, port: int, *, address: str, timeout: float, context: ssl.SSLContext | None) -> None:
        super().__init__(host, port, timeout=timeout)
        self._address, self._context = address, context

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock.do_handshake()


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    seconds: float,
    largest: int,
    before_reading: Callable[[int | None], None] = lambda _: None,
) -> Answer:
    """Make one request and read its answer, at most ``largest`` bytes of it, in at most ``seconds``. The connection is
    closed then. ``before_reading`` is told how long the answer says to be."""
    over, sockets = threading.Event(), [connection.sock]

    def end() -> None:
        over.set()
        for sock in (connection.sock, *sockets):
            with suppress(OSError, AttributeError, ValueError):
                sock.shutdown(socket.SHUT_RDWR)

    try:
        # The socket's own limit begins anew with every byte.
        with ExitStack() as answering, _DEADLINES.limit(seconds, end):
            if connection.sock is None:
                connection.connect()
            # The connection forgets its socket where the answer has no length, and the answer is still read from it.
            sockets.append(connection.sock)
            if over.is_set():
                raise TimeoutError  # it ended before there was a socket to close
            connection.request(method, target, body=body, headers=dict(headers))
            response = answering.enter_context(connection.getresponse())
            if response.length is not None and response.length > largest:
                raise TooLargeError(f"the answer is larger than {largest} bytes")
            before_reading(response.length)
            data = _read(response, largest)
        if over.is_set():
            raise TimeoutError  # the end that was read may be the one that we made
        return Answer(response.status, data)
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        # The last two: what http.client makes of a connection that was closed under it.
        hung = isinstance(error, TimeoutError) or over.is_set()
        why = "it did not answer in time" if hung else str(error) or type(error).__name__
        raise NoAnswerError(why, hung=hung) from error
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse, largest: int) -> bytes:
    pieces, left = [], largest
    while piece := response.read(PIECE):
        left -= len(piece)
        if left < 0:
            raise TooLargeError(f"the answer has more than {largest} bytes")
        pieces.append(piece)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(pieces)
