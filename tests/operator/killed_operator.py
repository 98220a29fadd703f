"""Operators that kill themselves with -9 at a given step, started quickly one after the other.

``python -m tests.operator.killed_operator`` is a process that has imported everything and forks an operator for each
line of JSON that it reads: two seconds of imports would otherwise be most of a test that kills forty of them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from epochal.control import driver_client
from epochal.control.driver_client import DriverClient
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import CheckpointReport
from epochal.protocol.epochs import Generation
from epochal_operator.__main__ import main as operator_main
from epochal_operator.api import Api
from tests.operator.harness import REPOSITORY, TICK

BARRIER = "BARRIER"


@dataclass(frozen=True)
class Fault:
    """Die right before, or right after, the ``number``-th write of this kind: ``POST pods``, ``PUT streamingjobs``,
    ``DELETE jobs``, or ``BARRIER``."""

    when: str
    write: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.write}" + (f" ({self.number})" if self.number > 1 else "")


class Zygote:
    """The process that forks operators."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.operator.killed_operator"],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            text=True,
        )

    def _ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, namespace: str, fault: Fault | None = None) -> int:
        arguments = [f"--tick={TICK}", "--driver-access=direct", "--health-port=0", "--metrics-port=0"]
        arguments += [
            "--threads=16",
            "--driver-timeout=1",
            "--heartbeat=0.3",
            "--local-stores",
            f"--namespaces={namespace}",
        ]
        pid: int = self._ask(
            do="start", arguments=arguments, log=str(self._log), fault=asdict(fault) if fault else None
        )
        return pid

    def wait(self, pid: int, seconds: float) -> int | None:
        """The signal that ended it; None if it still runs."""
        status: int | None = self._ask(do="wait", pid=pid, seconds=seconds)
        return None if status is None else os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert self.wait(pid, 5) == signal.SIGKILL

    @contextlib.contextmanager
    def running(self, namespace: str) -> Iterator[int]:
        pid = self.start(namespace)
        try:
            yield pid
        finally:
            self.kill(pid)

    def close(self) -> None:
        self._process.communicate(timeout=10)


# --- inside ----------------------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


class _Counter:
    def __init__(self, fault: Fault) -> None:
        self._fault, self._seen, self._lock = fault, 0, threading.Lock()

    @contextlib.contextmanager
    def around(self, write: str) -> Iterator[None]:
        with self._lock:
            if write == self._fault.write:
                self._seen += 1
            due = write == self._fault.write and self._seen == self._fault.number
        if due and self._fault.when == "before":
            die()
        yield
        if due:
            die()


def install(fault: Fault) -> None:
    counter = _Counter(fault)
    send: Callable[..., Any] = Api._send
    post: Callable[..., CheckpointReport] = DriverClient.post_barrier

    def counted_send(self: Api, method: str, kind: str, where: str, **more: Any) -> Any:
        if method == "GET":
            return send(self, method, kind, where, **more)
        with counter.around(f"{method} {kind}"):
            return send(self, method, kind, where, **more)

    def counted_post(self: DriverClient, generation: Generation, barrier: CheckpointBarrier) -> CheckpointReport:
        with counter.around(BARRIER):
            return post(self, generation, barrier)

    Api._send = counted_send  # type: ignore[method-assign]
    driver_client.DriverClient.post_barrier = counted_post  # type: ignore[method-assign]


def _child(command: Mapping[str, Any]) -> None:
    with Path(command["log"]).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.setpgid(0, 0)
    try:
        if command["fault"]:
            fault = Fault(**command["fault"])
            print(f"--- to die {fault}", flush=True)
            install(fault)
        operator_main(command["arguments"])
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _wait(pid: int, seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.01)
    return None


def main() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "wait":
            answer = _wait(command["pid"], command["seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                _child(command)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
