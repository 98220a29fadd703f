"""What the control plane's processes are started with: pure, apart from writing their files."""

from dataclasses import dataclass
from pathlib import Path

from cluster.binaries import ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER
from cluster.kubeconfig import write_kubeconfig
from cluster.pki import Identity, Pki

SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
ISSUER = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"

ADMIN = "admin"
API_SERVER = "api-server"
CONTROLLER_MANAGER = "controller-manager"
SCHEDULER = "scheduler"


@dataclass(frozen=True)
class ControlPlaneConfig:
    """One control plane: its directory, and where its API server listens."""

    home: Path
    address: str
    port: int
    # The range of pods' addresses; None for an API server without any node.
    pods: str | None = None
    # Without the controller-manager nobody makes a namespace's `default` service account.
    service_accounts: bool = True

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def pki(self) -> Pki:
        return Pki(self.home / "pki")

    @property
    def etcd_directory(self) -> Path:
        """Where etcd must be started: one of its addresses is a socket's name in the current directory."""
        return self.home / "etcd"

    @property
    def etcd_socket(self) -> Path:
        return self.etcd_directory / "client.sock"

    def kubeconfig(self, identity: str = ADMIN) -> Path:
        return self.home / f"{identity}.kubeconfig"

    def prepare(self) -> None:
        """Make directories, certificates and kubeconfigs that are not there yet."""
        self.etcd_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", ISSUER.removeprefix("https://")]
        hosts = ["localhost", *names, API_SERVICE, *dict.fromkeys(["127.0.0.1", self.address])]
        clients = [
            Identity(ADMIN, "epochal-admin", "system:masters"),
            Identity(CONTROLLER_MANAGER, "system:kube-controller-manager"),
            Identity(SCHEDULER, "system:kube-scheduler"),
        ]
        # The API server is also a client, of the kubelet.
        self.pki.ensure([Identity(API_SERVER, "kube-apiserver", "system:masters", hosts), *clients])
        for client in clients:
            path = self.kubeconfig(client.name)
            write_kubeconfig(path, pki=self.pki, identity=client.name, server=self.server)

    def etcd(self) -> list[str]:
        # Sockets instead of ports: nobody else can have taken them. Only the peers' address, which a single
        # member never uses, has to look like host and port.
        peer = "unix://peer.sock:0"
        return [
            str(ETCD.binary),
            f"--data-dir={self.etcd_directory / 'data'}",
            f"--listen-client-urls=unix://{self.etcd_socket}",
            "--advertise-client-urls=unix://client.sock:0",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # What is lost with the machine's power is a test's cluster.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def api_server(self) -> list[str]:
        pair = self.pki.pair(API_SERVER)
        # An API server without a node has an address that Kubernetes does not take for an endpoint: loopback.
        own_endpoint = [] if self.pods else ["--endpoint-reconciler-type=none"]
        without_accounts = [] if self.service_accounts else ["--disable-admission-plugins=ServiceAccount"]
        return [
            str(KUBE_APISERVER.binary),
            f"--etcd-servers=unix://{self.etcd_socket}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
            f"--client-ca-file={self.pki.authority.certificate}",
            f"--kubelet-certificate-authority={self.pki.authority.certificate}",
            f"--kubelet-client-certificate={pair.certificate}",
            f"--kubelet-client-key={pair.key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={self.pki.service_account_key}",
            f"--service-account-signing-key-file={self.pki.service_account_key}",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            # It stops at once: no load balancer has to notice first.
            "--shutdown-delay-duration=0s",
            *own_endpoint,
            *without_accounts,
        ]

    def controller_manager(self) -> list[str]:
        pods = [f"--cluster-cidr={self.pods}", "--allocate-node-cidrs=true"] if self.pods else []
        return [
            str(KUBE_CONTROLLER_MANAGER.binary),
            f"--kubeconfig={self.kubeconfig(CONTROLLER_MANAGER)}",
            f"--service-account-private-key-file={self.pki.service_account_key}",
            f"--root-ca-file={self.pki.authority.certificate}",
            f"--service-cluster-ip-range={SERVICES}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            # Nobody asks it anything, so it needs no port.
            "--secure-port=0",
            *pods,
        ]

    def scheduler(self) -> list[str]:
        return [
            str(KUBE_SCHEDULER.binary),
            f"--kubeconfig={self.kubeconfig(SCHEDULER)}",
            "--leader-elect=false",
            "--secure-port=0",
        ]
