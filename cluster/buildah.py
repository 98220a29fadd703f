"""Building images without a Docker engine: buildah and skopeo on a store of their own, next to the cluster.

Every command runs in namespaces of its own, so that one that is killed leaves no mount and no process.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import ClusterError
from cluster.gobuild import GoProgram
from cluster.layout import Layout
from cluster.progress import step

# The name that `FROM` in the Dockerfile asks for: there it is met by what is made here.
BASE_IMAGE = "python:3.11-slim-bookworm"
# From where debootstrap fetches by itself. As in the image of that name, `python` is Python 3, and apt knows the
# security updates.
MAKE_BASE = """
container=$("$@" from scratch)
root=$("$@" mount "$container")
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root"
ln -s python3 "$root/usr/bin/python"
security=$(sed -n 's|/debian bookworm main|/debian-security bookworm-security main|p' "$root/etc/apt/sources.list")
echo "$security" >>"$root/etc/apt/sources.list"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
"$@" umount "$container"
"$@" commit --quiet --rm "$container" "$IMAGE"
"""
SCRATCH = 'FROM scratch\nCOPY program /program\nENTRYPOINT ["/program"]\n'
# Of the machine, for the time of a build only: behind a proxy nothing can be fetched without them.
MOUNTED = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
# Counts of mounts, which must not outlive the machine's uptime.
RUN_ROOT = Path("/run/epochal-buildah")


class Buildah:
    """The store of images that are built here."""

    def __init__(self, layout: Layout) -> None:
        self._root = layout.images / "storage"
        self._run_root = RUN_ROOT
        self._root.mkdir(parents=True, exist_ok=True)

    def has(self, image: str) -> bool:
        done = subprocess.run(
            _alone([*self._buildah(), "images", "--quiet", image]), capture_output=True, text=True, check=False
        )
        return done.returncode == 0 and bool(done.stdout.strip())

    def ensure_base(self) -> None:
        """Debian with Python, made from Debian's own packages."""
        if self.has(BASE_IMAGE):
            return
        with step(f"make the base image {BASE_IMAGE} with debootstrap"):
            # Containers of a run that was cut short would be in the way of nothing but the disk.
            self._run([*self._buildah(), "rm", "--all"])
            self._run(["sh", "-euc", MAKE_BASE, "sh", *self._buildah()], env={"IMAGE": BASE_IMAGE})

    def ensure_scratch(self, image: str, program: Path) -> None:
        """An image with nothing but one static program."""
        if self.has(image):
            return
        with tempfile.TemporaryDirectory() as context:
            shutil.copy(program, Path(context) / "program")
            (Path(context) / "Dockerfile").write_text(SCRATCH)
            self._run([*self._buildah(), "bud", "--quiet", "--isolation=chroot", f"--tag={image}", context])

    def build(self, *, target: str, image: str, context: Path) -> None:
        """Build a target of the project's Dockerfile; only what has changed."""
        mounts = [f"--volume={path}:{path}:ro" for path in MOUNTED if Path(path).exists()]
        options = ["--isolation=chroot", "--network=host", "--pull-never", "--layers", *mounts]
        self._run([*self._buildah(), "bud", *options, f"--target={target}", f"--tag={image}", str(context)])

    def export(self, image: str, directory: Path) -> None:
        """Copy to an OCI layout, uncompressed, and only what is not there yet: compressing takes most of the time."""
        source = f"containers-storage:[overlay@{self._root}+{self._run_root}]{image}"
        accept = "--dest-oci-accept-uncompressed-layers"
        self._run(["skopeo", "copy", "--quiet", accept, source, f"oci:{directory}:{image}"])

    def prune(self) -> None:
        """Remove what was built and then built anew, and is part of nothing that is still used."""
        # A build that was killed leaves its container behind, and with it the image.
        self._run([*self._buildah(), "rm", "--all"])
        self._run([*self._buildah(), "rmi", "--prune"])

    def _buildah(self) -> list[str]:
        return ["buildah", f"--root={self._root}", f"--runroot={self._run_root}", "--storage-driver=overlay"]

    def _run(self, command: Sequence[str], *, env: dict[str, str] | None = None) -> None:
        done = subprocess.run(
            _alone(command), env=os.environ | (env or {}), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr)[-4000:]
            raise ClusterError(f"{command[0]} ended with {done.returncode}:\n{said}")


def scratch_image(program: GoProgram) -> str:
    return f"localhost/epochal-{program.name}:{program.version}"


def _alone(command: Sequence[str]) -> list[str]:
    """In mount and process namespaces that end with this process."""
    unshare = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["setpriv", "--pdeathsig=KILL", "--", *unshare, "--", *command]
