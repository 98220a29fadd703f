"""A sink in two phases: while an epoch is being made its rows are held as state, and once it is published they are
committed.

What a sink implements is :class:`SinkOperator`. The runtime makes a :class:`BoundSink` of it, which holds the rows in
:class:`PendingRows`; nobody can make one without the other.
"""

import threading
from collections.abc import Callable, Sequence
from typing import final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.documents import AT_END, PENDING
from epochal.runtime.dataflow.early_output import Ahead
from epochal.runtime.dataflow.operator import (
    MAIN,
    Batch,
    BindContext,
    BoundOperator,
    Collector,
    Operator,
    OperatorContext,
)
from epochal.runtime.spark.plan_metrics import PlanMetrics
from epochal.runtime.state.parquet_run import MANY, packed_run
from epochal.runtime.state.table_manager import StateTable
from epochal.runtime.state.tables import ComingRun, KeyedTimeTable, Run, run_metrics

COMMIT_PATIENCE = 600.0
"""Seconds that a commit waits for a target that is away. After that the driver ends, and the next one commits."""

START_PATIENCE = 300.0
"""The same while a generation starts: less than ``startTimeout``, so that the driver itself says why it could not."""


class SinkOperator(Operator):
    """An operator that makes rows visible outside, once per epoch. Implement :meth:`commit`; the rest is the runtime's.

    The runtime holds the rows (:class:`BoundSink`) in a table that is part of every epoch. Once the epoch is published
    it calls :meth:`commit`, and calls it again after a crash: so it must be idempotent by epoch. A graph with a sink
    that does not fit is refused before anything runs (:mod:`epochal.runtime.dataflow.sink_contract`).
    """

    def __init_subclass__(cls) -> None:
        """Sinks are refused when they are put into a graph, with what to do in a sink's words."""

    # --- what a sink implements ---

    needs_frame: bool = True
    """Whether :meth:`commit` reads the frame; a sink that works on the objects saves reading them back after a
    crash."""

    commit_patience: float = COMMIT_PATIENCE
    """Seconds for which the runtime calls :meth:`commit` again while the target is away, before the driver ends; while
    a driver starts, 300 at most. Which errors say so is in docs/faults.md; of your own, raise
    :class:`~epochal.runtime.errors.UnavailableError`."""

    commit_progress: int = 0
    """How far a commit has come. If it has moved when a try fails, waiting for the target begins anew."""

    can_take_back: bool = False
    """Whether this sink can remove rows that it has committed."""

    why_not_taken_back: str = "it has no way to remove what it has committed"
    """What people are told where :attr:`can_take_back` is False."""

    def open(self, ctx: OperatorContext) -> None:
        """Called once, while a generation starts, before anything is taken back or committed: connect, and take over
        from older generations."""

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        """Called before anything runs, with an empty frame of what will come: see that the target takes such rows."""
        return {MAIN: self.encode(frames[0])}

    def encode(self, frame: DataFrame) -> DataFrame:
        """The rows of a batch as they are held and committed. Deterministic, and without a look at the target."""
        return frame

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        """Make the epoch's rows visible. ``objects`` are the Parquet objects that hold them, ``frame`` the same rows if
        it is needed; both empty if there are none."""
        raise NotImplementedError

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        """Remove what epochs newer than ``after`` committed, of this job and sink. Idempotent; returns how many epochs
        were removed. Called while a generation starts, before any batch, after :meth:`open`."""
        raise NotImplementedError

    # --- what is the runtime's ---

    @final
    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> "BoundSink":
        rows = ctx.empty(inputs[0])
        self.schema_of([rows])
        return BoundSink(self, self.encode(rows).schema)


