"""Updating aggregates: a result per key that changes with every batch."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.operators.aggregates import Aggregation
from epochal.operators.keys import KEY, key_columns, with_key
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import KeyedTimeTable, union

_FRESH = "__fresh_"
"""Begins the names of a batch's own partials where they stand beside those of older ones."""
_OLDER_KEY = "__older_key"


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
        assert self._aggregation is not None
        assert self._table is not None
        changed = self._update(frame, ctx) if self._aggregation.plus else self._update_in_two(frame, ctx)
        if changed:
            self._table.merge_small(self._aggregation.merged)

    def _update(self, frame: DataFrame, ctx: OperatorContext) -> bool:
        """By one job: the batch's partials and, beside them, the new results are one run, of which the table and
        whoever comes next have a part each."""
        assert self._aggregation is not None
        assert self._table is not None
        fresh = self._partial(frame, self._aggregation)
        changed = ctx.table_manager.for_this_batch(self._beside(fresh, self._table.read()))
        if not changed.rows:
            return False
        own = [F.col(_FRESH + part).alias(part) for part in self._aggregation.plus]
        self._table.add(changed.part(changed.frame.select(KEY, *own)))
        ctx.emit(changed.frame.select(*key_columns(self._keys), *self._aggregates), of=changed)
        return True

    def _beside(self, fresh: DataFrame, older: DataFrame | None) -> DataFrame:
        """A batch's keys, with its partials and the new results. The batch is hashed, and the state goes past it."""
        assert self._aggregation is not None
        plus = self._aggregation.plus
        own = [_FRESH + part for part in plus]
        renamed = fresh.select(KEY, *(F.col(part).alias(_FRESH + part) for part in plus))
        if older is None:
            total = renamed.select(KEY, *own, *(F.col(_FRESH + part).alias(part) for part in plus))
        else:
            older = older.withColumnRenamed(KEY, _OLDER_KEY)
            joined = older.join(renamed.hint("shuffle_hash"), F.col(_OLDER_KEY) == F.col(KEY), "right_outer")
            firsts = [F.first(name).alias(name) for name in own]
            known = joined.groupBy(KEY).agg(*self._aggregation.merges, *firsts)
            sums = [add(F.col(part), F.col(_FRESH + part)).alias(part) for part, add in plus.items()]
            total = known.select(KEY, *own, *sums)
        return total.select(KEY, *own, *self._aggregation.results())

    def _update_in_two(self, frame: DataFrame, ctx: OperatorContext) -> bool:
        """Where partials can only be merged by grouping them, or rows are kept."""
        assert self._aggregation is not None
        assert self._table is not None
        before = [run.frame for run in self._table.runs]
        added = self._table.append(self._partial(frame, self._aggregation))
        if added.rows:
            ctx.emit(self._result(_touched(before, added.frame)))
        return added.rows > 0

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
