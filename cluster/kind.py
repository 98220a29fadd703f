"""The same cluster by kind, where a Docker engine answers. kind itself brings network, DNS and storage."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from cluster import s3
from cluster.binaries import KIND, VERSITYGW
from cluster.buildah import SCRATCH, scratch_image
from cluster.errors import ClusterError
from cluster.gobuild import ensure_built
from cluster.images import PROJECT, REPOSITORY
from cluster.kubectl import kubectl
from cluster.layout import Layout
from cluster.progress import step
from cluster.reload import restart_deployments

NAME = "epochal"
CONFIG = REPOSITORY / "kind-config.yaml"
MANIFEST = Path(__file__).parent / "manifests" / "s3.yaml"
S3_IMAGE = "localhost/epochal-versitygw:VERSION"
S3_NODE_PORT = 30900
WAIT = "180s"


def docker_answers() -> bool:
    """Whether there is a Docker engine, not only its command."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        done = subprocess.run(
            [docker, "info", "--format", "{{.ServerVersion}}"], capture_output=True, check=False, timeout=10
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class KindCluster:
    """The cluster named `epochal` of this machine's Docker engine."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    def up(self) -> None:
        self.layout.state.mkdir(parents=True, exist_ok=True)
        if not self._exists():
            with step("kind cluster"):
                self._kind(
                    "create", "cluster", f"--config={CONFIG}", f"--kubeconfig={self.kubeconfig}", f"--wait={WAIT}"
                )
        else:
            self._kind("export", "kubeconfig", f"--kubeconfig={self.kubeconfig}")
        with step("images"):
            self._build_project()
            self._build_s3()
            self._load(*PROJECT.values(), scratch_image(VERSITYGW))
        with step("S3 server"):
            self._start_s3()

    def down(self) -> None:
        self._kind("delete", "cluster")
        shutil.rmtree(self.layout.state, ignore_errors=True)

    def reload(self) -> None:
        if not self._exists():
            raise ClusterError("no cluster is running: start one with `make cluster`")
        with step("images"):
            self._build_project()
            self._load(*PROJECT.values())
        restart_deployments(self.kubeconfig, list(PROJECT.values()))

    def describe(self) -> tuple[bool, list[str]]:
        if not self._exists():
            return False, ["not running: start it with `make cluster`"]
        access = s3.read_access(self.layout)
        return True, [
            *kubectl(self.kubeconfig, "get", "nodes").splitlines(),
            f"S3       {access.endpoint}, bucket {access.bucket}, keys in {s3.access_file(self.layout)}",
            f"kubectl  export KUBECONFIG={self.kubeconfig}",
        ]

    def _exists(self) -> bool:
        return NAME in _run([_kind_binary(), "get", "clusters"]).split()

    def _kind(self, *arguments: str) -> None:
        _run([_kind_binary(), *arguments, f"--name={NAME}"])

    def _build_project(self) -> None:
        for target, image in PROJECT.items():
            _run(["docker", "build", "--quiet", f"--target={target}", f"--tag={image}", str(REPOSITORY)])

    def _build_s3(self) -> None:
        with tempfile.TemporaryDirectory() as context:
            shutil.copy(ensure_built(VERSITYGW), Path(context) / "program")
            (Path(context) / "Dockerfile").write_text(SCRATCH)
            _run(["docker", "build", "--quiet", f"--tag={scratch_image(VERSITYGW)}", context])

    def _load(self, *images: str) -> None:
        self._kind("load", "docker-image", *images)

    def _start_s3(self) -> None:
        """The server is reached by the node's address, from pods and from the machine alike."""
        nodes = json.loads(kubectl(self.kubeconfig, "get", "nodes", "--output=json"))["items"]
        address = next(a["address"] for a in nodes[0]["status"]["addresses"] if a["type"] == "InternalIP")
        access = s3.ensure_access(self.layout, endpoint=f"http://{address}:{S3_NODE_PORT}")
        kubectl(self.kubeconfig, "apply", "--filename=-", stdin=s3_manifest(access))
        kubectl(self.kubeconfig, "rollout", "status", "--namespace=epochal-s3", f"--timeout={WAIT}", "deployment/s3")


def s3_manifest(access: s3.S3Access) -> str:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s3", "namespace": "epochal-s3"},
        "stringData": {"ROOT_ACCESS_KEY": access.access_key, "ROOT_SECRET_KEY": access.secret_key},
    }
    return f"{MANIFEST.read_text().replace(S3_IMAGE, scratch_image(VERSITYGW))}---\n{json.dumps(secret)}\n"


def _kind_binary() -> str:
    return shutil.which("kind") or str(ensure_built(KIND))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command[:3])} ended with {done.returncode}: {done.stderr[-3000:].strip()}")
    return done.stdout