class BoundSink(BoundOperator):
    """Holds a sink's rows until their epoch is published."""

    def __init__(self, sink: SinkOperator, rows: StructType) -> None:
        self.sink = sink
        self.rows = rows
        """The columns that are held: those that come, encoded."""
        self.pending = PendingRows(rows, may_pack=not sink.needs_frame)
        super().__init__({}, self.pending.tables)

    def on_start(self, ctx: OperatorContext) -> None:
        self.sink.open(ctx)
        self.pending.start(takes_back=self.sink.can_take_back)  # some sinks know only when they are open

    def process(self, batch: Batch, out: Collector) -> None:
        self.pending.add(self.sink.encode(batch.frame), batch.run, out.later if batch.of_state else None)

    def handle_checkpoint(self, barrier: CheckpointBarrier, ctx: OperatorContext, out: Collector) -> bool:
        self.pending.settle(ctx.name)
        return True


class PendingRows:
    """Holds each batch's rows as a run of the table ``pending``. An epoch's snapshot holds all that is not committed;
    runs leave the table when an epoch that has them is committed, so the rows of a failed epoch come with the next
    one.

    Rows that come because all sources have ended are in a table of their own. If the job is run again, they come again
    unless more input changes them: a sink that can takes them back before; of another one's those that are the same
    are left out (:mod:`epochal.runtime.dataflow.early_output`).

    The runtime makes one for every sink, so there is no sink without it.
    """

    def __init__(self, schema: StructType, *, may_pack: bool) -> None:
        """``may_pack``: nobody reads the rows as a frame, so they may wait as Parquet files."""
        # What a restored epoch has pending is committed from its objects when it is restored.
        self._table = KeyedTimeTable(PENDING, schema, restored=False, dropped_together=True)
        self._at_end = KeyedTimeTable(AT_END, dropped_together=True)
        self._ahead = Ahead()
        self._ended = self._settled = False
        self.rows_committed = 0
        self._may_pack = may_pack
        self._done: set[int] = set()
        self._metrics: PlanMetrics | None = None
        self._many = False
        self._lock = threading.Lock()

    @property
    def tables(self) -> Sequence[StateTable]:
        return self._table, self._at_end, self._ahead.table

    def start(self, *, takes_back: bool) -> None:
        """What a restored epoch gave the sink because of an end is taken back, or the sink has it ahead of time."""
        if not takes_back:
            self._ahead.add(self._at_end.runs)
        self._at_end.clear()

    @property
    def runs(self) -> list[Run]:
        return [*self._table.runs, *self._at_end.runs]

    def end(self) -> None:
        """What comes from here on comes because all sources have ended."""
        self._ended = True

    def add(self, frame: DataFrame, of: Run | None, later: Callable[[Callable[[], None]], None] | None) -> None:
        """Hold a batch's rows. ``of``: the run that they are columns of and nothing else; ``later``: takes a job that
        need not be done within the batch."""
        self._forget_committed()
        table = self._at_end if self._ended else self._table
        if of is not None:
            table.add(of.part(frame))
        elif later is not None:
            run = ComingRun(frame, self._waiting)
            table.add_coming(run)
            later(run.compute)
        else:
            table.add(self._waiting(frame))

    def _waiting(self, frame: DataFrame) -> Run:
        """The rows, computed; as Parquet files if there are likely to be many, because there were last time, and they
        are not to be compared with what is ahead."""
        if self._many and self._may_pack and self._ahead.nothing:
            run = packed_run(frame)
        else:
            self._metrics = self._metrics or run_metrics()
            run = Run.materialise(frame, self._metrics)
        self._many = run.rows >= MANY
        return run

    def committed(self, runs: list[Run], rows: int) -> None:
        """The epoch that has these runs is committed. Called by another thread than the others: the runs leave the
        table at its next use."""
        with self._lock:
            self._done.update(run.number for run in runs)
            self.rows_committed += rows

    def settle(self, sink: str) -> None:
        """Before an epoch: leave out what is committed already. ``sink`` is named in log lines."""
        self._forget_committed()
        if not self._ahead.nothing and not self._settled:
            self._ahead.settle(self._table)
            if self._ended:
                self._ahead.leave_out_of(self._at_end, sink)
        # Nothing comes after an end. An epoch that is made once more has the same rows.
        self._settled = self._ended

    def _forget_committed(self) -> None:
        with self._lock:
            done, self._done = self._done, set()
        if done:
            for table in (self._table, self._at_end):
                table.drop([run for run in table.runs if run.number in done])
