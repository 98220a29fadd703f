"""Enrichment: rows of a stream with what a table says about them, read again now and then."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.keys import KEY, check_sides, with_key, without_nulls
from epochal.runtime.dataflow.operator import (
    MAIN,
    Batch,
    BindContext,
    BoundOperator,
    Collector,
    Operator,
    OperatorContext,
)
from epochal.runtime.errors import PipelineError, summarize_error
from epochal.runtime.state.tables import Run
from epochal.runtime.users_code import users_code

Table = DataFrame | Callable[[SparkSession], DataFrame]
HOW = ("inner", "left")

BROADCAST_ROWS = 100_000
"""A table of up to so many rows is given to every task. A larger one stays where it is, and each batch is moved to
it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookupOperator(Operator):
    """Joins each batch with the table as it was read last. It is held like state, but is not part of epochs: a restart
    reads it again.

    If reading it again fails, the rows of last time are used further, and the next try is made after ``refresh``.
    """

    table: Table
    keys: list[str]
    how: str
    refresh: float | None
    clock: Callable[[], float] = time.monotonic

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame, table = ctx.empty(inputs[0]), self.rows(ctx.spark)
        check_sides(frame, table, self.keys, names=("the stream", "the table"))
        return _Lookup(self, frame, table, ctx)

    def rows(self, spark: SparkSession) -> DataFrame:
        """The table, to be read anew."""
        table = self.table if isinstance(self.table, DataFrame) else self.table(spark)
        if not isinstance(table, DataFrame):
            raise PipelineError(f"the table's function must return a DataFrame, not {type(table).__name__}")
        if table.isStreaming:
            raise PipelineError("the table is a stream: use spark.read for it, or join two streams with .join")
        return table


@dataclass(frozen=True, slots=True)
class _Held:
    """The table as it was read."""

    rows: Run
    at: float


class _Lookup(BoundOperator):
    def __init__(self, spec: LookupOperator, frame: DataFrame, table: DataFrame, ctx: BindContext) -> None:
        self._spec = spec
        self._name = ctx.name
        self._spark = ctx.spark
        self._last: _Held | None = None
        super().__init__({MAIN: self._enriched(frame, self._keyed(table), small=True).schema})

    def on_start(self, ctx: OperatorContext) -> None:
        self._held()

    def process(self, batch: Batch, out: Collector) -> None:
        held = self._held()
        out.emit(self._enriched(batch.frame, held.frame, small=held.rows <= BROADCAST_ROWS))

    def _held(self) -> Run:
        """The table, read again if it is time to."""
        last, now, refresh = self._last, self._spec.clock(), self._spec.refresh
        if last is None:
            last = self._last = _Held(self._read(), self._spec.clock())
        elif refresh is not None and now - last.at >= refresh:
            last = self._last = _Held(self._read_again(last.rows), now)
        return last.rows

    def _read_again(self, last: Run) -> Run:
        try:
            fresh = self._read()
        except Exception as error:
            logger.warning(
                "Operator %s could not read its table again and goes on with the %s rows of last time: %s",
                self._name,
                last.rows,
                summarize_error(error),
            )
            return last
        # Nothing of the batches before is lazy any more.
        last.release()
        return fresh

    def _read(self) -> Run:
        with users_code():
            table = self._spec.rows(self._spark)
        return Run.materialise(self._keyed(table).repartition(KEY)).hold()

    def _keyed(self, table: DataFrame) -> DataFrame:
        """With the keys as one column. A row without a key has no partner, as in any join."""
        keys = self._spec.keys
        return with_key(without_nulls(table, keys), keys).drop(*keys)

    def _enriched(self, frame: DataFrame, table: DataFrame, *, small: bool) -> DataFrame:
        rows, how = with_key(frame, self._spec.keys), self._spec.how
        if small:
            joined = rows.join(F.broadcast(table), KEY, how)
        else:
            # The batch is hashed, and the table goes past it.
            joined = rows.repartition(KEY).hint("shuffle_hash").join(table, KEY, how)
        return joined.drop(KEY)
