"""A driver's process as this machine, which is its node, sees it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from examples.cluster.live_job import LiveJob


def driver_pid(job: LiveJob) -> int:
    """It is the first process of its container, so that all others end with it."""
    uid = job.kubectl("get", "pod", job.driver, "--output=jsonpath={.metadata.uid}")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"epochal.driver" in (process / "cmdline").read_bytes() and uid in (process / "cgroup").read_text():
                return int(process.name)
    raise AssertionError(f"no process of {job.driver} is to be found")


def kill_driver_process(job: LiveJob) -> None:
    """As the kernel does when memory is short: from outside, without a word."""
    os.kill(driver_pid(job), signal.SIGKILL)


@contextmanager
def without_runtime(driver: int) -> Iterator[None]:
    """The kubelet cannot end this driver, as if its node were lost: what would do it stands still."""
    status = (Path("/proc") / str(driver) / "status").read_text()
    shim = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
    os.kill(shim, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(shim, signal.SIGCONT)
