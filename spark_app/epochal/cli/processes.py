"""Processes that outlive the one that started them, known by a directory.

Whoever comes later finds in it whether the process runs and how it ended: ``pid`` is written before the program
starts, ``exit`` after it has ended. So a runner that was killed finds its driver again.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# The shell writes its own number first, so there is no moment in which the program runs and nobody knows.
_SHELL = 'echo $$ > "$0/pid.new" && mv "$0/pid.new" "$0/pid" || exit 1; "$@"; echo $? > "$0/exit"'

MARK = "EPOCHAL_PROCESS_DIR"


@dataclass(frozen=True, slots=True)
class NotStarted:
    pass


@dataclass(frozen=True, slots=True)
class Alive:
    pid: int


@dataclass(frozen=True, slots=True)
class Gone:
    """``code`` is None if it was ended in a way that left nobody to write the code down."""

    code: int | None


class DetachedProcess:
    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        """Start it in a session of its own: Ctrl-C in the terminal is for the runner, not for its driver."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, str(self.directory), *command],
                env={**env, MARK: str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def state(self) -> NotStarted | Alive | Gone:
        if self._popen is not None and self._popen.poll() is None:
            return Alive(self._popen.pid)
        pid = _number(self.directory / "pid")
        if pid is None:
            return NotStarted() if self._popen is None else Gone(self._popen.returncode)
        code = _number(self.directory / "exit")
        if code is not None:
            return Gone(code)
        return Alive(pid) if self._is_ours(pid) else Gone(None)

    def end(self, *, grace: float) -> None:
        """Ask it to leave, and kill what is left of it and its children after ``grace`` seconds."""
        if grace > 0:
            self._signal(signal.SIGTERM)
            end = time.monotonic() + grace
            while time.monotonic() < end and isinstance(self.state(), Alive):
                time.sleep(0.02)
        self._signal(signal.SIGKILL)
        end = time.monotonic() + 10
        while time.monotonic() < end and isinstance(self.state(), Alive):
            time.sleep(0.02)

    def _signal(self, number: signal.Signals) -> None:
        members = self._members()
        pid = _number(self.directory / "pid")
        if number is signal.SIGTERM:
            # The shell would die of it and leave nobody to write the code down.
            members = [member for member in members if member != pid]
        for member in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(member, number)
        if not Path("/proc/self").exists() and pid is not None and self._is_ours(pid):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)

    def _members(self) -> list[int]:
        """It and all its children, also those that left its process group: by what they inherited."""
        mark = f"{MARK}={self.directory}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def _is_ours(self, pid: int) -> bool:
        """Numbers of processes are used again: see that this is the one that was started here."""
        arguments = Path(f"/proc/{pid}/cmdline")
        if arguments.parent.parent.joinpath("self").exists():
            try:
                return str(self.directory).encode() in arguments.read_bytes().split(b"\0")
            except OSError:
                return False
        shown = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return str(self.directory) in shown.stdout


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
