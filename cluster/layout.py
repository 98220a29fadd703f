"""Names, addresses and directories of the cluster that is made of plain processes."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from cluster.gobuild import cache_dir

NODE_NAME = "epochal"
# The node has a network of its own, joined with the machine's by a pair of links.
HOST_LINK = "epochal0"
NODE_LINK = "node0"
HOST_ADDRESS = "172.30.0.1"
NODE_ADDRESS = "172.30.0.2"
JOINT = IPv4Network("172.30.0.0/30")
PODS = IPv4Network("10.244.0.0/24")
POD_BRIDGE = "pods0"
API_PORT = 6443
S3_PORT = 9000
CGROUP = "epochal"


@dataclass(frozen=True)
class Layout:
    """Directories. `state` goes with `down`; images are kept, so that the next start takes seconds."""

    home: Path

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def containerd(self) -> Path:
        """Images as containerd has them."""
        return self.home / "containerd"

    @property
    def images(self) -> Path:
        """Images as they are built."""
        return self.home / "images"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "admin.kubeconfig"


def layout() -> Layout:
    return Layout(cache_dir() / "cluster")
