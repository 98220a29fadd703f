"""A real S3 server for tests: versitygw on a directory."""

import http.client
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from obstore.store import S3Store

from cluster.binaries import VERSITYGW
from cluster.gobuild import ensure_built
from tests.support.server import LOOPBACK, Server


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


class S3Server(Server):
    """What it has acknowledged is on disk, also when it is stopped like a crash."""

    name = "s3"

    def __init__(self, *, host: str = LOOPBACK) -> None:
        super().__init__(host=host)
        self.access_key = "epochal-test"
        self.secret_key = secrets.token_urlsafe(24)
        self.region = "us-east-1"
        self._binary = ensure_built(VERSITYGW)
        self.data_dir = self._home / "data"
        self.data_dir.mkdir()

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    def make_bucket(self, name: str) -> S3Bucket:
        # The server takes every directory for a bucket, so that no signed request is needed.
        (self.data_dir / name).mkdir()
        return S3Bucket(self, name)

    def _command(self, port: int) -> list[str]:
        # Without --keep-alive every request pays for a connection of its own, unlike on S3.
        options = ["--port", f"{self.host}:{port}", "--region", self.region, "--keep-alive", "--quiet"]
        return [str(self._binary), *options, "posix", str(self.data_dir)]

    def _env(self) -> Mapping[str, str]:
        return os.environ | {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}

    def _answers(self, port: int) -> bool:
        connection = http.client.HTTPConnection(self.host, port, timeout=2)
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
