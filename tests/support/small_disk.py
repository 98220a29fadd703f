"""Disks that a test can fill: small ones, mounted for one process alone."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_ALLOWED = 77
_MOUNT = f"""
size=$1; disks=$2; shift 2
for disk in $disks; do mount -t tmpfs -o size=$size none "$disk" 2>/dev/null || exit {NOT_ALLOWED}; done
exec "$@"
"""


def run_with_small_disks(
    size: str, disks: list[Path], module: str, *arguments: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a module as a program to which each of these directories is a disk of its own. Skips where that cannot be."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare, so no small disk to fill")
    for disk in disks:
        disk.mkdir()
    mounting = [unshare, "-rm", "sh", "-c", _MOUNT, "sh", size, " ".join(map(str, disks))]
    command = [*mounting, sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout)
    if done.returncode == NOT_ALLOWED or "unshare" in done.stderr:
        pytest.skip("not allowed to mount a small disk to fill")
    return done


def fill(path: Path) -> None:
    """Take the last byte of the disk."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
