"""Updating aggregates: a result per key that changes with every batch."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.operators.aggregates import Aggregation
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import KeyedTimeTable, union


class UpdatingAggregateOperator(Operator):
    """Keeps partials per key as runs; emits the new result of every key that a batch touched."""

    def __init__(self, *, keys: list[str], aggregates: dict[str, Column]) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._aggregation: Aggregation | None = None
        self._table: KeyedTimeTable | None = None

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.keyed_time_table("keys")

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._aggregation is not None
        aggregation = self._aggregation
        before = [run.frame for run in self._table.runs]
        added = self._table.append(aggregation.partial(frame))
        if not added.rows:
            return
        ctx.emit(aggregation.result(self._touched(before, added.frame)))
        self._table.merge_small(aggregation.merged)

    def _touched(self, before: list[DataFrame], added: DataFrame) -> DataFrame:
        """All partials of the keys that the batch touched."""
        older = union(before)
        if older is None:
            return added
        touched = added.select(*self._keys).distinct()
        same = [older[key].eqNullSafe(touched[key]) for key in self._keys]
        return older.join(F.broadcast(touched), same, "left_semi").unionByName(added)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        aggregation = self._aggregation = Aggregation(self._keys, self._aggregates, frames[0])
        return {MAIN: aggregation.result(aggregation.partial(frames[0]))}
