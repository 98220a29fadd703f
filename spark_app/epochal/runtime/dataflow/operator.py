"""What an operator is: the contract that the built-in ones and those of users share."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from epochal.protocol.barrier import CheckpointBarrier
from epochal.runtime.dataflow.pending import PendingRows
from epochal.runtime.state.table_manager import TableManager
from epochal.runtime.state.tables import Run

MAIN = "main"
EXPRESSIONS = frozenset({"aggregates", "order"})
"""Parts of a definition that another version of Spark may say in other words."""
COMMIT_PATIENCE = 600.0
"""Seconds that a commit waits for a target that is away. After that the driver ends, and the next one commits."""
ROW_KIND = "row_kind"
"""The column that makes a stream a changelog: whether a row is added or taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """Whose operator it is: what a sink writes beside its rows, so that a commit made again is known."""

    name: str
    """``namespace/job``"""
    generation: int
    newest_epoch: int
    """The highest epoch number that the job had given out when this generation began."""


class OperatorContext:
    """What an operator may use. It belongs to one operator and is valid only inside that operator's methods."""

    def __init__(self, *, name: str, job: JobRef, spark: SparkSession, table_manager: TableManager) -> None:
        self.name = name
        self.job = job
        self.spark = spark
        self.table_manager = table_manager
        self.watermark: int | None = None
        self.late_rows = 0
        self.max_ahead: int | None = None
        """How far ahead of the clock event times may be (microseconds)."""
        self.ports_read: set[str] = set()
        self.small_batch = False
        """Whether few rows are expected: then one task is faster than several that exchange rows."""
        self.counts_input = False
        """Whether the source relies on :meth:`note_input`."""
        self.noted: dict[str, int | None] | None = None
        self.batch_run: Run | None = None
        """The run that the batch's rows are a plain view of, if they are: there is nothing to compute."""
        self.prepared: Run | None = None
        """What :meth:`Operator.prepare` has made of the batch."""
        self.later: Callable[[Callable[[], None]], None] | None = None
        """Takes a job that need not be done within the batch, if there may be such: a frame then is of state only."""
        self.pending: PendingRows | None = None
        """What a sink has not committed yet."""
        self._send: Callable[[DataFrame, str, Run | None], None] | None = None

    def latest_time(self) -> int | None:
        """Rows with later event times are too far ahead of the clock: they are left out like those that are late. One
        of them would make all that follows late otherwise."""
        return None if self.max_ahead is None else time.time_ns() // 1000 + self.max_ahead

    def is_read(self, port: str) -> bool:
        """Whether anything is downstream of this output: work for nobody can be left out."""
        return port in self.ports_read

    def emit(self, frame: DataFrame, port: str = MAIN, *, of: Run | None = None) -> None:
        """Send rows downstream. ``port`` names a side output. ``of``: the run, held already, that the rows are columns
        of and nothing else."""
        if self._send is None:
            raise RuntimeError(f"operator {self.name!r} emits outside of process, on_watermark and handle_checkpoint")
        self._send(frame, port, of)

    def note_input(self, *, rows: int, newest: int | None) -> None:
        """Tell how many rows a batch had, and their newest event time. See :attr:`Operator.counts_input`."""
        self.noted = {"rows": rows, "newest": newest}


class Operator:
    """One node of the graph. Override what you need; all but :meth:`prepare` is called by one thread at a time.

    Keep state only in the tables of ``ctx.table_manager``, or move it there in :meth:`handle_checkpoint`: an attribute
    is gone after a restart. Tables are asked for in :meth:`on_start`, by name.
    """

    tables: Mapping[str, StructType] = MappingProxyType({})
    """What each table holds, by name: set in ``schema_of``, once the input is known, and given to the table manager. It
    is checked before anything runs whether all of it can be stored."""

    takes_changelog = True
    """Whether rows that take others back may come. Who counts each row as one more cannot take them."""

    @property
    def counts_input(self) -> bool:
        """Whether it can tell its source, by ``ctx.note_input`` and if ``ctx.counts_input`` is set, what a batch had.
        Counting each row on its way costs as much as decoding it; who groups rows anyway learns it for nothing."""
        return False

    def state_definition(self) -> dict[str, str]:
        """What the state in its tables means, part by part: keys, sizes, functions. It stands in the manifest, and a
        driver whose operator says something else is refused that state. Empty: any state will do. Called after the
        graph is checked. Parts named in :data:`EXPRESSIONS` are in the words of Spark."""
        return {}

    def on_start(self, ctx: OperatorContext) -> None:
        """Called once, before the first batch, with restored tables."""

    def passed(self, frame: DataFrame) -> DataFrame | None:
        """The rows as they go on, if that is all there is to do with them: they wait for no turn then. None if they are
        to be processed."""
        return None

    def prepare(self, frame: DataFrame, ctx: OperatorContext, channel: int, *, small: bool) -> Run | None:
        """Compute what can be without state: it is ``ctx.prepared`` in :meth:`process`. The only method that is called
        by several threads at a time, one for each input. ``small``: few rows are expected."""
        return None

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        """Take one micro-batch that came on input ``channel`` (0 is the stream that the operator was applied to)."""
        ctx.emit(frame)

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        """No row with an event time before ``watermark`` (microseconds) is expected any more. It only grows."""

    def on_tick(self, ctx: OperatorContext) -> None:
        """Called about once a second between batches, and while there are none: for what goes by the clock."""

    def output_watermark(self, watermark: int) -> int:
        """The watermark that downstream may rely on, given this operator's own."""
        return watermark

    def handle_checkpoint(self, barrier: CheckpointBarrier, ctx: OperatorContext) -> bool:
        """Called when the barrier has arrived on all inputs, before state is persisted: flush what is held elsewhere.

        False skips this checkpoint: the epoch then carries this operator's tables of the last epoch that had them.
        """
        return True


class SinkOperator(Operator):
    """An operator that makes rows visible outside, once per epoch. Implement :meth:`commit`; the rest is the runtime's.

    The runtime holds the rows in ``ctx.pending``, whose table is part of every epoch. Once the epoch is published it
    calls :meth:`commit`, and calls it again after a crash: so it must be idempotent by epoch. A graph with a sink that
    does not fit is refused before anything runs (:mod:`epochal.runtime.dataflow.sink_contract`).
    """

    # --- what a sink implements ---

    needs_frame: bool = True
    """Whether :meth:`commit` reads the frame; a sink that works on the objects saves reading them back after a
    crash."""

    commit_patience: float = COMMIT_PATIENCE
    """Seconds for which the runtime calls :meth:`commit` again while the target is away, before the driver ends. Which
    errors say so is in docs/faults.md; of your own, raise :class:`~epochal.runtime.errors.UnavailableError`."""

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
    def on_start(self, ctx: OperatorContext) -> None:
        ctx.pending = PendingRows(
            ctx.name, ctx.table_manager, may_pack=not self.needs_frame, takes_back=self.can_take_back
        )
        self.open(ctx)

    @final
    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert ctx.pending is not None
        ctx.pending.add(self.encode(frame), ctx.batch_run, ctx.later)

    @final
    def handle_checkpoint(self, barrier: CheckpointBarrier, ctx: OperatorContext) -> bool:
        assert ctx.pending is not None
        ctx.pending.settle()
        return True
