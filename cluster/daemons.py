"""The node's long-running processes: started in its namespaces, found again by what they were started as."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cluster.errors import ClusterError
from cluster.namespaces import Namespaces

SPAWN_TIMEOUT = 2.0
STOP_TIMEOUT = 20.0
POLL = 0.05
LOG_END = 3000


@dataclass(frozen=True)
class Daemon:
    name: str
    command: Sequence[str]
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Daemons:
    """Starts, finds and stops them. Where one runs already, no second one is started."""

    namespaces: Namespaces
    logs: Path

    def pid(self, daemon: Daemon) -> int | None:
        return self.namespaces.pid_of(daemon.command[0])

    def start(self, daemon: Daemon) -> None:
        if (pid := self.pid(daemon)) is not None:
            # Somebody who had stopped it with a signal may have been killed before letting it go on.
            os.kill(pid, signal.SIGCONT)
            return
        self.logs.mkdir(parents=True, exist_ok=True)
        self.namespaces.spawn(daemon.command, log=self._log(daemon), env=daemon.env, cwd=daemon.cwd)
        # It takes a moment to become what it was started as; until then it would be started a second time.
        deadline = time.monotonic() + SPAWN_TIMEOUT
        while self.pid(daemon) is None and time.monotonic() < deadline:
            time.sleep(POLL)

    def stop(self, daemon: Daemon, *, number: signal.Signals = signal.SIGTERM) -> None:
        pid = self.pid(daemon)
        if pid is None:
            return
        os.kill(pid, number)
        deadline = time.monotonic() + STOP_TIMEOUT
        while self.pid(daemon) == pid:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(POLL)

    def wait(
        self,
        ready: Callable[[], bool],
        *,
        what: str,
        needs: Sequence[Daemon],
        timeout: float,
        restarted: Sequence[Daemon] = (),
    ) -> None:
        """Wait until something is ready, but no longer than all it needs is running.

        Some may end while what they need is not ready yet: those of `restarted` are started again.
        """
        started = time.monotonic()
        while not ready():
            for daemon in needs:
                if self.pid(daemon) is None:
                    raise ClusterError(f"{daemon.name} ended, so {what} will not be:\n{self.log_end(daemon)}")
            for daemon in restarted:
                self.start(daemon)
            if time.monotonic() - started > timeout:
                concerned = (*needs, *restarted)
                ends = "\n".join(f"--- {self._log(daemon)}\n{self.log_end(daemon)}" for daemon in concerned)
                raise ClusterError(f"{what} not ready after {timeout:.0f} s:\n{ends}")
            time.sleep(POLL)

    def log_end(self, daemon: Daemon) -> str:
        path = self._log(daemon)
        return path.read_text(errors="replace")[-LOG_END:] if path.exists() else "(no log)"

    def _log(self, daemon: Daemon) -> Path:
        return self.logs / f"{daemon.name}.log"


def started_at(pid: int) -> datetime:
    """When a process was started, by the clock as it stands now: one that was set since changes nothing."""
    # The name, in brackets, may hold spaces; the start is the 20th field after it, in ticks since the boot.
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return datetime.now(UTC) - timedelta(seconds=age)
