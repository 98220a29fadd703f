"""Updating aggregates: a result per key that changes with every batch."""

from pyspark.sql import Column, DataFrame

from epochal.operators.aggregates import Aggregation
from epochal.operators.keys import KEY, key_columns, with_key
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
        self._table = ctx.table_manager.keyed_time_table("keys", partitioned_by=[KEY])

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._aggregation is not None
        before = [run.frame for run in self._table.runs]
        added = self._table.append(self._partial(frame, self._aggregation))
        if not added.rows:
            return
        ctx.emit(self._result(_touched(before, added.frame)))
        self._table.merge_small(self._aggregation.merged)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        aggregation = self._aggregation = Aggregation([KEY], self._aggregates, with_key(frames[0], self._keys))
        return {MAIN: self._result(self._partial(frames[0], aggregation))}

    def _partial(self, frame: DataFrame, aggregation: Aggregation) -> DataFrame:
        partials = aggregation.partial(with_key(frame, self._keys))
        return partials.repartition(KEY) if aggregation.keeps_rows else partials

    def _result(self, partials: DataFrame) -> DataFrame:
        assert self._aggregation is not None
        return self._aggregation.result(partials).select(*key_columns(self._keys), *self._aggregates)


def _touched(before: list[DataFrame], added: DataFrame) -> DataFrame:
    """All partials of the keys that the batch touched: its own keys are hashed, and the state goes past them."""
    older = union(before)
    if older is None:
        return added
    return older.join(added.select(KEY).hint("shuffle_hash"), KEY, "left_semi").unionByName(added)
