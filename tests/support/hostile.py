"""A server on loopback that belongs to somebody who means ill: it takes requests, and answers as it likes."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

Behaviour = Callable[[socket.socket, bytes], None]
"""Given a connection and the head of a request; the connection is closed when it returns."""

DRIP = 0.05


class HostileServer:
    """``requests`` are the heads of all requests, as they came."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.requests: list[bytes] = []
        self._over = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._server.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(65536)
                if not data:
                    return
                head += data
            self.requests.append(head)
            self.behave(connection, head)


def answers(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    headers = {"Content_Length": str(len(body))} | headers
    head = f"HTTP/1.1 {status} Said\r\n"
    head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())

    def behave(connection: socket.socket, _: bytes) -> None:
        connection.sendall(head.encode() + b"\r\n" + body)

    return behave


def hangs(connection: socket.socket, _: bytes) -> None:
    """Says nothing until the client has had enough."""
    connection.recv(1)


def drips(head: bytes, piece: bytes) -> Behaviour:
    """Sends a piece now and then, without end: never silent for as long as a socket's time limit."""

    def behave(connection: socket.socket, _: bytes) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            time.sleep(DRIP)

    return behave


def floods(head: bytes, piece: bytes = b"x" * 65536) -> Behaviour:
    """Sends as fast as it can, without end."""

    def behave(connection: socket.socket, _: bytes) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return behave


def claims(status: int, length: int) -> Behaviour:
    """Says that it will send ``length`` bytes, and sends none."""

    def behave(connection: socket.socket, request: bytes) -> None:
        connection.sendall(f"HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n\r\n".encode())
        hangs(connection, request)

    return behave


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"
