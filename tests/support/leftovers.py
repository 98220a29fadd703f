"""Drivers that an earlier run of the tests left behind because it was killed: they have sessions of their own."""

import getpass
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from epochal.cli.processes import MARK


def end_leftovers(root: Path | None = None) -> list[int]:
    """End them, with their children. ``root`` is where pytest makes a directory for each run, with a lock in it."""
    root = root or Path(tempfile.gettempdir()) / f"pytest-of-{getpass.getuser()}"
    ended = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            run = _run_of(process, root)
            if run is not None and not _is_going_on(run):
                os.kill(int(process.name), signal.SIGKILL)
                ended.append(int(process.name))
    return ended


def _run_of(process: Path, root: Path) -> Path | None:
    """The directory of the run that a process belongs to, by what it inherited."""
    mark = f"{MARK}={root}/".encode()
    for variable in (process / "environ").read_bytes().split(b"\0"):
        if variable.startswith(mark):
            return root / variable[len(mark) :].decode().split("/")[0]
    return None


def _is_going_on(run: Path) -> bool:
    try:
        owner = int((run / ".lock").read_text())
    except (OSError, ValueError):
        return False
    return Path(f"/proc/{owner}").exists()
