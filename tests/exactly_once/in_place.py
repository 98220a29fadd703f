"""A driver with three executors as processes, and a controller that follows it: a generation in place keeps the
process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.control.driver_client import DriverClient, DriverRefused, DriverUnreachable
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    TOKEN_VARIABLE,
    CheckpointState,
    DriverConfig,
    DriverPhase,
    DriverStatus,
    PipelineConfig,
    RestoreConfig,
    StorageConfig,
)
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH, Epoch, Generation
from epochal.runtime.spark.jvm import scala_context
from tests.exactly_once import pipeline
from tests.exactly_once.killing import ROOT
from tests.support.small import WITHOUT_COMPILING

EXECUTORS = 3
SINKS = (*pipeline.SINKS, "once")
LONGEST = 300.0
PAUSE = 0.5
"""Seconds between epochs, as the controller's interval."""


def build(p: Pipeline) -> None:
    """Windows, an updating aggregate, a join, an operator of one's own and a deduplication, and Parquet after each."""
    note_what_is_held(p.spark, Path(p.parameters["held"]))
    pipeline.build(p)
    orders = pipeline._source(p, "orders_again", pipeline.ORDERS, "ordered_at")
    first = orders.deduplicate("first", keys=["id"], within="1 minute")
    first.to_parquet("firsts", f"{p.parameters['output']}/once")


def note_what_is_held(spark: SparkSession, file: Path) -> None:
    """What Spark holds while a generation is described, a line for each: all of it is of the one before."""
    context = scala_context(spark)
    blocks = sum(one.numCachedPartitions() for one in context.getRDDStorageInfo())
    held = {"frames": context.getPersistentRDDs().size(), "blocks": blocks, "jvm": str(context.applicationId())}
    with file.open("a") as lines:
        lines.write(json.dumps(held) + "\n")


@dataclass
class Driven:
    """One job, of which this process is the controller."""

    path: Path
    inputs: Path
    in_place: bool = True
    spark_conf: dict[str, str] = field(default_factory=dict)
    issued: Epoch = NO_EPOCH
    completed: Epoch = NO_EPOCH
    in_flight: tuple[Generation, Epoch] | None = None
    _driver: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.output = self.path / "out"
        self.held = self.path / "held"
        self.local = self.path / "spark"
        self.log = self.path / "driver.log"
        self.address = self.path / "address"
        (self.path / "partitions").write_text("6")
        for sink in SINKS:
            (self.output / sink).mkdir(parents=True)

    # --- the driver ---

    def start(self, generation: int = 1) -> None:
        self.address.unlink(missing_ok=True)
        config = DriverConfig(
            namespace="test",
            job="job",
            generation=Generation(generation),
            storage=StorageConfig(uri=(self.path / "store").as_uri()),
            pipeline=PipelineConfig(
                module="tests.exactly_once.in_place:build",
                parameters={
                    "input": str(self.inputs),
                    "output": str(self.output),
                    "partitions": str(self.path / "partitions"),
                    "held": str(self.held),
                },
            ),
            restore=RestoreConfig(known=self.completed, issued=self.issued),
            spark_conf={
                "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
                "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],  # those of the tests
                **WITHOUT_COMPILING,
                **self.spark_conf,
            },
            ready_file=str(self.address),
            work_dir=str(self.path / f"work-{generation}"),
            in_place=self.in_place,
        )
        file = self.path / "config.json"
        file.write_bytes(msgspec.json.encode(config))
        self.local.mkdir(exist_ok=True)
        environment = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(self.local), TOKEN_VARIABLE: "token"}
        with self.log.open("ab") as log:
            self._driver = subprocess.Popen(
                ["nice", "-n", "5", sys.executable, "-m", "epochal.driver", str(file)],
                cwd=self.path,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        assert self._driver is not None
        return self._driver.poll()

    @property
    def pid(self) -> int:
        assert self._driver is not None
        return self._driver.pid

    def end(self) -> None:
        for pid in self.members():
            os.kill(pid, signal.SIGKILL)
        if self._driver is not None:
            self._driver.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-8000:] if self.log.exists() else "nothing"

    def members(self) -> list[int]:
        """All processes of the driver's session."""
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if _session(pid) == self.pid]

    def jvms(self, main: bytes) -> list[int]:
        return [pid for pid in self.members() if any(word.endswith(main) for word in _words(pid)[1:])]

    def executors(self) -> list[int]:
        return self.jvms(b"CoarseGrainedExecutorBackend")

    def files(self, executors: list[int]) -> set[Path]:
        """The directories of tables that executors have."""
        return {
            found
            for pid in executors
            for place in _environment(pid).get("SPARK_EXECUTOR_DIRS", "").split(":")
            for found in Path(place).glob("**/epochal/*")
        }

    # --- the controller ---

    def status(self) -> DriverStatus | None:
        if not self.address.exists():
            return None
        try:
            return self._client().status()
        except DriverUnreachable:
            return None

    def _client(self) -> DriverClient:
        return DriverClient(self.address.read_text().strip(), "token")

    def step(self, *, epochs: bool = True) -> DriverStatus | None:
        """Look at the driver, and begin an epoch if none is in flight."""
        time.sleep(PAUSE)
        status = self.status()
        if status is None or status.phase is not DriverPhase.RUNNING:
            return status
        if self.in_flight is not None and not self._has_ended(status):
            return status
        self.in_flight = None
        if epochs:
            self.issued = Epoch(max(self.issued, status.newest_number or NO_EPOCH) + 1)
            self.in_flight = status.generation, self.issued
            barrier = CheckpointBarrier(
                epoch=self.issued, min_epoch=FIRST_EPOCH, timestamp=time.time_ns() // 1000, then_stop=status.finished
            )
            try:
                self._client().post_barrier(status.generation, barrier)
            except (DriverRefused, DriverUnreachable):
                self.in_flight = None
        return status

    def _has_ended(self, status: DriverStatus) -> bool:
        assert self.in_flight is not None
        generation, epoch = self.in_flight
        if generation != status.generation:
            return True
        report = self._client().get_checkpoint(epoch)
        if report is not None and report.state is CheckpointState.READY:
            self.completed = epoch
        return report is None or report.finished is not None

    def until(
        self, condition: Callable[[DriverStatus | None], bool], what: str, *, epochs: bool = True
    ) -> DriverStatus | None:
        deadline = time.monotonic() + LONGEST
        while not condition(status := self.step(epochs=epochs)):
            assert time.monotonic() < deadline, f"waited in vain for {what}: {status}\n{self.said()}"
            assert self.code is None or what == "the end", f"{what}: ended with {self.code}\n{self.said()}"
        return status

    def until_the_end(self, *, epochs: bool = True) -> int:
        self.until(lambda _: self.code is not None, "the end", epochs=epochs)
        assert self.code is not None
        return self.code

    def until_state(self) -> None:
        """Until an epoch of this generation has state, and the executors hold more than that."""
        before = self.completed

        def there(status: DriverStatus | None) -> bool:
            rows = status is not None and all(source.rows for source in status.sources) and status.state_bytes > 0
            return rows and self.completed > before

        self.until(there, "an epoch with state")

    def kill_an_executor(self) -> int:
        """The oldest one: it has state."""
        pids = sorted(self.executors(), key=_started)
        os.kill(pids[0], signal.SIGKILL)
        return pids[0]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def _environment(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def _started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
