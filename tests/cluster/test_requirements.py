"""What a machine lacks is said plainly."""

import os
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.network import overlapping
from cluster.requirements import missing_packages, require_root, require_space


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"needs root.*sudo, or install Docker"):
        require_root()


def test_no_space(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"GB free, and the cluster needs 1073741824 GB.*EPOCHAL_CACHE"):
        require_space(tmp_path / "cache", needed=1 << 60)


def test_enough_space(tmp_path: Path) -> None:
    require_space(tmp_path / "cache", needed=1)
    assert (tmp_path / "cache").is_dir()


def test_missing_packages_are_named(tmp_path: Path) -> None:
    (tmp_path / "runc").touch()
    packages = {str(tmp_path / "runc"): "runc", str(tmp_path / "containerd"): "containerd"}
    assert missing_packages(packages) == ["containerd"]


def test_routes_into_the_ranges_of_the_cluster_are_found() -> None:
    routes = [
        {"dst": "default", "dev": "eth0"},
        {"dst": "192.0.2.0/24", "dev": "eth0"},
        {"dst": "10.244.0.0/16", "dev": "flannel.1"},
        {"dst": "10.96.0.1", "dev": "tun0"},
        {"dst": "10.96.0.0/16", "dev": "epochal0"},
    ]
    assert overlapping(routes) == ["10.244.0.0/16 by flannel.1", "10.96.0.1 by tun0"]
