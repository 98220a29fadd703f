"""One operator at work: batches, watermarks and barriers that arrive on its inputs, and where its rows go.

Alignment: when a barrier has arrived on one input, that input is blocked until it has arrived on all of them. The
thread that brings the next batch on a blocked input waits, which holds back the source it comes from. Locks are taken
in the direction of the graph only, so they cannot form a circle.
"""

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyspark.sql import DataFrame

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.documents import StoredTable
from epochal.runtime.dataflow.checkpoint_attempt import EpochRun
from epochal.runtime.dataflow.definitions import definition_of
from epochal.runtime.dataflow.operator import MAIN, Batch, BatchStats, BoundOperator, Collector, OperatorContext
from epochal.runtime.dataflow.two_phase_sink import BoundSink
from epochal.runtime.errors import (
    DamagedStateError,
    JobStoppingError,
    OperatorError,
    PipelineError,
    UserCodeError,
    lost_state,
)
from epochal.runtime.spark.background import Background
from epochal.runtime.spark.jvm import SPARK_ERRORS
from epochal.runtime.spark.plan_metrics import PlanMetrics
from epochal.runtime.state.table_manager import LoadRun, RestoreRun, TableManager
from epochal.runtime.state.tables import Run, run_metrics
from epochal.runtime.users_code import is_users, users_code

_T = TypeVar("_T")

MAX_WATERMARK = 2**62
"""Says that nothing comes any more."""


def known_watermark(stored: int | None) -> int | None:
    """A restored watermark. Epochs of versions before 0.2 have the end of a source as one; the job may go on after
    it."""
    return None if stored is not None and stored >= MAX_WATERMARK else stored


