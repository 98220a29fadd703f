"""What the cluster's processes are started with."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from cluster.binaries import CONTROL_PLANE, KUBE_APISERVER, NODE, VERSITYGW
from cluster.control_plane_config import ControlPlaneConfig
from cluster.layout import NODE_ADDRESS, Layout
from cluster.node_config import NodeConfig


def plane(home: Path, *, pods: str | None = None, service_accounts: bool = True) -> ControlPlaneConfig:
    return ControlPlaneConfig(home, "127.0.0.1", 6443, pods, service_accounts)


@pytest.fixture
def node_config(tmp_path: Path) -> NodeConfig:
    layout = Layout(tmp_path)
    return NodeConfig(layout, ControlPlaneConfig(layout.state, NODE_ADDRESS, 6443, "10.244.0.0/24"))


def test_every_program_has_a_pinned_version_and_a_place_of_its_own() -> None:
    programs = (*CONTROL_PLANE, *NODE, VERSITYGW)
    assert KUBE_APISERVER.version == "1.34.4"
    assert len({program.binary for program in programs}) == len(programs)
    for program in programs:
        assert program.binary.name == f"{program.name}-{program.version}"


def test_etcd_takes_no_port(tmp_path: Path) -> None:
    urls = [argument for argument in plane(tmp_path).etcd() if "-urls=" in argument]
    assert len(urls) == 4
    assert all("unix://" in url for url in urls)


def test_an_api_server_without_a_node_does_not_make_loopback_an_endpoint(tmp_path: Path) -> None:
    none = "--endpoint-reconciler-type=none"
    assert none in plane(tmp_path).api_server()
    assert none not in plane(tmp_path, pods="10.244.0.0/24").api_server()


def test_without_service_accounts_pods_can_be_made_nevertheless(tmp_path: Path) -> None:
    off = "--disable-admission-plugins=ServiceAccount"
    assert off in plane(tmp_path, service_accounts=False).api_server()
    assert off not in plane(tmp_path).api_server()


def test_every_client_gets_a_kubeconfig(tmp_path: Path) -> None:
    config = plane(tmp_path)
    config.prepare()
    for identity in ("admin", "controller-manager", "scheduler"):
        read = yaml.safe_load(config.kubeconfig(identity).read_text())
        assert read["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"


def test_containerd_writes_into_the_cache_and_into_what_only_the_node_sees(
    node_config: NodeConfig, tmp_path: Path
) -> None:
    config = tomllib.loads(node_config.containerd_config())
    assert config["root"] == str(tmp_path / "containerd")
    assert config["state"].startswith("/run/")
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "localhost/epochal-pause:1"
    assert cri["restrict_oom_score_adj"] is True


def test_all_files_are_written_and_can_be_read(node_config: NodeConfig) -> None:
    node_config.control_plane.prepare()
    node_config.prepare()
    state = node_config.layout.state
    kubelet = yaml.safe_load((state / "kubelet.yaml").read_text())
    assert Path(kubelet["tlsCertFile"]).exists()
    assert Path(kubelet["authentication"]["x509"]["clientCAFile"]).exists()
    proxy = yaml.safe_load((state / "kube-proxy.yaml").read_text())
    assert Path(proxy["clientConnection"]["kubeconfig"]).exists()
    network = json.loads((state / "cni" / "10-pods.conflist").read_text())
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.0.0/24"}]]
    assert tomllib.loads((state / "containerd.toml").read_text())["version"] == 2


def test_files_that_are_right_are_not_written_again(node_config: NodeConfig) -> None:
    node_config.control_plane.prepare()
    node_config.prepare()
    files = [node_config.layout.state / name for name in ("kube-proxy.yaml", "kubelet.yaml", "containerd.toml")]
    before = [file.stat().st_mtime_ns for file in files]
    files[1].write_text("of an older version")
    node_config.prepare()
    assert [file.stat().st_mtime_ns for file in (files[0], files[2])] == [before[0], before[2]]
    assert "KubeletConfiguration" in files[1].read_text()
