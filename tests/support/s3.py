"""A real S3 server for tests: versitygw on a directory.

Run as a program (`python -m tests.support.s3`), this only builds the server, so that no test waits for it.
"""

import http.client
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import Self

from obstore.store import S3Store

from tests.support.gobuild import GoProgram, ensure_built
from tests.support.processes import free_port, holds_port, start_server

VERSITYGW = GoProgram(
    directory=Path(__file__).parent / "versitygw",
    module="github.com/versity/versitygw",
    package="github.com/versity/versitygw/cmd/versitygw",
)
START_TIMEOUT = 20.0
PORT_ATTEMPTS = 5


class S3ServerError(Exception):
    """The server did not come up; the message holds the end of its log."""


@dataclass(frozen=True)
class S3Bucket:
    """One bucket, and how to reach it."""

    server: "S3Server"
    name: str

    def store(
        self,
        *,
        prefix: str | None = None,
        endpoint: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        max_retries: int = 2,
    ) -> S3Store:
        """A client. `endpoint` puts a proxy in between; other keys than the server's show what is refused."""
        return S3Store(
            self.name,
            prefix=prefix,
            endpoint=endpoint or self.server.endpoint,
            access_key_id=access_key or self.server.access_key,
            secret_access_key=secret_key or self.server.secret_key,
            region=self.server.region,
            client_options={"allow_http": True, "timeout": timedelta(seconds=20)},
            # The client's own patience (10 retries, 3 minutes) would outlast most tests.
            retry_config={"max_retries": max_retries, "retry_timeout": timedelta(seconds=10)},
        )


class S3Server:
    """One server process with its own port, keys and data directory, which it keeps over stop and start."""

    def __init__(self) -> None:
        self.access_key = "epochal-test"
        self.secret_key = secrets.token_urlsafe(24)
        self.region = "us-east-1"
        self.port: int | None = None
        self._binary = ensure_built(VERSITYGW)
        self._home = Path(tempfile.mkdtemp(prefix="epochal-s3-"))
        self.data_dir = self._home / "data"
        self.data_dir.mkdir()
        self._log = self._home / "server.log"
        self._process: Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        if self.port is None:
            raise S3ServerError("the server was never started")
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def make_bucket(self, name: str) -> S3Bucket:
        # The server takes every directory for a bucket, so that no signed request is needed.
        (self.data_dir / name).mkdir()
        return S3Bucket(self, name)

    def start(self) -> None:
        """Start, on the former port if there was one."""
        if self._process is not None:
            raise S3ServerError("the server is running already")
        if self.port is not None:
            if not self._start_on(self.port):
                raise S3ServerError(f"versitygw did not start on its former port {self.port}:\n{self._log_end()}")
            return
        for _ in range(PORT_ATTEMPTS):
            port = free_port()
            if self._start_on(port):
                self.port = port
                return
        raise S3ServerError(f"versitygw did not start:\n{self._log_end()}")

    def stop(self) -> None:
        """Kill the process, as a crash would; what it has acknowledged is on disk."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start_on(self, port: int) -> bool:
        env = os.environ | {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        # Without --keep-alive every request pays for a connection of its own, unlike on S3.
        options = ["--port", f"127.0.0.1:{port}", "--region", self.region, "--keep-alive", "--quiet"]
        with self._log.open("ab") as log:
            self._process = start_server([str(self._binary), *options, "posix", str(self.data_dir)], env=env, log=log)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self._process.poll() is None:
            if holds_port(self._process.pid, port) and _answers(port):
                return True
            time.sleep(0.02)
        self.stop()
        return False

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        # Any answer will do: this request is not signed, so it is refused.
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    else:
        return True
    finally:
        connection.close()


if __name__ == "__main__":
    ensure_built(VERSITYGW)
