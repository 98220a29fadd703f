"""What the machine must have, said plainly where it has not; Debian's packages are installed if need be."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cluster.errors import ClusterError
from cluster.progress import step

# The file that shows that a package is there → the package.
PACKAGES = {
    "/usr/bin/containerd": "containerd",
    "/usr/sbin/runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/usr/sbin/iptables": "iptables",
    "/usr/sbin/conntrack": "conntrack",
    "/usr/bin/socat": "socat",
    "/usr/sbin/debootstrap": "debootstrap",
    "/usr/bin/buildah": "buildah",
    "/usr/bin/skopeo": "skopeo",
    "/usr/bin/nsenter": "util-linux",
}
GIGABYTE = 1 << 30
# Images, in what they are built from and in what containerd makes of them; twice as much while Go builds.
NEEDED_SPACE = 12 * GIGABYTE
NEEDED_SPACE_WARM = 3 * GIGABYTE


def is_root() -> bool:
    return os.geteuid() == 0


def require_root() -> None:
    if not is_root():
        raise ClusterError(
            "a cluster without Docker needs root: it makes namespaces, mounts and links. "
            "Run the same with sudo, or install Docker and let kind do it"
        )


def require_space(directory: Path, *, needed: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ClusterError(
            f"{directory} has {free / GIGABYTE:.1f} GB free, and the cluster needs {needed / GIGABYTE:.0f} GB. "
            "Free some, or set EPOCHAL_CACHE to a directory on a larger disk"
        )


def missing_packages(packages: Mapping[str, str] = PACKAGES) -> list[str]:
    return [package for file, package in packages.items() if not Path(file).exists()]


def require_packages() -> None:
    missing = missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"please install {', '.join(missing)} (Debian's names) and try again")
    with step(f"install {', '.join(missing)} with apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        # Debian would start its own containerd, which nobody needs here.
        options = ["-o", "DPkg::Options::=--force-confold", "--no-install-recommends"]
        for command in (["update"], ["-y", "install", *options, *missing]):
            done = subprocess.run(
                ["apt-get", "-qq", *command], env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise ClusterError(f"apt-get {command[0]} failed: {(done.stderr or done.stdout)[-1500:]}")
    if still := missing_packages():
        raise ClusterError(f"these are still missing after apt-get: {', '.join(still)}")
