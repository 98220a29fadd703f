"""A single-node Kubernetes of plain processes: up, down, and what its parts are."""

import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from cluster import api, cgroups, images, namespaces, network, s3
from cluster.binaries import CONTROL_PLANE, COREDNS, NODE, VERSITYGW
from cluster.buildah import RUN_ROOT, Buildah, scratch_image
from cluster.containerd import Containerd
from cluster.control_plane_config import DNS_SERVICE, ControlPlaneConfig
from cluster.daemons import Daemon, Daemons, started_at
from cluster.errors import ClusterError
from cluster.gobuild import ensure_built
from cluster.kubectl import kubectl
from cluster.layout import API_PORT, NODE_ADDRESS, NODE_NAME, PODS, Layout
from cluster.namespaces import Namespaces
from cluster.node_config import NodeConfig
from cluster.progress import say, step
from cluster.reload import restart_deployments
from cluster.requirements import (
    NEEDED_SPACE,
    NEEDED_SPACE_WARM,
    is_root,
    missing_packages,
    require_packages,
    require_root,
    require_space,
)

MANIFESTS = Path(__file__).parent / "manifests"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE_NAME}"
NODE_PATH = f"/api/v1/nodes/{NODE_NAME}"
# What the API server gave to the node, and what the node's kubelet says it has.
GIVEN_PODS = f"/api/v1/pods?fieldSelector=spec.nodeName={NODE_NAME},status.phase=Running"
KNOWN_PODS = f"{NODE_PATH}/proxy/pods"
DNS_PATH = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
# As the manifest has it; the version is that of the program.
DNS_IMAGE = "localhost/epochal-coredns:VERSION"
DNS_PORT = 53
START_TIMEOUT = 90.0


