"""What the node's processes are started with: containerd, kubelet, kube-proxy and the network of pods."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.binaries import KUBE_PROXY, KUBELET, PAUSE
from cluster.buildah import scratch_image
from cluster.control_plane_config import CLUSTER_DOMAIN, DNS_SERVICE, ControlPlaneConfig
from cluster.kubeconfig import write_kubeconfig
from cluster.layout import CGROUP, NODE_ADDRESS, NODE_NAME, POD_BRIDGE, PODS, Layout
from cluster.pki import Identity

CONTAINERD = "/usr/bin/containerd"
CNI_PLUGINS = "/usr/lib/cni"
KUBELET_IDENTITY = "kubelet"
PROXY_IDENTITY = "kube-proxy"


@dataclass(frozen=True)
class NodeConfig:
    layout: Layout
    control_plane: ControlPlaneConfig

    @property
    def containerd_socket(self) -> Path:
        # In a directory that only the node sees: a path of any length would not do for a socket.
        return Path("/run/containerd/containerd.sock")

    def prepare(self) -> None:
        """Make files and certificates that are not there, or not as this version wants them."""
        state, pki = self.layout.state, self.control_plane.pki
        for directory in ("cni", "kubelet", "pod-logs"):
            (state / directory).mkdir(parents=True, exist_ok=True)
        identities = [
            Identity(KUBELET_IDENTITY, f"system:node:{NODE_NAME}", "system:nodes", hosts=(NODE_NAME, NODE_ADDRESS)),
            Identity(PROXY_IDENTITY, "system:kube-proxy"),
        ]
        pki.ensure(identities)
        for identity in identities:
            path = self.control_plane.kubeconfig(identity.name)
            write_kubeconfig(path, pki=pki, identity=identity.name, server=self.control_plane.server)
        _write(state / "containerd.toml", self.containerd_config())
        _write(state / "cni" / "10-pods.conflist", json.dumps(self.pod_network(), indent=2))
        _write(state / "kubelet.yaml", yaml.safe_dump(self.kubelet_config()))
        _write(state / "kube-proxy.yaml", yaml.safe_dump(self.proxy_config()))

    def containerd(self) -> list[str]:
        return [CONTAINERD, f"--config={self.layout.state / 'containerd.toml'}", "--log-level=warn"]

    def kubelet(self) -> list[str]:
        return [
            str(KUBELET.binary),
            f"--config={self.layout.state / 'kubelet.yaml'}",
            f"--kubeconfig={self.control_plane.kubeconfig(KUBELET_IDENTITY)}",
            f"--root-dir={self.layout.state / 'kubelet'}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
        ]

    def proxy(self) -> list[str]:
        return [str(KUBE_PROXY.binary), f"--config={self.layout.state / 'kube-proxy.yaml'}"]

    def containerd_config(self) -> str:
        # Without CAP_SYS_RESOURCE, as in many virtual machines, no process may be made less likely to be killed
        # than its parent: hence both settings of the OOM score.
        return f"""version = 2
root = {json.dumps(str(self.layout.containerd))}
state = "/run/containerd"
oom_score = 0

[grpc]
address = "{self.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{scratch_image(PAUSE)}"
disable_apparmor = true
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = {json.dumps(str(self.layout.state / "cni"))}
"""

    def pod_network(self) -> dict[str, Any]:
        bridge = {
            "type": "bridge",
            "bridge": POD_BRIDGE,
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": str(PODS)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                # Not kept: a node that starts anew has no pods that could still hold an address.
                "dataDir": "/run/cni",
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}

    def kubelet_config(self) -> dict[str, Any]:
        pair = self.control_plane.pki.pair(KUBELET_IDENTITY)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.control_plane.pki.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pair.certificate),
            "tlsPrivateKeyFile": str(pair.key),
            "containerRuntimeEndpoint": f"unix://{self.containerd_socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "clusterDNS": [DNS_SERVICE],
            "clusterDomain": CLUSTER_DOMAIN,
            # The machine's name servers cannot be reached from the node's network.
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(self.layout.state / "pod-logs"),
            # Nobody could pull an image again that was collected here.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "serializeImagePulls": False,
            # Pods are few and short-lived here, and tests wait for them.
            "syncFrequency": "10s",
            # The first report may come too early to say Ready; the next decides how long a start takes.
            "nodeStatusUpdateFrequency": "2s",
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
        }

    def proxy_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.control_plane.kubeconfig(PROXY_IDENTITY))},
            "mode": "iptables",
            "clusterCIDR": str(PODS),
            "hostnameOverride": NODE_NAME,
            "oomScoreAdj": 0,
            # Settings of the machine's kernel, which are not the node's to change.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
            # Rules follow the services at once; the default waits for a second.
            "iptables": {"minSyncPeriod": "0s"},
        }


def _write(path: Path, content: str) -> None:
    # kube-proxy ends when its file is written, even with the same words.
    if not path.exists() or path.read_text() != content:
        path.write_text(content)
