"""The control groups under which the node's pods run, so that they can be removed as one."""

from pathlib import Path

from cluster.layout import CGROUP

ROOT = Path("/sys/fs/cgroup")


def roots() -> list[Path]:
    """Where a group has to be made: in each hierarchy of version 1, in the only one of version 2."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [path for path in ROOT.iterdir() if (path / "tasks").exists() and not path.is_symlink()]


def create() -> None:
    for root in roots():
        group = root / CGROUP
        group.mkdir(exist_ok=True)
        # In version 1 a group has no processors at first, and then takes no process.
        for name in ("cpuset.cpus", "cpuset.mems"):
            file = group / name
            if root.name == "cpuset" and not file.read_text().strip():
                file.write_text((root / name).read_text())


def remove() -> None:
    """Remove the groups, the innermost first. All their processes have ended before."""
    for group in left():
        for inner in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            inner.rmdir()
        group.rmdir()


def left() -> list[Path]:
    """The groups of a node that are there."""
    everywhere = {*roots(), ROOT / "unified"}
    return [root / CGROUP for root in sorted(everywhere) if (root / CGROUP).is_dir()]
