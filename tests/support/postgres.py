"""A real PostgreSQL server for tests: a cluster of its own in a temporary directory, on loopback, never as root."""

import os
import pwd
import secrets
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from tests.support.server import LOOPBACK, Server, ServerError

USER = "epochal"
PACKAGE = "postgresql"
LONGEST = 600


class PostgresServer(Server):
    name = "postgres"
    start_timeout = 60.0

    def __init__(self, *, host: str = LOOPBACK) -> None:
        super().__init__(host=host)
        self.password = secrets.token_urlsafe(12)
        self._binaries = binaries()
        self._data = self._home / "data"
        self._as_user = _as_user()
        self._make_cluster()

    def dsn(self, database: str = "postgres", *, user: str = USER, password: str | None = None) -> str:
        return f"postgresql://{user}:{password or self.password}@{self.address}/{database}"

    def make_database(self) -> str:
        """The DSN of a database that no other test knows."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.dsn(), autocommit=True) as db:
            db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn(name)

    def _make_cluster(self) -> None:
        secret = self._home / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            user = pwd.getpwnam(_other_user())
            for path in (self._home, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        options = ["--username", USER, "--pwfile", str(secret), "--auth", "scram-sha-256", "--encoding", "UTF8"]
        done = subprocess.run(
            [*self._as_user, str(self._binaries / "initdb"), "-D", str(self._data), *options, "--no-sync"],
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
            cwd=self._home,
        )
        if done.returncode != 0:
            raise ServerError(f"initdb failed: {done.stderr[-2000:]}")
        if self.host != LOOPBACK:
            # What initdb writes lets in nobody from elsewhere.
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all all scram-sha-256\n")

    def _command(self, port: int) -> Sequence[str]:
        settings = {
            "listen_addresses": self.host,
            "port": str(port),
            "unix_socket_directories": "",
            # What a killed process has written stays, and these tests do not cut the power.
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": "30",
        }
        given = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [*self._as_user, str(self._binaries / "postgres"), "-D", str(self._data), *given]

    def _answers(self, port: int) -> bool:
        try:
            psycopg.connect(f"postgresql://{USER}:{self.password}@{self.host}:{port}/postgres").close()
        except psycopg.OperationalError:
            return False
        return True


def binaries() -> Path:
    """Where the newest PostgreSQL of this machine is; Debian's package is installed if need be."""
    if found := _found():
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {PACKAGE} with apt-get (once per machine)", file=sys.stderr, flush=True)
        # Debian would make a cluster of its own and start it, which nobody needs here.
        settings = Path("/etc/postgresql-common/createcluster.conf")
        if not settings.exists():
            settings.parent.mkdir(exist_ok=True)
            settings.write_text("create_main_cluster = false\n")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        options = ["-o", "DPkg::Options::=--force-confold", "--no-install-recommends"]
        for command in (["update"], ["-y", "install", *options, PACKAGE]):
            subprocess.run(
                ["apt-get", "-qq", *command], env=environment, stdout=sys.stderr, check=True, timeout=LONGEST
            )
        if found := _found():
            return found
    raise ServerError("PostgreSQL is needed: please install it (its initdb on PATH) and try again")


def _found() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    if debian:
        return debian[-1].parent
    other = shutil.which("initdb")
    return Path(other).resolve().parent if other else None


def _as_user() -> list[str]:
    """PostgreSQL refuses to run as root. The signal for the parent's end is asked for anew: a change of user drops
    it."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(_other_user())
    change = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups", "--pdeathsig", "KILL"]
    return ["setpriv", *change, "--"]


def _other_user() -> str:
    known = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


if __name__ == "__main__":
    binaries()
