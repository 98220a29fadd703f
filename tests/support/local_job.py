"""A job whose drivers run in this process, one generation after another, with the test as the controller.

Real Spark, real store, real protocol; only the processes are left out, so that a restart takes a moment. Tests that
kill processes are in ``tests/exactly_once``.
"""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverConfig,
    DriverPhase,
    PipelineConfig,
    Refusal,
    RefusalReason,
    RestoreConfig,
    StorageConfig,
)
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation
from epochal.runtime.engine import Engine

LONGEST = 600.0
AFTER_THE_END = 10.0
"""Seconds that something may still take to happen when the driver has ended."""


class LocalJob:
    """One job over its generations."""

    def __init__(
        self, spark: SparkSession, build: Callable[[Pipeline], None], directory: Path, *, uri: str = ""
    ) -> None:
        self.spark = spark
        self.build = build
        self.directory = directory
        self.storage = StorageConfig(uri=uri or (directory / "store").as_uri())
        self.generation = 0
        self.issued = NO_EPOCH
        self.completed = NO_EPOCH
        self.engine: Engine | None = None
        self._thread: threading.Thread | None = None

    def start(
        self,
        *,
        back_to: Epoch | None = None,
        savepoint: str | None = None,
        allow_empty: bool = False,
        commit_only: bool = False,
        repeat: bool = False,
    ) -> Engine:
        """Start the next generation and wait until it runs (or has failed: look at ``engine.status()``)."""
        self.generation += 1
        work = self.directory / f"work-{self.generation}"
        shutil.rmtree(work, ignore_errors=True)
        engine = self._engine(
            DriverConfig(
                namespace="test",
                job="job",
                generation=Generation(self.generation),
                storage=self.storage,
                pipeline=PipelineConfig(module="in-process"),
                restore=RestoreConfig(
                    known=self.completed,
                    issued=self.issued,
                    back_to=back_to,
                    savepoint=savepoint,
                    allow_empty=allow_empty,
                    commit_only=commit_only,
                    repeat=repeat,
                ),
                work_dir=str(work),
            )
        )
        pipeline = Pipeline(self.spark, self.storage)
        self.build(pipeline)
        self.engine = engine
        self._thread = threading.Thread(target=engine.run, args=(self.spark, pipeline.graph), daemon=True)
        self._thread.start()
        self.wait(lambda: engine.status().phase is not DriverPhase.STARTING, "the driver to start")
        return engine

    def checkpoint(self, *, then_stop: bool = False, wait: bool = True) -> CheckpointReport:
        """Make an epoch; wait until it is ready or has failed."""
        engine = self._running()
        self.issued = epoch = Epoch(self.issued + 1)
        barrier = CheckpointBarrier(
            epoch=epoch, min_epoch=Epoch(1), timestamp=time.time_ns() // 1000, then_stop=then_stop
        )
        request = CheckpointRequest(generation=Generation(self.generation), barrier=barrier)
        answer = engine.start_checkpoint(request)
        deadline = time.monotonic() + LONGEST
        # An epoch says that it has ended a moment before the next one may begin.
        while isinstance(answer, Refusal) and answer.reason is RefusalReason.CHECKPOINT_IN_FLIGHT:
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)
            answer = engine.start_checkpoint(request)
        assert not isinstance(answer, Refusal), answer
        if not wait:
            return answer
        return self.wait_for_epoch(epoch)

    def wait_for_epoch(self, epoch: Epoch) -> CheckpointReport:
        engine = self._running()

        def report() -> CheckpointReport:
            found = engine.checkpoint(epoch)
            assert found is not None
            return found

        self.wait(lambda: report().finished is not None or engine.exit_code is not None, f"epoch {epoch}")
        if report().state is CheckpointState.READY:
            self.completed = epoch
        return report()

    def finish(self) -> None:
        """Let bounded sources come to their end, make the last checkpoint, and stop."""
        engine = self._running()
        self.wait(lambda: engine.status().finished or engine.exit_code is not None, "the sources to end")
        assert engine.exit_code is None, engine.status().message
        report = self.checkpoint(then_stop=True)
        assert report.state is CheckpointState.READY, report.message
        self._join()

    def crash(self) -> None:
        """End the driver at once, as if it had been killed: nothing is flushed, nothing is said."""
        self._running().stop("crashed by the test")
        self._join()

    def run_to_the_end(self) -> None:
        self.start()
        self.finish()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LONGEST
        engine = self._running()
        while not condition():
            if engine.exit_code is not None:
                deadline = min(deadline, time.monotonic() + AFTER_THE_END)
            if time.monotonic() > deadline:
                status = engine.status()
                engine.stop("given up by the test")  # the next test has sources of the same names
                raise AssertionError(f"waited in vain for {what}: {status}")
            time.sleep(0.02)

    def _engine(self, config: DriverConfig) -> Engine:
        return Engine(config)

    def _running(self) -> Engine:
        assert self.engine is not None
        return self.engine

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join(timeout=LONGEST)
        assert not self._thread.is_alive()
