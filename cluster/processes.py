"""Server processes of tests: they end with the test process, and each is known to hold its own port."""

import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def start_server(
    command: Sequence[str], *, env: Mapping[str, str], log: IO[bytes], cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when the calling thread ends, however that happens.

    Call it from the main thread: the kernel looks at the thread, not at the process.
    """
    # setpriv makes the request and then becomes the server. A preexec_fn would run Python between fork and
    # exec, which may deadlock in a process that has threads, and object-store clients have them.
    setpriv = shutil.which("setpriv")
    bound = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
    return subprocess.Popen(
        [*bound, *command], env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )


def free_port() -> int:
    """A port that was free a moment ago; see `holds_port` for why that is not enough."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def holds_port(pid: int, port: int) -> bool:
    """Whether this very process listens on the port: an answer alone may come from somebody else's server."""
    listening = "0A"
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == listening and int(fields[1].split(":")[1], 16) == port:
            inodes.add(fields[9])
    return not inodes.isdisjoint(_socket_inodes(pid))


def _socket_inodes(pid: int) -> set[str]:
    found = set()
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                found.add(match[1])
    except OSError:
        # The process, or one of its descriptors, went away while being looked at; the caller looks again.
        pass
    return found
