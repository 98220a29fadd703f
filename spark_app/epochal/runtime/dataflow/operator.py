"""What an operator is: the contract that the built-in ones and those of users share.

An :class:`Operator` describes: it never changes, and says what it needs in its constructor. Once the columns of its
inputs are known, :meth:`Operator.bind` makes the :class:`BoundOperator` that does the work, with its tables.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from epochal.protocol.barrier import CheckpointBarrier
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.plan_metrics import PlanMetrics
from epochal.runtime.state.table_manager import StateTable
from epochal.runtime.state.tables import Run

MAIN = "main"
EXPRESSIONS = frozenset({"aggregates", "order"})
"""Parts of a definition that another version of Spark may say in other words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """Whose operator it is: what a sink writes beside its rows, so that a commit made again is known."""

    name: str
    """``namespace/job``"""
    generation: int
    newest_epoch: int
    """The highest epoch number that the job had given out when this generation began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindContext:
    """What is known while the graph is checked."""

    name: str
    """The operator's, for log lines and the names of files."""
    spark: SparkSession

    def empty(self, schema: StructType) -> DataFrame:
        """A frame with these columns and no rows: what is made of it shows what will come, and whether it can."""
        return self.spark.createDataFrame([], schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """Where an operator runs."""

    name: str
    job: JobRef
    spark: SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows that have come, and what is known of them."""

    frame: DataFrame
    channel: int = 0
    """The input that they came on; 0 is the stream that the operator was applied to."""
    watermark: int | None = None
    """The operator's, in microseconds, when the batch has its turn."""
    latest_time: int | None = None
    """Rows with later event times are too far ahead of the clock: leave them out like those that are late. One of them
    would make all that follows late otherwise."""
    small: bool = False
    """Whether few rows are expected: then one task is faster than several that exchange rows."""
    counting: bool = False
    """Whether the source relies on :attr:`BatchStats.rows`: only if :attr:`BoundOperator.counts_input`."""
    run: Run | None = None
    """The run that the rows are a plain view of, if they are: there is nothing to compute."""
    prepared: Run | None = None
    """What :meth:`BoundOperator.prepare` has made of the rows, if there was time for it."""
    of_state: bool = False
    """Whether the rows were made of state, because a watermark has come: they can be computed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStats:
    """What became of a batch."""

    late_rows: int = 0
    """Rows that were left out because their event time was over, or too far ahead."""
    rows: int | None = None
    """How many rows came, if the batch was to be counted."""
    newest: int | None = None
    """Their newest event time, if the batch was to be counted."""


class Collector(ABC):
    """Takes what an operator gives, while one of its methods runs."""

    @abstractmethod
    def emit(self, frame: DataFrame, port: str = MAIN, *, of: Run | None = None) -> None:
        """Send rows downstream. ``port`` names a side output. ``of``: the run, held already, that the rows are columns
        of and nothing else."""

    @abstractmethod
    def is_read(self, port: str) -> bool:
        """Whether anything is downstream of this output: work for nobody can be left out."""

    @abstractmethod
    def for_this_batch(self, frame: DataFrame, metrics: PlanMetrics | None = None) -> Run:
        """Rows that a batch needs more than once: computed now, and let go when the batch is done, unless there are
        views of them. ``metrics`` are those of :func:`epochal.runtime.state.tables.run_metrics`, if times matter."""

    @abstractmethod
    def release_later(self, run: Run) -> None:
        """Let a run go when the batch is done: what was sent downstream may be lazy, and read it."""

    @abstractmethod
    def later(self, job: Callable[[], None]) -> None:
        """Do a job in the background, that the batch need not wait for."""


class BoundOperator:
    """One node of the graph at work. Override what you need; all but :meth:`prepare` is called by one thread at a time.

    Keep state only in ``tables``, or move it there in :meth:`handle_checkpoint`: an attribute is gone after a restart.
    """

    counts_input = False
    """Whether it can tell its source, by :class:`BatchStats` and if :attr:`Batch.counting` is set, what a batch had.
    Counting each row on its way costs as much as decoding it; who groups rows anyway learns it for nothing."""

    def __init__(self, outputs: Mapping[str, StructType], tables: Sequence[StateTable] = ()) -> None:
        """``outputs``: the columns that leave by each port. ``tables``: all state, restored before :meth:`on_start`. It
        is checked before anything runs whether what they hold can be stored."""
        self.outputs = MappingProxyType(dict(outputs))
        self.tables = tuple(tables)

    def state_definition(self) -> dict[str, str]:
        """What the state in its tables means, part by part: keys, sizes, functions. It stands in the manifest, and a
        driver whose operator says something else is refused that state. Empty: any state will do. Parts named in
        :data:`EXPRESSIONS` are in the words of Spark."""
        return {}

    def on_start(self, ctx: OperatorContext) -> None:
        """Called once, before the first batch, with restored tables."""

    def passed(self, frame: DataFrame) -> DataFrame | None:
        """The rows as they go on, if that is all there is to do with them: they wait for no turn then. None if they are
        to be processed."""
        return None

    def prepare(self, batch: Batch) -> Run | None:
        """Compute what can be without state: it is ``batch.prepared`` in :meth:`process`. The only method that is
        called by several threads at a time, one for each input; the batch has no watermark yet."""
        return None

    def process(self, batch: Batch, out: Collector) -> BatchStats | None:
        """Take one micro-batch. None: there is nothing to tell of it."""
        out.emit(batch.frame)
        return None

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        """No row with an event time before ``watermark`` (microseconds) is expected any more. It only grows;
        ``before`` is what it was."""

    def on_tick(self, watermark: int | None, out: Collector) -> None:
        """Called about once a second between batches, and while there are none: for what goes by the clock."""

    def output_watermark(self, watermark: int) -> int:
        """The watermark that downstream may rely on, given this operator's own."""
        return watermark

    def handle_checkpoint(self, barrier: CheckpointBarrier, ctx: OperatorContext, out: Collector) -> bool:
        """Called when the barrier has arrived on all inputs, before state is persisted: flush what is held elsewhere.

        False skips this checkpoint: the epoch then carries this operator's tables of the last epoch that had them.
        """
        return True


_AT_WORK = frozenset(name for name in vars(BoundOperator) if not name.startswith("_"))


class Operator(ABC):
    """One node of the graph as described. It never changes: what does is in what it is bound to."""

    takes_changelog: ClassVar[bool] = True
    """Whether rows that take others back may come. Who counts each row as one more cannot take them."""

    def __init_subclass__(cls) -> None:
        """Nobody would call them there, and nobody would notice."""
        for name in sorted(_AT_WORK & vars(cls).keys()):
            raise PipelineError(
                f"{cls.__name__}.{name} would never be called: define {name} on the BoundOperator that "
                f"{cls.__name__}.bind returns"
            )

    @abstractmethod
    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        """What it becomes, given the columns of its inputs. Called before anything runs: what cannot work is told here.
        Called again, it gives another one with tables of its own."""
