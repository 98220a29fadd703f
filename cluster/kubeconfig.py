"""Kubeconfig files: who asks, which API server, and by which certificate."""

import base64
from pathlib import Path

import yaml

from cluster.pki import Pki


def write_kubeconfig(path: Path, *, pki: Pki, identity: str, server: str) -> None:
    """Write a kubeconfig that holds its certificates itself, so that it can be copied anywhere."""
    pair = pki.pair(identity)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "epochal",
                "cluster": {"server": server, "certificate-authority-data": _encoded(pki.authority.certificate)},
            }
        ],
        "users": [
            {
                "name": identity,
                "user": {
                    "client-certificate-data": _encoded(pair.certificate),
                    "client-key-data": _encoded(pair.key),
                },
            }
        ],
        "contexts": [{"name": "epochal", "context": {"cluster": "epochal", "user": identity}}],
        "current-context": "epochal",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Others may be reading it.
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.touch(mode=0o600)
    unfinished.write_text(yaml.safe_dump(config, sort_keys=False))
    unfinished.rename(path)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
