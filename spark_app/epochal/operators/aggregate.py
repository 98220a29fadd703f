"""Updating aggregates: a result per key that changes with every batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.aggregates import is_ansi
from epochal.operators.aggregation import Aggregation
from epochal.operators.definitions import named_expressions, typed
from epochal.operators.keys import KEY, check_keys, check_looked_up, key_columns, key_of, with_key
from epochal.runtime.dataflow.operator import MAIN, Batch, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.state.latest_files import HASH, OLDER, Sum
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.table_manager import StateTable
from epochal.runtime.state.tables import KeyedTimeTable, union

_SIDES = "__sides"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UpdatingAggregateOperator(Operator):
    """Emits the new result of every key that a batch touched.

    The merged partials of each key are kept. Of an aggregate without partials the rows are kept, and all of a key that
    is touched are read again.
    """

    keys: list[str]
    aggregates: dict[str, Column]

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        rows = inputs[0]
        frame = ctx.empty(rows)
        check_keys(frame, self.keys)
        keyed = with_key(frame, self.keys)
        aggregation = Aggregation([KEY], self.aggregates, keyed)
        if aggregation.keeps_rows:
            return _KeptRows(self, aggregation, keyed, rows)
        check_looked_up(frame, self.keys)
        return _Totals(self, aggregation, keyed, rows, ctx)


class _UpdatingAggregate(BoundOperator):
    """What both forms of state have in common."""

    def __init__(
        self,
        spec: UpdatingAggregateOperator,
        aggregation: Aggregation,
        keyed: DataFrame,
        rows: StructType,
        table: StateTable,
    ) -> None:
        self._spec = spec
        self._aggregation = aggregation
        self._key_types = rows
        super().__init__({MAIN: self._result(aggregation.partial(keyed)).schema}, [table])

    def state_definition(self) -> dict[str, str]:
        return {
            "keys": typed(self._spec.keys, self._key_types),
            "aggregates": named_expressions(self._spec.aggregates, self._aggregation.types),
        }

    def _result(self, partials: DataFrame) -> DataFrame:
        return self._aggregation.result(partials).select(*key_columns(self._spec.keys), *self._spec.aggregates)


class _Totals(_UpdatingAggregate):
    """The merged partials of each key."""

    def __init__(
        self,
        spec: UpdatingAggregateOperator,
        aggregation: Aggregation,
        keyed: DataFrame,
        rows: StructType,
        ctx: BindContext,
    ) -> None:
        self._state = aggregation.state
        self._totals = LatestTable("totals", self._state, operator=ctx.name, spark=ctx.spark)
        self._partial = aggregation.partial_of([key_of(spec.keys)])
        self._results = Prepared([*key_columns(spec.keys), *aggregation.results()])
        self._sums = _arrow_sums(ctx.spark, aggregation)
        super().__init__(spec, aggregation, keyed, rows, self._totals)

    def process(self, batch: Batch, out: Collector) -> None:
        fresh = self._partial(self._totals.to_be_grouped(batch.frame))
        if self._sums:
            changed = self._totals.add(fresh, self._sums)
        elif self._aggregation.adds:
            changed = self._totals.update(fresh, self._added)
        else:
            changed = self._totals.update(fresh, self._merged, moves=True)
        if changed.rows:
            out.emit(self._results.select(changed.frame), of=changed)
            self._totals.merge_small()

    def _added(self, found: DataFrame) -> DataFrame:
        """What was known and what a batch brings, column by column."""
        return found.select(HASH, KEY, *self._aggregation.added(lambda part: F.col(OLDER + part), F.col))

    def _merged(self, found: DataFrame) -> DataFrame:
        """The same where partials can only be merged by grouping them. What is not known is null, and adds nothing."""
        names = [name for name in self._state.names if name != KEY]
        sides = [F.struct(*(F.col(side + name).alias(name) for name in names)) for side in (OLDER, "")]
        flat = found.select(KEY, F.explode(F.array(*sides)).alias(_SIDES)).select(KEY, f"{_SIDES}.*")
        merged = flat.groupBy(KEY).agg(*self._aggregation.merges)
        return merged.select(F.xxhash64(KEY).alias(HASH), KEY, *names)


class _KeptRows(_UpdatingAggregate):
    """All rows of each key, for aggregates that have no partials."""

    def __init__(
        self, spec: UpdatingAggregateOperator, aggregation: Aggregation, keyed: DataFrame, rows: StructType
    ) -> None:
        self._rows = KeyedTimeTable("rows", aggregation.state, partitioned_by=[KEY])
        super().__init__(spec, aggregation, keyed, rows, self._rows)

    def process(self, batch: Batch, out: Collector) -> None:
        before = [run.frame for run in self._rows.runs]
        added = self._rows.append(with_key(batch.frame, self._spec.keys).repartition(KEY))
        if added.rows:
            out.emit(self._result(_touched(before, added.frame)))
            self._rows.merge_small(self._aggregation.merged)


def _arrow_sums(spark: SparkSession, aggregation: Aggregation) -> dict[str, Sum]:
    """How executors add partials by themselves; empty where Spark has to."""
    sums = {
        name: plus.arrow(aggregation.state[name].dataType, is_ansi(spark)) for name, plus in aggregation.plus.items()
    }
    known = {name: found for name, found in sums.items() if found is not None}
    return known if len(known) == len(sums) else {}


def _touched(before: list[DataFrame], added: DataFrame) -> DataFrame:
    """All rows of the keys that the batch touched: its own keys are hashed, and the state goes past them."""
    older = union(before)
    if older is None:
        return added
    return older.join(added.select(KEY).hint("shuffle_hash"), KEY, "left_semi").unionByName(added)
