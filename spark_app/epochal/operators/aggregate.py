"""Updating aggregates: a result per key that changes with every batch."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.aggregates import Aggregation, arrow_sum, is_ansi
from epochal.operators.definitions import named_expressions, typed
from epochal.operators.keys import KEY, check_keys, check_looked_up, key_columns, key_of, with_key
from epochal.runtime.dataflow.operator import MAIN, Operator, OperatorContext
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.state.latest_files import HASH, OLDER, Sum
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.tables import KeyedTimeTable, union

_SIDES = "__sides"


class UpdatingAggregateOperator(Operator):
    """Keeps the merged partials of each key; emits the new result of every key that a batch touched.

    Of an aggregate without partials the rows are kept, and all of a key that is touched are read again.
    """

    def __init__(self, *, keys: list[str], aggregates: dict[str, Column]) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._aggregation: Aggregation | None = None
        self._key_types = StructType()
        self._state = StructType()
        self._partial: Callable[[DataFrame], DataFrame] | None = None
        self._results: Prepared | None = None
        self._sums: dict[str, Sum] = {}
        """How executors add partials by themselves; empty where Spark has to."""
        self._totals: LatestTable | None = None
        self._rows: KeyedTimeTable | None = None

    def state_definition(self) -> dict[str, str]:
        assert self._aggregation is not None
        return {
            "keys": typed(self._keys, self._key_types),
            "aggregates": named_expressions(self._aggregates, self._aggregation.types),
        }

    def on_start(self, ctx: OperatorContext) -> None:
        assert self._aggregation is not None
        if self._keeps_rows:
            self._rows = ctx.table_manager.keyed_time_table("rows", self._state, partitioned_by=[KEY])
        else:
            self._totals = ctx.table_manager.latest_table("totals", self._state)

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        if self._keeps_rows:
            self._add_rows(frame, ctx)
        else:
            self._update(frame, ctx)

    @property
    def _keeps_rows(self) -> bool:
        assert self._aggregation is not None
        return self._aggregation.keeps_rows

    def _update(self, frame: DataFrame, ctx: OperatorContext) -> None:
        assert self._aggregation is not None
        assert self._totals is not None
        assert self._partial is not None
        assert self._results is not None
        fresh = self._partial(self._totals.to_be_grouped(frame))
        if self._sums:
            changed = self._totals.add(fresh, self._sums)
        elif self._aggregation.adds:
            changed = self._totals.update(fresh, self._added)
        else:
            changed = self._totals.update(fresh, self._merged, moves=True)
        if changed.rows:
            ctx.emit(self._results.select(changed.frame), of=changed)
            self._totals.merge_small()

    def _added(self, found: DataFrame) -> DataFrame:
        """What was known and what a batch brings, column by column."""
        assert self._aggregation is not None
        return found.select(HASH, KEY, *self._aggregation.added(lambda part: F.col(OLDER + part), F.col))

    def _merged(self, found: DataFrame) -> DataFrame:
        """The same where partials can only be merged by grouping them. What is not known is null, and adds nothing."""
        assert self._aggregation is not None
        names = [name for name in self._state.names if name != KEY]
        sides = [F.struct(*(F.col(side + name).alias(name) for name in names)) for side in (OLDER, "")]
        flat = found.select(KEY, F.explode(F.array(*sides)).alias(_SIDES)).select(KEY, f"{_SIDES}.*")
        merged = flat.groupBy(KEY).agg(*self._aggregation.merges)
        return merged.select(F.xxhash64(KEY).alias(HASH), KEY, *names)

    def _add_rows(self, frame: DataFrame, ctx: OperatorContext) -> None:
        assert self._aggregation is not None
        assert self._rows is not None
        before = [run.frame for run in self._rows.runs]
        added = self._rows.append(with_key(frame, self._keys).repartition(KEY))
        if added.rows:
            touched = _touched(before, added.frame)
            ctx.emit(self._aggregation.result(touched).select(*key_columns(self._keys), *self._aggregates))
            self._rows.merge_small(self._aggregation.merged)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        check_keys(frames[0], self._keys)
        keyed = with_key(frames[0], self._keys)
        self._key_types = frames[0].schema
        aggregation = self._aggregation = Aggregation([KEY], self._aggregates, keyed)
        partials = aggregation.partial(keyed)
        self._state = aggregation.state
        self.tables = {"rows" if aggregation.keeps_rows else "totals": self._state}
        if not aggregation.keeps_rows:
            check_looked_up(frames[0], self._keys)
            self._partial = aggregation.partial_of([key_of(self._keys)])
            self._results = Prepared([*key_columns(self._keys), *aggregation.results()])
            self._sums = self._arrow_sums(frames[0].sparkSession, aggregation)
        return {MAIN: aggregation.result(partials).select(*key_columns(self._keys), *self._aggregates)}

    def _arrow_sums(self, spark: SparkSession, aggregation: Aggregation) -> dict[str, Sum]:
        sums = {
            name: arrow_sum(plus, self._state[name].dataType, checked=is_ansi(spark))
            for name, plus in aggregation.plus.items()
        }
        known = {name: found for name, found in sums.items() if found is not None}
        return known if len(known) == len(sums) else {}


def _touched(before: list[DataFrame], added: DataFrame) -> DataFrame:
    """All rows of the keys that the batch touched: its own keys are hashed, and the state goes past them."""
    older = union(before)
    if older is None:
        return added
    return older.join(added.select(KEY).hint("shuffle_hash"), KEY, "left_semi").unionByName(added)
