"""What a driver says about its own end, where its controller looks first: a log may end with somebody else's words."""

import logging
import os
import signal
from pathlib import Path

from epochal.control.endings import how_it_ended, signal_of
from epochal.protocol.control import CAUSE_VARIABLE

logger = logging.getLogger(__name__)

LONGEST_CAUSE = 1000
"""Characters. Kubernetes keeps 4,096 bytes."""

MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


def write_cause(text: str) -> None:
    if path := os.environ.get(CAUSE_VARIABLE):
        try:
            Path(path).write_text(text[:LONGEST_CAUSE] + "\n", encoding="utf-8")
        except OSError as error:
            logger.warning("The cause cannot be written to %s: %s", path, error)


def how_the_jvm_ended(code: int | None) -> str:
    """Empty while it lives, and of one that was asked to end, as the driver was. Without a JVM every call fails with
    words about sockets, which are not the cause."""
    if code is None or signal_of(code) is signal.SIGTERM:
        return ""
    why = how_it_ended(code, "OOMKilled" if signal_of(code) is signal.SIGKILL and killed_for_memory() else "")
    return f"the driver's JVM ended: {why or f'code {code}'}"


def killed_for_memory(events: Path = MEMORY_EVENTS) -> bool:
    """Whether the kernel has killed a process of this container for want of memory: Kubernetes says so of the
    container's first process only, which is not the JVM."""
    try:
        counts = dict(line.split() for line in events.read_text().splitlines())
    except (OSError, ValueError):
        return False
    return counts.get("oom_kill", "0") != "0"
