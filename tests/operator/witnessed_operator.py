"""The operator as a process that writes down when it changed something, so that a test can tell who acted when; and
that breaks in ways in which only a program can be made to break.

``WITNESS`` names the file; a line for each write that the API server took, and for each barrier:
``process begin end what``. ``BREAK_RENEWALS`` is ``raise`` or ``hang``: what becomes of renewals once the file that
``BREAK_WHEN`` names is there.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epochal.control.driver_client import DriverClient
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import CheckpointReport
from epochal.protocol.epochs import Generation
from epochal_operator import __main__ as operator
from epochal_operator.api import Api
from epochal_operator.process.leader import KIND

MODULE = "tests.operator.witnessed_operator"


@dataclass(frozen=True)
class Act:
    process: int
    begun: float
    ended: float
    what: str

    @property
    def renewal(self) -> bool:
        return self.what.endswith(KIND)


def acts(witness: Path) -> list[Act]:
    if not witness.exists():
        return []
    found = []
    for line in witness.read_text().splitlines():
        process, begun, ended, what = line.split(" ", 3)
        found.append(Act(int(process), float(begun), float(ended), what))
    return found


# --- inside ----------------------------------------------------------------------------------------------------------


@contextmanager
def noted(what: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    # One write to a file opened to append: lines of several processes do not mix.
    line = f"{os.getpid()} {begun} {time.monotonic()} {what}\n".encode()
    handle = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line)
    os.close(handle)


def install() -> None:
    send: Callable[..., Any] = Api._send
    post: Callable[..., CheckpointReport] = DriverClient.post_barrier

    def witnessed_send(self: Api, method: str, kind: str, where: str, **more: Any) -> Any:
        if kind == KIND and Path(os.environ.get("BREAK_WHEN") or "/nowhere").exists():
            if os.environ["BREAK_RENEWALS"] == "raise":
                raise RuntimeError("broken on purpose")
            threading.Event().wait()
        if method == "GET":
            return send(self, method, kind, where, **more)
        with noted(f"{method} {kind}"):
            return send(self, method, kind, where, **more)

    def witnessed_post(self: DriverClient, generation: Generation, barrier: CheckpointBarrier) -> CheckpointReport:
        with noted("barrier"):
            return post(self, generation, barrier)

    Api._send = witnessed_send  # type: ignore[method-assign]
    DriverClient.post_barrier = witnessed_post  # type: ignore[method-assign]


if __name__ == "__main__":
    install()
    operator.run()