@dataclass(frozen=True, slots=True)
class BatchScope:
    """One batch (or watermark, or barrier) on its way through the graph: what tables drop is released when it has
    arrived, because rows sent downstream are lazy and may still read it."""

    background: Background
    on_error: Callable[[BaseException], None]
    """Told of what fails in the background."""
    dropped: list[Run] = field(default_factory=list)
    emitted: list[tuple[str, DataFrame]] = field(default_factory=list)
    """What operators sent downstream, in order."""
    abandoned: Callable[[], bool] = lambda: False
    """Whether nobody waits for it any more: then Spark's jobs fail because they were told to end."""
    small: bool = False
    """Whether few rows are expected."""
    of_state: bool = False
    """Whether what is sent was made of state, because a watermark has come, and not of the batch's rows."""

    def made_of_state(self) -> "BatchScope":
        """The same batch on its way, as far as what is sent from here on is made of state."""
        return replace(self, of_state=True)

    def culprit(self, operator: str, error: Exception) -> str:
        """Whose fault an error in ``operator`` is. Rows are lazy: a function that fails does so where its rows are
        first needed, so the first operator whose rows cannot be computed is the one. A function that fails now and
        then may work this time; then it stays unknown."""
        raised = error.__cause__ if isinstance(error, UserCodeError) else error
        if isinstance(raised, SPARK_ERRORS) and not (lost_state(raised) or self.abandoned()):
            for name, frame in self.emitted:
                try:
                    frame.write.format("noop").mode("overwrite").save()
                except Exception:
                    return name
        return operator

    def __enter__(self) -> "BatchScope":
        return self

    def __exit__(self, *_: object) -> None:
        if self.dropped:
            # What goes on in the background may still read it; and the next batch need not wait for it.
            self.background.after(self._release)

    def _release(self) -> None:
        for run in self.dropped:
            run.release()

    def later(self, operator: str, job: Callable[[], None]) -> None:
        """Do an operator's job in the background."""

        def guarded() -> None:
            try:
                job()
            except Exception as error:
                if not self.abandoned():
                    self.on_error(OperatorError(self.culprit(operator, error), error))

        self.background.submit(guarded)


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows that leave on ``port`` arrive at ``task`` as its input number ``channel``."""

    port: str
    task: "Task"
    channel: int


class Task:
    """The runtime of one operator."""

    def __init__(
        self,
        name: str,
        kind: str,
        operator: BoundOperator,
        context: OperatorContext,
        inputs: Sequence[int | None] = (),
        *,
        watermark: int | None = None,
        max_ahead: int | None = None,
    ) -> None:
        """``inputs`` and ``watermark``: the watermarks of its inputs and its own, as restored. ``max_ahead``: how far
        ahead of the clock event times may be (microseconds)."""
        self.name = name
        self.kind = kind
        self.operator = operator
        self.context = context
        self.inputs = len(inputs)
        self.watermark = watermark
        self.late_rows = 0
        self.downstream: list[Edge] = []
        self.tables = TableManager(name, context.spark, operator.tables)
        self._max_ahead = max_ahead
        self._watermarks = list(inputs)
        self._idle = [False] * len(inputs)
        self._told_idle = False
        self._delivered: set[int] = set()
        self._epoch_run: EpochRun | None = None
        self._free = threading.Condition(threading.RLock())

    @functools.cached_property
    def definition(self) -> dict[str, str] | None:
        """What its state means, for the manifest."""
        return definition_of(self.operator)

    def users_code(self) -> AbstractContextManager[None]:
        """Around its calls."""
        operator = self.operator.sink if isinstance(self.operator, BoundSink) else self.operator
        return users_code(really=is_users(operator))

    def connect(self, port: str, task: "Task", channel: int) -> None:
        """Let what leaves on ``port`` arrive at another task."""
        self.downstream.append(Edge(port, task, channel))

    def run_start(self, stored: Mapping[str, StoredTable], *, restore_run: RestoreRun, load_run: LoadRun) -> None:
        """Restore the tables, and let the operator begin."""
        try:
            self.tables.restore(stored, restore_run=restore_run, load_run=load_run)
            with self.users_code():
                self.operator.on_start(self.context)
        except (DamagedStateError, PipelineError):
            raise
        except Exception as error:
            raise OperatorError(self.name, error) from error
        for run in self.tables.take_dropped():
            run.release()

    def latest_time(self) -> int | None:
        """Rows with later event times are too far ahead of the clock."""
        return None if self._max_ahead is None else time.time_ns() // 1000 + self._max_ahead

    # --- batches ---

    def receive(
        self, frame: DataFrame, channel: int, scope: BatchScope, of: Run | None = None, *, counting: bool = False
    ) -> BatchStats:
        """Batches of several inputs are prepared side by side; then each has its turn. Preparing needs no state, so it
        may also be done while the input is blocked."""
        passed = self.operator.passed(frame)
        if passed is not None:
            with self._free:
                self._wait_for_turn(channel)
            self.send(scope, passed, MAIN)
            return BatchStats()
        batch = Batch(
            frame=frame, channel=channel, small=scope.small, counting=counting, run=of, of_state=scope.of_state
        )
        prepared = self._blaming(scope, lambda: self.operator.prepare(batch))
        with self._free:
            self._wait_for_turn(channel)
            turn = replace(batch, watermark=self.watermark, latest_time=self.latest_time(), prepared=prepared)
            stats = self._run(scope, lambda out: self.operator.process(turn, out)) or BatchStats()
            self.late_rows += stats.late_rows
            return stats

    @functools.cached_property
    def run_metrics(self) -> PlanMetrics:
        return run_metrics()

    def _wait_for_turn(self, channel: int) -> None:
        while channel in self._delivered:
            self._free.wait()

    def send(
        self, scope: BatchScope, frame: DataFrame, port: str, of: Run | None = None, *, counting: bool = False
    ) -> list[BatchStats]:
        """Send rows on. Returns what those who read them tell."""
        edges = [edge for edge in self.downstream if edge.port == port]
        scope.emitted.append((self.name, frame))
        if len(edges) > 1 and of is None:
            # Each branch would compute these rows again.
            run = Run.materialise(frame, self.run_metrics).hold()
            scope.dropped.append(run)
            frame = run.frame
        return [edge.task.receive(frame, edge.channel, scope, of, counting=counting) for edge in edges]

    def _run(self, scope: BatchScope, call: Callable[[Collector], _T]) -> _T:
        """Call the operator, with something to emit to."""
        out = _TaskCollector(self, scope)
        try:
            return self._blaming(scope, lambda: call(out))
        finally:
            out.close()
            # Rows sent downstream may still be lazy, and read what was dropped: it goes when the batch is done.
            scope.dropped.extend(self.tables.take_dropped())

    def _blaming(self, scope: BatchScope, call: Callable[[], _T]) -> _T:
        """Call the operator; errors carry its name."""
        try:
            with self.users_code():
                return call()
        except (OperatorError, JobStoppingError):
            raise
        except Exception as error:
            raise OperatorError(scope.culprit(self.name, error), error) from error

    # --- watermarks ---

    def receive_watermark(self, watermark: int | None, channel: int, scope: BatchScope, *, idle: bool = False) -> None:
        """An input's watermark moved, or the input went idle: then it does not hold the others back."""
        with self._free:
            while channel in self._delivered:
                self._free.wait()
            self._idle[channel] = idle
            before = self._watermarks[channel]
            if watermark is not None and (before is None or watermark > before):
                self._watermarks[channel] = watermark
            self._advance(scope)
            # Who has only idle inputs is idle itself, and whoever reads from it must not wait for it either.
            if all(self._idle) != self._told_idle:
                self._told_idle = not self._told_idle
                self.forward_watermark(scope, idle=self._told_idle)

    def _advance(self, scope: BatchScope) -> None:
        active = [mark for mark, idle in zip(self._watermarks, self._idle, strict=True) if not idle]
        known = [mark for mark in active if mark is not None]
        if not active or len(known) < len(active):
            return
        watermark = min(known)
        before = self.watermark
        if before is not None and watermark <= before:
            return
        self._run(scope.made_of_state(), lambda out: self.operator.on_watermark(watermark, before, out))
        self.watermark = watermark
        self.forward_watermark(scope)

    def output_watermark(self) -> int | None:
        watermark = self.watermark
        if watermark is None or watermark >= MAX_WATERMARK:
            return watermark
        return self.operator.output_watermark(watermark)

    def forward_watermark(self, scope: BatchScope, *, idle: bool = False) -> None:
        for edge in self.downstream:
            edge.task.receive_watermark(self.output_watermark(), edge.channel, scope, idle=idle)

    # --- the clock ---

    def receive_tick(self, channel: int, scope: BatchScope) -> None:
        with self._free:
            if channel not in self._delivered:
                self._run(scope, lambda out: self.operator.on_tick(self.watermark, out))
                self.forward_tick(scope)

    def forward_tick(self, scope: BatchScope) -> None:
        for edge in self.downstream:
            edge.task.receive_tick(edge.channel, scope)

    # --- barriers ---

    def receive_barrier(self, barrier: CheckpointBarrier, channel: int, run: EpochRun, scope: BatchScope) -> None:
        """The barrier on one input.

        1. Align: block the input until the barrier has come on all.
        2. Call ``handle_checkpoint``.
        3. If it says True, freeze the tables; otherwise this operator skips the epoch.
        4. Forward the barrier.
        5. Unblock.

        If the input has ended, a sink takes its part later: what comes because of the end is of the same epoch.
        """
        with self._free:
            if run.over:
                return
            if run.ends and self.is_sink:
                run.started_alignment(self.name)
                return
            # Step 1
            if not self._delivered:
                run.started_alignment(self.name)
                self._epoch_run = run
            self._delivered.add(channel)
            if len(self._delivered) < self.inputs:
                return
            self.cut(barrier, run, scope)
            # Step 5
            self._unblock()

    @property
    def is_sink(self) -> bool:
        return isinstance(self.operator, BoundSink)

    def cut(self, barrier: CheckpointBarrier, run: EpochRun, scope: BatchScope) -> None:
        """Steps 2 to 4: the operator's own part in the epoch."""
        run.started_checkpointing(self.name)
        # Step 2
        taken = self._run(scope, lambda out: self.operator.handle_checkpoint(barrier, self.context, out))
        run.finished_setup(self.name)
        # Step 3
        snapshot = self.tables.checkpoint() if taken else None
        run.finished_sync(self.name, snapshot, self.watermark)
        # Step 4
        for edge in self.downstream:
            edge.task.receive_barrier(barrier, edge.channel, run, scope)

    def cut_alone(self, run: EpochRun, scope: BatchScope) -> None:
        """Take part in the epoch without a barrier from upstream."""
        with self._free, scope:
            self.cut(run.barrier, run, scope)

    def give_up(self, run: EpochRun) -> None:
        """The epoch is aborted: no input waits for it any more."""
        with self._free:
            if self._epoch_run is run:
                self._unblock()

    def _unblock(self) -> None:
        self._delivered.clear()
        self._epoch_run = None
        self._free.notify_all()


class _TaskCollector(Collector):
    """Takes what one call of an operator gives."""

    def __init__(self, task: Task, scope: BatchScope) -> None:
        self._task = task
        self._scope = scope
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def emit(self, frame: DataFrame, port: str = MAIN, *, of: Run | None = None) -> None:
        if self._closed:
            raise RuntimeError(
                f"operator {self._task.name!r} emits outside of process, on_watermark and handle_checkpoint"
            )
        self._task.send(self._scope, frame, port, of)

    def is_read(self, port: str) -> bool:
        return any(edge.port == port for edge in self._task.downstream)

    def for_this_batch(self, frame: DataFrame, metrics: PlanMetrics | None = None) -> Run:
        run = Run.materialise(frame, metrics or self._task.run_metrics).hold()
        self.release_later(run)
        return run

    def release_later(self, run: Run) -> None:
        self._scope.dropped.append(run)

    def later(self, job: Callable[[], None]) -> None:
        self._scope.later(self._task.name, job)
