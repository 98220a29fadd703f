"""What a process and all that it started cost: CPU seconds and memory, read from /proc."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    name: str
    cpu: float
    """Seconds, with those of children that have ended."""
    rss: int


def look(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name stands in brackets and may hold anything.
    name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        name=name,
        cpu=sum(map(int, fields[11:15])) / _TICKS,
        rss=int(fields[21]) * _PAGE,
    )


def tree(root: int) -> list[Process]:
    """The process and its descendants."""
    seen = [look(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    children: dict[int, list[Process]] = {}
    for process in seen:
        if process is not None:
            children.setdefault(process.parent, []).append(process)
    first = look(root)
    found = [] if first is None else [first]
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def cpu_seconds(root: int) -> float:
    return sum(process.cpu for process in tree(root))


class PeakMemory:
    """The most memory that a process tree held at once, sampled."""

    def __init__(self, root: int, every: float = 0.5) -> None:
        self.bytes = 0
        self._root = root
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.is_set():
            self.bytes = max(self.bytes, sum(process.rss for process in tree(self._root)))
            self._done.wait(self._every)


class Stopwatch:
    """Wall time and CPU of this process tree since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = cpu_seconds(os.getpid())

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, cpu_seconds(os.getpid()) - self._cpu
