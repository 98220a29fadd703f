"""Whether this process still works: what ``/healthz`` answers, for the leader and for a standby alike.

Each check looks at threads and at the age of what they last did. None looks at whether the API server, a store or a
driver answers: a new process could do no better, and no job can get the operator killed.
"""

import http.server
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from epochal.protocol.decision import Seconds
from epochal_operator.process.vital_threads import end_process, vital_thread

logger = logging.getLogger(__name__)

LOOK_EVERY: Seconds = 5.0
GIVE_UP_AFTER = 12
"""Looks in a row that find a problem, after which the process ends by itself: a minute. One is not enough: a process
that was stopped for a while and goes on finds everything old."""

SLOWEST_LOOP: Seconds = 30.0
OLDEST_ROUND: Seconds = 120.0

Check = Callable[[], str | None]


class Health:
    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """``check`` says what is wrong, or None."""
        self._checks[name] = check

    def problems(self) -> dict[str, str]:
        return {name: problem for name, check in list(self._checks.items()) if (problem := check())}

    def serve(self, port: int) -> None:
        """Answer on ``port`` (0: nowhere) and watch over this process until its end."""
        if port:
            handler = type("Handler", (_Handler,), {"health": self})
            server = http.server.ThreadingHTTPServer(("0.0.0.0", port), handler)
            vital_thread("health", server.serve_forever).start()
        vital_thread("watchdog", self._watch).start()

    def _watch(self) -> None:
        found = 0
        while True:
            time.sleep(LOOK_EVERY)
            problems = self.problems()
            found = found + 1 if problems else 0
            if found == 1:
                logger.warning("This operator is unhealthy: %s", problems)
            if found >= GIVE_UP_AFTER:
                end_process(f"unhealthy for {found * LOOK_EVERY:.0f} s: {problems}")


class _Handler(http.server.BaseHTTPRequestHandler):
    health: Health
    timeout = 10

    def do_GET(self) -> None:
        if self.path != "/healthz":
            self.send_error(404)
            return
        problems = self.health.problems()
        body = json.dumps({"healthy": not problems, "problems": problems}).encode()
        self.send_response(503 if problems else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """A probe every few seconds is nothing to tell."""


class Beat:
    """Something that must happen again and again."""

    def __init__(self, what: str, longest: Seconds, clock: Callable[[], Seconds] = time.monotonic) -> None:
        self._what, self._longest, self._clock = what, longest, clock
        self._lock = threading.Lock()
        self._last: Seconds | None = None

    def beat(self) -> None:
        with self._lock:
            self._last = self._clock()

    def rest(self) -> None:
        """It need not happen, until the next beat."""
        with self._lock:
            self._last = None

    def problem(self) -> str | None:
        with self._lock:
            last = self._last
        if last is None or self._clock() - last <= self._longest:
            return None
        return f"{self._what} for {self._clock() - last:.0f} s"
