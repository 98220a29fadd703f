"""Bringing images from an OCI layout into the node's containerd: only blobs that it has not got."""

import json
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from cluster.errors import ClusterError
from cluster.namespaces import Namespaces

# Where the kubelet looks for images.
NAMESPACE = "k8s.io"
REFERENCE = "org.opencontainers.image.ref.name"
CONTAINERD_NAME = "io.containerd.image.name"


@dataclass(frozen=True)
class OciLayout:
    """A directory as `skopeo copy … oci:DIRECTORY:NAME` writes it."""

    directory: Path

    def manifest(self, image: str) -> dict[str, Any]:
        """The image's entry in the index."""
        for entry in self._index()["manifests"]:
            if entry.get("annotations", {}).get(REFERENCE) == image:
                found: dict[str, Any] = entry
                return found
        raise ClusterError(f"{self.directory} holds no image {image}")

    def blobs(self, image: str) -> list[str]:
        """Digests of all that the image consists of."""
        digest = self.manifest(image)["digest"]
        manifest = json.loads(self.blob(digest).read_text())
        return [digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]

    def blob(self, digest: str) -> Path:
        return self.directory / "blobs" / digest.replace(":", "/")

    def prune(self) -> None:
        """Remove blobs of images that were built anew since."""
        index = self._index()
        named = [entry["annotations"][REFERENCE] for entry in index["manifests"] if "annotations" in entry]
        used = {self.blob(digest) for image in named for digest in self.blobs(image)}
        for path in (self.directory / "blobs" / "sha256").iterdir():
            if path not in used:
                path.unlink()

    def _index(self) -> dict[str, Any]:
        index: dict[str, Any] = json.loads((self.directory / "index.json").read_text())
        return index


@dataclass(frozen=True)
class Containerd:
    namespaces: Namespaces
    socket: Path

    def has(self, image: str, digest: str) -> bool:
        """Whether the image of this name is this very one."""
        for line in self._ctr("images", "list", f"name=={image}").splitlines()[1:]:
            name, _, found, *_ = line.split()
            if (name, found) == (image, digest):
                return True
        return False

    def load(self, source: OciLayout, image: str) -> None:
        present = set(self._ctr("content", "list", "--quiet").split())
        missing = [digest for digest in dict.fromkeys(source.blobs(image)) if digest not in present]
        command = self.namespaces.inside([*self._command(), "images", "import", "-"])
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                write_archive(process.stdin, source, image, missing)
                process.stdin.close()
            except BrokenPipeError:
                # What it says tells more than that it has ended.
                pass
            said = process.stdout.read().decode(errors="replace")
        if process.returncode != 0:
            raise ClusterError(f"containerd did not take {image}: {said[-2000:]}")

    def tag(self, image: str, name: str) -> None:
        """Give an image that is there a second name."""
        self._ctr("images", "tag", "--force", image, name)

    def forget(self, name: str) -> None:
        """Remove a name: pods that ask for it find no image. Containers that run of it run on."""
        self._ctr("images", "remove", "--sync", name)

    def answers(self) -> bool:
        done = subprocess.run(self.namespaces.inside([*self._command(), "version"]), capture_output=True, check=False)
        return done.returncode == 0

    def _ctr(self, *arguments: str) -> str:
        return self.namespaces.run([*self._command(), *arguments])

    def _command(self) -> list[str]:
        return ["ctr", f"--address={self.socket}", f"--namespace={NAMESPACE}"]


def write_archive(file: IO[bytes], source: OciLayout, image: str, digests: list[str]) -> None:
    """An archive of an OCI layout that names the image in full and holds some of its blobs."""
    entry = source.manifest(image) | {"annotations": {CONTAINERD_NAME: image}}
    index = {"schemaVersion": 2, "manifests": [entry]}
    with tarfile.open(fileobj=file, mode="w|") as archive:
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(archive, "index.json", json.dumps(index).encode())
        for digest in digests:
            archive.add(source.blob(digest), arcname=f"blobs/{digest.replace(':', '/')}")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, BytesIO(content))
