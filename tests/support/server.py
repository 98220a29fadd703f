"""What the servers of tests have in common: one process, a home directory, a port that it is known to hold."""

import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import ClassVar, Self

from cluster.processes import free_port, holds_port, start_server

PORT_ATTEMPTS = 5
LOOPBACK = "127.0.0.1"


class ServerError(Exception):
    """The server did not come up; the message holds the end of its log."""


class Server(ABC):
    """One server process on a port of its own. It keeps its home directory and its port over stop and start."""

    name: ClassVar[str]
    start_timeout: ClassVar[float] = 20.0

    def __init__(self, *, host: str = LOOPBACK) -> None:
        """``host``: where it listens. Pods do not reach the machine's loopback."""
        self.host = host
        self.port: int | None = None
        self._home = Path(tempfile.mkdtemp(prefix=f"epochal-{self.name}-"))
        self._log = self._home / "server.log"
        self._process: Popen[bytes] | None = None

    @abstractmethod
    def _command(self, port: int) -> Sequence[str]:
        """What to run, with all that it needs in place."""

    def _env(self) -> Mapping[str, str]:
        return os.environ

    def _answers(self, port: int) -> bool:
        """Whether the server that holds the port can be used."""
        return True

    @property
    def address(self) -> str:
        if self.port is None:
            raise ServerError(f"{self.name} was never started")
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start, on the former port if there was one."""
        if self._process is not None:
            raise ServerError(f"{self.name} is running already")
        if self.port is not None:
            if not self._start_on(self.port):
                raise ServerError(f"{self.name} did not start on its former port {self.port}:\n{self._log_end()}")
            return
        for _ in range(PORT_ATTEMPTS):
            port = free_port()
            if self._start_on(port):
                self.port = port
                return
        raise ServerError(f"{self.name} did not start:\n{self._log_end()}")

    def stop(self) -> None:
        """Kill the process, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start_on(self, port: int) -> bool:
        with self._log.open("ab") as log:
            self._process = start_server(self._command(port), env=self._env(), log=log)
        deadline = time.monotonic() + self.start_timeout
        while time.monotonic() < deadline and self._process.poll() is None:
            if holds_port(self._process.pid, port) and self._answers(port):
                return True
            time.sleep(0.02)
        self.stop()
        return False

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
