"""A web server that remembers what was posted to it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What came. ``answers`` are given one after the other, then 200."""

    answers: list[int | None] = field(default_factory=list)
    requests: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    retry_after: int | None = None
    """What it asks clients to wait."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.requests.append((self.headers["Idempotency-Key"], body))
            found.headers.append(dict(self.headers))
            answer = found.answers.pop(0) if found.answers else 200
            if answer is None:  # an answer that is lost
                self.close_connection = True
                return
            self.send_response(answer)
            self.send_header("Location", "/elsewhere")
            if found.retry_after is not None:
                self.send_header("Retry-After", str(found.retry_after))
            self.end_headers()
            self.wfile.write(b"as you see")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/rows?token=s3cret"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
