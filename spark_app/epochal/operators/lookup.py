"""Enrichment: rows of a stream with what a table says about them, read again now and then."""

import logging
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal.operators.keys import KEY, check_sides, with_key, without_nulls
from epochal.runtime.dataflow.operator import MAIN, Operator, OperatorContext
from epochal.runtime.errors import PipelineError, summarize_error
from epochal.runtime.state.tables import Run

Table = DataFrame | Callable[[SparkSession], DataFrame]
HOW = ("inner", "left")

BROADCAST_ROWS = 100_000
"""A table of up to so many rows is given to every task. A larger one stays where it is, and each batch is moved to
it."""

logger = logging.getLogger(__name__)


class LookupOperator(Operator):
    """Joins each batch with the table as it was read last. It is held like state, but is not part of epochs: a restart
    reads it again.

    If reading it again fails, the rows of last time are used further, and the next try is made after ``refresh``.
    """

    def __init__(
        self,
        *,
        table: Table,
        keys: list[str],
        how: str,
        refresh: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._keys = keys
        self._how = how
        self._refresh = refresh
        self._clock = clock
        self._held: Run | None = None
        self._read_at = 0.0

    def on_start(self, ctx: OperatorContext) -> None:
        self._held, self._read_at = self._read(ctx.spark), self._clock()

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._held is not None
        if self._refresh is not None and self._clock() - self._read_at >= self._refresh:
            self._read_again(ctx)
        ctx.emit(self._enriched(frame, self._held.frame, small=self._held.rows <= BROADCAST_ROWS))

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        table = self._rows(frames[0].sparkSession)
        check_sides(frames[0], table, self._keys, names=("the stream", "the table"))
        return {MAIN: self._enriched(frames[0], self._keyed(table), small=True)}

    def _read_again(self, ctx: OperatorContext) -> None:
        assert self._held is not None
        self._read_at = self._clock()
        try:
            fresh = self._read(ctx.spark)
        except Exception as error:
            logger.warning(
                "Operator %s could not read its table again and goes on with the %s rows of last time: %s",
                ctx.name,
                self._held.rows,
                summarize_error(error),
            )
            return
        # Nothing of the batches before is lazy any more.
        self._held.release()
        self._held = fresh

    def _read(self, spark: SparkSession) -> Run:
        return Run.materialise(self._keyed(self._rows(spark)).repartition(KEY)).hold()

    def _rows(self, spark: SparkSession) -> DataFrame:
        table = self._table if isinstance(self._table, DataFrame) else self._table(spark)
        if not isinstance(table, DataFrame):
            raise PipelineError(f"the table's function must return a DataFrame, not {type(table).__name__}")
        if table.isStreaming:
            raise PipelineError("the table is a stream: use spark.read for it, or join two streams with .join")
        return table

    def _keyed(self, table: DataFrame) -> DataFrame:
        """With the keys as one column. A row without a key has no partner, as in any join."""
        return with_key(without_nulls(table, self._keys), self._keys).drop(*self._keys)

    def _enriched(self, frame: DataFrame, table: DataFrame, *, small: bool) -> DataFrame:
        rows = with_key(frame, self._keys)
        if small:
            joined = rows.join(F.broadcast(table), KEY, self._how)
        else:
            # The batch is hashed, and the table goes past it.
            joined = rows.repartition(KEY).hint("shuffle_hash").join(table, KEY, self._how)
        return joined.drop(KEY)