class Node:
    """The cluster of one cache directory."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.control_plane = ControlPlaneConfig(home=layout.state, address=NODE_ADDRESS, port=API_PORT, pods=str(PODS))
        self.config = NodeConfig(layout, self.control_plane)

    @property
    def kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig()

    @property
    def namespaces(self) -> Namespaces:
        found = namespaces.find(self.layout.home)
        if found is None:
            raise ClusterError("no cluster is running: start one with `make cluster`")
        return found

    @property
    def runs(self) -> bool:
        return namespaces.find(self.layout.home) is not None

    @property
    def daemons(self) -> Daemons:
        return Daemons(self.namespaces, self.layout.logs)

    @property
    def containerd(self) -> Containerd:
        return Containerd(self.namespaces, self.config.containerd_socket)

    @cached_property
    def parts(self) -> dict[str, Daemon]:
        """Every process of the cluster by its name, in the order of their start."""
        plane, node = self.control_plane, self.config
        daemons = [
            Daemon("containerd", node.containerd()),
            Daemon("etcd", plane.etcd(), cwd=plane.etcd_directory),
            Daemon("kube-apiserver", plane.api_server()),
            Daemon("kube-controller-manager", plane.controller_manager()),
            Daemon("kube-scheduler", plane.scheduler()),
            Daemon("kubelet", node.kubelet()),
            Daemon("kube-proxy", node.proxy()),
            s3.daemon(self.layout),
        ]
        return {daemon.name: daemon for daemon in daemons}

    def up(self) -> None:
        """Make the cluster, or what is missing of it."""
        require_root()
        self.build()
        self.boot()

    def build(self) -> None:
        """Programs, and images where there is root to run them: what is there already takes no time."""
        with ThreadPoolExecutor(1) as pool:
            # Mostly the network's and the package manager's work, so it goes well with compiling.
            project = pool.submit(self._build_project) if is_root() else None
            for program in (*CONTROL_PLANE, *NODE, VERSITYGW):
                ensure_built(program)
            if project:
                project.result()
                images.build_system(self.layout)

    def _build_project(self) -> None:
        warm = self.layout.containerd.exists()
        require_space(self.layout.home, needed=NEEDED_SPACE_WARM if warm else NEEDED_SPACE)
        require_packages()
        images.build_project(self.layout)

    def boot(self) -> None:
        """Start all that does not run, in the order in which one needs the other; programs and images are there."""
        with step("namespaces, links and files of the node"):
            self._lay_out()
        with step("API server"):
            self._start_control_plane()
        with step("containerd"):
            self._start("containerd")
            self._wait(self.containerd.answers, "containerd")
        images.load(self.layout, self.containerd)
        with step("node"):
            self._start("kube-scheduler", "kubelet", "kube-proxy", "versitygw")
            # containerd answers before it has looked at its pods, and until then the kubelet gives up.
            self._wait(self.node_is_ready, "containerd", restarted="kubelet")
        with step("DNS"):
            self._apply_dns()
            self._wait(self.dns_is_ready, "kubelet", "kube-scheduler", "kube-controller-manager")

    def down(self) -> None:
        """End all processes and remove all that is not an image."""
        require_root()
        if running := namespaces.find(self.layout.home):
            with step("end the node's processes"):
                namespaces.destroy(running)
        cgroups.remove()
        namespaces.remove_mount_points()
        shutil.rmtree(self.layout.state, ignore_errors=True)
        if self.layout.images.exists() and not missing_packages():
            with step("remove images that were built anew since"):
                Buildah(self.layout).prune()
        shutil.rmtree(RUN_ROOT, ignore_errors=True)

    def reload(self) -> None:
        """Bring what was edited into the running cluster: only the last layers of images are built and loaded."""
        if not self.api_is_ready():
            raise ClusterError("no cluster is running: start one with `make cluster`")
        images.build_project(self.layout)
        changed = images.load(self.layout, self.containerd)
        if not changed:
            say("nothing has changed since the last time")
        restart_deployments(self.kubeconfig, changed)

    def describe(self) -> tuple[bool, list[str]]:
        """Whether all is well, and the lines that tell it."""
        if not self.runs:
            return False, ["not running: start it with `make cluster`"]
        pids = {name: self.daemons.pid(daemon) for name, daemon in self.parts.items()}
        ready = {"API server": self.api_is_ready(), "node": self.node_is_ready(), "DNS": self.dns_is_ready()}
        well = all(pids.values()) and all(ready.values())
        access = s3.read_access(self.layout)
        return well, [
            *(f"{name:<26}{f'process {pid}' if pid else 'not running'}" for name, pid in pids.items()),
            *(f"{what:<26}{'ready' if so else 'not ready'}" for what, so in ready.items()),
            f"{'S3':<26}{access.endpoint}, bucket {access.bucket}, keys in {s3.access_file(self.layout)}",
            f"{'logs':<26}{self.layout.logs}",
            f"{'kubectl':<26}export KUBECONFIG={self.kubeconfig}",
            *([] if well else ["`make cluster` starts what is missing"]),
        ]

    def api_is_ready(self) -> bool:
        return api.answers(self.control_plane, "/readyz")

    def node_is_ready(self) -> bool:
        """Whether the node says Ready, and said so a moment ago: after a restart the stored word is an old one."""
        node, lease = api.get(self.control_plane, NODE_PATH), api.get(self.control_plane, LEASE)
        if node is None or lease is None:
            return False
        renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
        kubelet = self.daemons.pid(self.parts["kubelet"])
        if kubelet is None or renewed < started_at(kubelet):
            return False
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"]):
            return False
        return self._kubelet_knows_its_pods()

    def _kubelet_knows_its_pods(self) -> bool:
        """Whether it has heard of every pod that runs: until then it would say of one that it does not exist."""
        given, known = (api.get(self.control_plane, path) for path in (GIVEN_PODS, KNOWN_PODS))
        if given is None or known is None:
            return False
        return _uids(given) <= _uids(known)

    def dns_is_ready(self) -> bool:
        """Whether it says so and listens: after a restart the stored word is an old one, here too."""
        deployment = api.get(self.control_plane, DNS_PATH)
        if not deployment or deployment["status"].get("readyReplicas", 0) == 0:
            return False
        try:
            socket.create_connection((DNS_SERVICE, DNS_PORT), timeout=1).close()
        except OSError:
            return False
        return True

    def _lay_out(self) -> None:
        if not self.runs:
            namespaces.create(self.layout.home)
        network.join(self.namespaces)
        cgroups.create()
        self.control_plane.prepare()
        self.config.prepare()
        s3.prepare(self.layout)

    def _start_control_plane(self) -> None:
        self._start("etcd", "kube-apiserver")
        self._wait(self.api_is_ready, "etcd", "kube-apiserver")
        self._start("kube-controller-manager")

    def _apply_dns(self) -> None:
        manifest = (MANIFESTS / "coredns.yaml").read_text().replace(DNS_IMAGE, scratch_image(COREDNS))
        kubectl(self.kubeconfig, "apply", "--filename=-", stdin=manifest)

    def _start(self, *names: str) -> None:
        for name in names:
            self.daemons.start(self.parts[name])

    def _wait(self, ready: Callable[[], bool], *needs: str, restarted: str | None = None) -> None:
        self.daemons.wait(
            ready,
            what=restarted or needs[-1],
            needs=[self.parts[name] for name in needs],
            restarted=[self.parts[restarted]] if restarted else [],
            timeout=START_TIMEOUT,
        )


def _uids(pods: dict[str, Any]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods["items"] or []}
