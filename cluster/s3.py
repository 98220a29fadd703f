"""The cluster's S3 server: versitygw on the node's address, with one bucket and keys of its own."""

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.binaries import VERSITYGW
from cluster.daemons import Daemon
from cluster.errors import ClusterError
from cluster.layout import NODE_ADDRESS, S3_PORT, Layout

BUCKET = "epochal"
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Access:
    """How to reach the bucket, from pods and from the machine alike."""

    endpoint: str
    bucket: str
    region: str
    access_key: str
    secret_key: str


def access_file(layout: Layout) -> Path:
    return layout.state / "s3.json"


def read_access(layout: Layout) -> S3Access:
    return S3Access(**json.loads(access_file(layout).read_text()))


def secret_of(layout: Layout) -> dict[str, Any]:
    """The Secret that a job names in ``credentialsSecret``."""
    if not access_file(layout).exists():
        raise ClusterError("there is no cluster yet: run `make cluster`")
    access = read_access(layout)
    keys = {"AWS_ACCESS_KEY_ID": access.access_key, "AWS_SECRET_ACCESS_KEY": access.secret_key}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}, "stringData": keys}


def data_dir(layout: Layout) -> Path:
    return layout.state / "s3"


def ensure_access(layout: Layout, *, endpoint: str) -> S3Access:
    """The keys: made once, kept as long as the cluster."""
    file = access_file(layout)
    if not file.exists():
        access = S3Access(endpoint, BUCKET, REGION, access_key="epochal", secret_key=secrets.token_urlsafe(24))
        unfinished = file.with_name(f".{file.name}.unfinished")
        unfinished.touch(mode=0o600)
        unfinished.write_text(json.dumps(asdict(access), indent=2))
        unfinished.rename(file)
    return read_access(layout)


def prepare(layout: Layout) -> None:
    """Make the bucket and the keys of a server on the node."""
    # The server takes every directory for a bucket.
    (data_dir(layout) / BUCKET).mkdir(parents=True, exist_ok=True)
    ensure_access(layout, endpoint=f"http://{NODE_ADDRESS}:{S3_PORT}")


def daemon(layout: Layout) -> Daemon:
    access = read_access(layout)
    # Without --keep-alive every request pays for a connection of its own, unlike on S3.
    options = ["--port", f"{NODE_ADDRESS}:{S3_PORT}", "--region", REGION, "--keep-alive", "--quiet"]
    return Daemon(
        "versitygw",
        [str(VERSITYGW.binary), *options, "posix", str(data_dir(layout))],
        env={"ROOT_ACCESS_KEY": access.access_key, "ROOT_SECRET_KEY": access.secret_key},
    )
