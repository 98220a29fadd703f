"""The programs that a cluster is made of, each pinned by a go.mod under `cluster/go/`."""

from pathlib import Path

from cluster.gobuild import GoProgram

SOURCES = Path(__file__).parent / "go"

ETCD = GoProgram(
    name="etcd",
    directory=SOURCES / "kubernetes",
    module="go.etcd.io/etcd/server/v3",
    package="go.etcd.io/etcd/server/v3",
)


def _kubernetes(name: str) -> GoProgram:
    return GoProgram(
        name=name,
        directory=SOURCES / "kubernetes",
        module="k8s.io/kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        # Without this it takes itself for v0.0.0, which clients and version checks do not like.
        version_variable="k8s.io/component-base/version.gitVersion",
    )


KUBE_APISERVER = _kubernetes("kube-apiserver")
KUBE_CONTROLLER_MANAGER = _kubernetes("kube-controller-manager")
KUBE_SCHEDULER = _kubernetes("kube-scheduler")
KUBELET = _kubernetes("kubelet")
KUBE_PROXY = _kubernetes("kube-proxy")
KUBECTL = _kubernetes("kubectl")

COREDNS = GoProgram(
    name="coredns",
    directory=SOURCES / "coredns",
    module="github.com/coredns/coredns",
    package=".",
)
PAUSE = GoProgram(
    name="pause",
    directory=SOURCES / "pause",
    module="epochal/cluster/pause",
    package=".",
    own_version="1",
)
VERSITYGW = GoProgram(
    name="versitygw",
    directory=SOURCES / "versitygw",
    module="github.com/versity/versitygw",
    package="github.com/versity/versitygw/cmd/versitygw",
)
# Only where a Docker engine answers.
KIND = GoProgram(name="kind", directory=SOURCES / "kind", module="sigs.k8s.io/kind", package="sigs.k8s.io/kind")

CONTROL_PLANE = (ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER)
NODE = (KUBE_SCHEDULER, KUBELET, KUBE_PROXY, COREDNS, PAUSE)
