"""A job run by ``epochal run``, whose driver is killed again and again while somebody watches its output."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from epochal.cli.local import JobDirectory
from epochal.cli.processes import Alive, DetachedProcess
from epochal.control.driver_client import DriverClient, DriverError, DriverUnreachable
from epochal.protocol.control import CheckpointState, DriverPhase, DriverStatus
from epochal.protocol.epochs import Generation
from tests.exactly_once.pipeline import SINKS
from tests.support.small import WITHOUT_COMPILING

ROOT = Path(__file__).parents[2]
PARTITIONS = (2, 5, 3)
IN_FLIGHT = (CheckpointState.IN_PROGRESS, CheckpointState.COMMITTING)
OFTEN = 0.05
"""Seconds between two looks at a driver: each costs both sides some milliseconds."""
LONGEST_LIFE = 40.0
"""A generation that is to be killed in a checkpoint is killed so long after its start, in one or not."""


MANY = 10
"""Kills, of which one comes after rows were read: fewer may all be chosen to come before."""


@dataclass
class Kill:
    """``rows``: how many this generation had read; 0 says little about state."""

    generation: int
    after: float
    state: str
    rows: int


@dataclass
class KilledJob:
    """One job in a directory of its own."""

    path: Path
    parameters: dict[str, str]
    spark_conf: dict[str, str] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    module: str = "tests.exactly_once.pipeline"

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.output = self.path / "out"
        self.partitions = self.path / "partitions"
        self.partitions.write_text(str(PARTITIONS[0]))
        self.directory = JobDirectory(self.path / ".epochal", "default", "killed")
        self.epochs = self.path / ".epochal" / "store" / "default" / "killed" / "epochs"
        self._runner: subprocess.Popen[bytes] | None = None
        for sink in SINKS:
            (self.output / sink).mkdir(parents=True)
        given = {**self.parameters, "output": str(self.output), "partitions": str(self.partitions)}
        spec = {
            "pipeline": {"module": self.module, "parameters": given},
            "checkpoint": {"interval": "1s", "timeout": "2m"},
            "restartPolicy": {"backoff": "100ms", "maxBackoff": "1s", "maxRestarts": 1000},
            "sparkConf": {"spark.master": "local[2]", **WITHOUT_COMPILING, **self.spark_conf},
        }
        kind = {"apiVersion": "epochal.dev/v1alpha1", "kind": "StreamingJob"}
        manifest = {**kind, "metadata": {"name": "killed"}, "spec": spec}
        (self.path / "job.yaml").write_text(yaml.safe_dump(manifest))

    # --- running ---

    def start(self) -> None:
        with (self.path / "runner.log").open("ab") as log:
            self._runner = subprocess.Popen(
                [sys.executable, "-m", "epochal.cli", "run", "job.yaml", "--plain"],
                cwd=self.path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def running(self) -> bool:
        return self._runner is not None and self._runner.poll() is None

    def finish(self, timeout: float) -> None:
        assert self._runner is not None
        try:
            code = self._runner.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end in {timeout:.0f} s:\n{self.said()}") from None
        assert code == 0, self.said()

    def end(self) -> None:
        if self._runner is not None and self._runner.poll() is None:
            self._runner.kill()
            self._runner.wait()
        for generation in self.directory.generations():
            DetachedProcess(self.directory.driver(generation)).end(grace=0)
        DetachedProcess(self.directory.cleanup).end(grace=0)

    def said(self) -> str:
        text = (self.path / "runner.log").read_text(errors="replace")[-3000:]
        logs = [self.directory.driver(generation) / "driver.log" for generation in self.directory.generations()[-1:]]
        return text + "".join(log.read_text(errors="replace")[-5000:] for log in logs if log.is_file())

    # --- killing ---

    def check_kills(self, wanted: int) -> None:
        """So many, and of many at least one when there was something to lose."""
        assert len(self.kills) == wanted, "the input was too small: the job ended before all kills"
        assert wanted < MANY or any(kill.rows for kill in self.kills), "nothing was disturbed: no kill came after rows"

    def kill_next(self, chance: random.Random) -> bool:
        """Kill the next generation's driver: in the middle of a checkpoint, or at any time of its life. False if the
        job came to its end first."""
        last = self.kills[-1].generation if self.kills else 0
        while not (generation := self._alive_after(last)):
            if not self.running():
                return False
            time.sleep(OFTEN)
        began = time.monotonic()
        if chance.random() < 0.65:
            # Epochs come before the first batch is through, and those are empty: most kills wait for rows.
            state = self._until_in_checkpoint(generation, rows=chance.choice([0, 1, 100, 300]))
            time.sleep(chance.uniform(0, 0.4))
        else:
            end = began + chance.uniform(0, LONGEST_LIFE)
            while time.monotonic() < end and self.running():
                time.sleep(OFTEN)
            state = self._state(generation)
        rows = self._rows(self._status(generation))
        if not self.running() or not self._kill(generation, whole=chance.random() < 0.5):
            return False
        # After the kill, and before the next generation reads it, unless that is quicker; either is a change.
        self.partitions.write_text(str(PARTITIONS[(len(self.kills) + 1) % len(PARTITIONS)]))
        self.kills.append(Kill(generation, time.monotonic() - began, state, rows))
        return True

    def _alive_after(self, last: int) -> Generation | None:
        for generation in reversed(self.directory.generations()):
            if generation > last and isinstance(DetachedProcess(self.directory.driver(generation)).state(), Alive):
                return generation
        return None

    def _until_in_checkpoint(self, generation: Generation, rows: int) -> str:
        """Wait for a checkpoint in flight, once this generation has read so many rows."""
        end: float | None = None
        while (end is None or time.monotonic() < end) and self.running():
            status = self._status(generation)
            if status and (report := status.checkpoint) and report.state in IN_FLIGHT and self._rows(status) >= rows:
                return str(report.state)
            if end is None and status and status.phase is DriverPhase.RUNNING and self._rows(status) >= min(rows, 1):
                # A start takes long on a busy machine, and so do the first rows; what is to be disturbed comes after.
                end = time.monotonic() + LONGEST_LIFE
            time.sleep(OFTEN)
        return self._state(generation)

    def _rows(self, status: DriverStatus | None) -> int:
        return sum(source.rows for source in status.sources) if status else 0

    def _state(self, generation: Generation) -> str:
        """What the driver is at: a checkpoint in flight, or else its phase."""
        status = self._status(generation)
        if status is None:
            return "no answer yet"
        report = status.checkpoint
        return str(report.state if report and report.state in IN_FLIGHT else status.phase)

    def _status(self, generation: Generation) -> DriverStatus | None:
        directory = self.directory.driver(generation)
        try:
            address, token = (directory / "address").read_text(), (directory / "token").read_text()
            return DriverClient(address.strip(), token.strip()).status()
        except (OSError, ValueError, DriverUnreachable, DriverError):
            return None

    def _kill(self, generation: Generation, *, whole: bool) -> bool:
        """``whole``: with its Java process and workers, as when a machine dies; otherwise the Python process alone, and
        the rest may go on a little."""
        process = DetachedProcess(self.directory.driver(generation))
        members = process._members()
        drivers = [pid for pid in members if _is_driver(pid)]
        for pid in members if whole else drivers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(drivers)


def _is_driver(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"epochal.driver" in words and not words[0].endswith(b"sh")


class Watcher(threading.Thread):
    """Looks at the output all the time: a file may be there only if its epoch's manifest is."""

    def __init__(self, job: KilledJob) -> None:
        super().__init__(name="watcher", daemon=True)
        self._job = job
        self._over = threading.Event()
        self.published: set[int] = set()
        self.looks = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._over.wait(OFTEN):
            self.look()

    def look(self) -> None:
        # Output first: what is published meanwhile cannot excuse a file that was there before.
        files = [path for sink in SINKS for path in (self._job.output / sink).glob("*.parquet")]
        unknown = [path for path in files if _epoch(path) not in self.published]
        for epoch in {_epoch(path) for path in unknown}:
            with suppress(OSError, ValueError):
                manifest = json.loads((self._job.epochs / f"{epoch:010d}" / "manifest.json").read_text())
                if manifest["kind"] == "Manifest":
                    self.published.add(epoch)
        self.wrong += [str(path) for path in unknown if _epoch(path) not in self.published]
        self.looks += 1

    def stop(self) -> None:
        self._over.set()
        self.join()
        self.look()


def _epoch(path: Path) -> int:
    match = re.fullmatch(r"epoch-(\d{10})-\d+\.parquet", path.name)
    assert match, f"{path} is no output of an epoch"
    return int(match[1])
