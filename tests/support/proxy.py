"""A proxy between client and HTTP server: counts requests, adds delay, loses answers, breaks connections."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    target: str


class RequestParser:
    """Finds the requests in what a client sends over one connection."""

    def __init__(self, seen: Callable[[Request], None]) -> None:
        self._seen = seen
        self._buffer = b""
        self._body_left = 0
        self._chunked = False

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while self._advance():
            pass

    def _advance(self) -> bool:
        if self._body_left:
            taken = min(self._body_left, len(self._buffer))
            self._buffer = self._buffer[taken:]
            self._body_left -= taken
            return taken > 0
        head, end, rest = self._buffer.partition(b"\r\n" if self._chunked else b"\r\n\r\n")
        if not end:
            return False
        self._buffer = rest
        if self._chunked:
            size = int(head.split(b";")[0], 16)
            # The line end after a chunk; after the last one it ends the body (trailers are not expected).
            self._body_left = size + 2
            self._chunked = size > 0
        else:
            self._begin(head.decode("latin-1"))
        return True

    def _begin(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._body_left = 0 if self._chunked else int(headers.get("content-length", "0"))
        self._seen(Request(method, target))


class CountingProxy:
    """Listens on a port of its own and passes everything on to `upstream` (`http://host:port`).

    `delay` is in seconds, applies to each direction and may be changed while connections are open; it adds
    latency and takes no bandwidth. What goes through is not looked into if it is `opaque`: TLS, say.
    """

    def __init__(self, upstream: str, *, delay: float = 0.0, opaque: bool = False) -> None:
        parts = urlsplit(upstream)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"not an address with host and port: {upstream!r}")
        self._upstream = (parts.hostname, parts.port)
        self.delay = delay
        self._opaque = opaque
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.requests: list[Request] = []
        self.bytes = 0
        """Passed on in both directions since the last `reset`."""
        self.port = 0
        self._answers_to_lose = 0
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="counting-proxy", daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def counts(self) -> Counter[str]:
        """Requests seen since the last `reset`, by method."""
        return Counter(request.method for request in self.requests)

    def reset(self) -> None:
        self.requests = []
        self.bytes = 0

    def refuse(self) -> None:
        """Cut what is open and refuse new connections until `accept`."""
        self._do(self._refuse())

    def accept(self) -> None:
        self._do(self._accept())

    def cut(self) -> None:
        """Break all open connections; new ones are accepted."""
        self._do(self._cut())

    def hold(self) -> None:
        """Accept connections and pass nothing on, as a network that loses all packets, until `flow`."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def flow(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.set)

    def lose_answers(self, count: int) -> None:
        """The server acts on the next `count` requests, and the client never hears what came of them."""
        self._answers_to_lose = count

    def start(self) -> None:
        self._thread.start()
        self.accept()

    def stop(self) -> None:
        self._do(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _accept(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._cut()

    async def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _shut_down(self) -> None:
        await self._refuse()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._open.add(writer)
        server_writer: asyncio.StreamWriter | None = None
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._upstream)
            self._open.add(server_writer)
            # Either side's end is the end of both: HTTP clients do not half-close.
            await _first_of(
                self._pump(reader, server_writer, _ignore if self._opaque else RequestParser(self._count).feed),
                self._pump(server_reader, writer, self._maybe_lose),
            )
        except (OSError, asyncio.CancelledError):
            # The client sees a broken connection, which is what this proxy is for. Only `stop` cancels.
            pass
        finally:
            for end in (writer, server_writer):
                if end is not None:
                    end.transport.abort()
                    self._open.discard(end)
            self._connections.discard(task)

    def _count(self, request: Request) -> None:
        self.requests.append(request)

    def _maybe_lose(self, _answer: bytes) -> None:
        if self._answers_to_lose > 0:
            self._answers_to_lose -= 1
            raise ConnectionAbortedError("answer lost on purpose")

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Callable[[bytes], None]
    ) -> None:
        # Data waits in the queue until it is due while reading goes on: latency without loss of bandwidth.
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)

        async def receive() -> None:
            while data := await reader.read(65536):
                look(data)
                self.bytes += len(data)
                await queue.put((self._loop.time() + self.delay, data))
            await queue.put((self._loop.time() + self.delay, b""))

        async def send() -> None:
            while True:
                due, data = await queue.get()
                if (wait := due - self._loop.time()) > 0:
                    await asyncio.sleep(wait)
                await self._flowing.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(receive())
            tasks.create_task(send())


def _ignore(_data: bytes) -> None:
    pass


async def _first_of(*work: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, then drop the others. How it ended does not matter: the connection is over."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
