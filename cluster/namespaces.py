"""The node's own namespaces: processes, mounts and network apart from the machine's, as a container has them.

Whatever the node starts, mounts or adds to its network is gone when the first process in them ends. So there is
nothing to undo one by one, also not after a crash; and no port of the machine can be in the way.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.binaries import PAUSE
from cluster.errors import ClusterError

# Where programs write whatever they are told: hidden under empty directories, seen by the node only.
HIDDEN = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")
# Those of them that a machine without Kubernetes has not got.
MADE = ("/var/lib/cni", "/var/lib/kubelet")
START_TIMEOUT = 10.0
STOP_TIMEOUT = 20.0


@dataclass(frozen=True)
class Namespaces:
    """The namespaces whose first process is `init`, as the machine numbers it."""

    init: int

    def inside(self, command: Sequence[str], *, cwd: Path | None = None) -> list[str]:
        """The command line that runs a command in there."""
        where = [f"--wd={cwd}"] if cwd else []
        return ["nsenter", f"--target={self.init}", "--mount", "--pid", "--net", *where, "--", *command]

    def run(self, command: Sequence[str]) -> str:
        """Run to the end, and return what it said."""
        done = subprocess.run(self.inside(command), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def spawn(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        """Start a process that outlives this one."""
        script = 'exec >>"$1" 2>&1 </dev/null; shift; setsid "$@" &'
        detached = ["sh", "-c", script, "sh", str(log), *command]
        subprocess.run(self.inside(detached, cwd=cwd), env=os.environ | dict(env or {}), check=True)

    def processes(self) -> Iterator[tuple[int, list[str]]]:
        """Every process in there: its number on the machine, and its command line."""
        own = _namespace(self.init)
        for pid in _pids():
            if own is not None and _namespace(pid) == own:
                yield pid, _command_line(pid)

    def pid_of(self, program: str) -> int | None:
        """The process that was started as this program."""
        return next((pid for pid, command in self.processes() if command[:1] == [program]), None)


def find(home: Path) -> Namespaces | None:
    """The namespaces of this directory's node, if it runs."""
    wanted = _init_command(home)
    return next((Namespaces(pid) for pid in _pids() if _command_line(pid) == wanted), None)


def create(home: Path) -> Namespaces:
    """New namespaces, empty but for the process that holds them."""
    for made in MADE:
        Path(made).mkdir(parents=True, exist_ok=True)
    hide = "; ".join(f"mount -t tmpfs -o mode=755 tmpfs {hidden}" for hidden in HIDDEN)
    unshare = ["unshare", "--mount", "--propagation=private", "--pid", "--net", "--fork", "--mount-proc", "--"]
    command = [*unshare, "sh", "-c", f'set -e; {hide}; exec "$@"', "sh", *_init_command(home)]
    with tempfile.NamedTemporaryFile() as said:
        # The shell ends at once, so that what it started belongs to nobody here.
        detach = ["sh", "-c", 'exec >"$1" 2>&1 </dev/null; shift; setsid "$@" &', "sh", said.name, *command]
        subprocess.run(detach, check=True)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if found := find(home):
                return found
            time.sleep(0.02)
        why = said.read().decode(errors="replace").strip() or "no answer"
    raise ClusterError(
        f"the node gets no namespaces of its own: {why}. "
        "This needs root with CAP_SYS_ADMIN; in a container, run that with --privileged"
    )


def destroy(namespaces: Namespaces) -> None:
    """End the first process: the kernel ends all others with it, and takes mounts and links away."""
    others = [pid for pid, _ in namespaces.processes()]
    os.kill(namespaces.init, signal.SIGKILL)
    deadline = time.monotonic() + STOP_TIMEOUT
    while left := [pid for pid in others if Path(f"/proc/{pid}").exists()]:
        if time.monotonic() > deadline:
            raise ClusterError(f"these processes of the node have not ended: {', '.join(map(str, left))}")
        time.sleep(0.05)


def remove_mount_points() -> None:
    """Remove the directories that were made for the node; what holds something is somebody else's."""
    for made in map(Path, MADE):
        if made.is_dir() and not any(made.iterdir()):
            made.rmdir()


def _init_command(home: Path) -> list[str]:
    # The directory tells the node of one cache from that of another.
    return [str(PAUSE.binary), str(home)]


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _namespace(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return None


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []
