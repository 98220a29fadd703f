"""The first rows of groups, in an order: of groups that end by event time, and of groups that go on for ever.

Rows that the given order leaves equal are ordered by their other columns, so that a restart chooses the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.bounds import append_on_time, at_least
from epochal.operators.bounds import before as older
from epochal.operators.definitions import expressions, typed
from epochal.operators.keys import KEY, check_keys, check_new_columns, with_key
from epochal.runtime.dataflow.operator import MAIN, Batch, BatchStats, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.spark.plan_metrics import micros
from epochal.runtime.state.stored_types import check_storable, has_order
from epochal.runtime.state.tables import KeyedTimeTable

RANK = "rank"
_NEW = "__new"


class Ranking:
    """The first ``n`` rows of each key, numbered from 1."""

    def __init__(self, n: int, order_by: list[Column], frame: DataFrame) -> None:
        check_storable(frame.schema)  # before Spark tells of the order, which no user wrote
        self._n = n
        others = [F.col(field.name) for field in frame.schema.fields if has_order(field.dataType)]
        self._order = [*order_by, *others]

    def best(self, rows: DataFrame) -> DataFrame:
        """With their rank. Rows must be partitioned by key, or are moved."""
        place = F.row_number().over(Window.partitionBy(KEY).orderBy(*self._order))
        return rows.withColumn(RANK, place).where(F.col(RANK) <= self._n)

    def kept(self, rows: DataFrame) -> DataFrame:
        return self.best(rows).drop(RANK)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopNOperator(Operator):
    """Per event time and ``per`` columns, when the watermark has passed that event time. A row that is older than the
    watermark is late: it is counted and dropped."""

    takes_changelog: ClassVar[bool] = False

    event_time: str
    n: int
    order_by: list[Column]
    per: list[str]

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame = ctx.empty(inputs[0])
        check_keys(frame, self.per)
        check_new_columns(frame, [RANK])
        return _TopN(self, frame)


class _TopN(BoundOperator):
    def __init__(self, spec: TopNOperator, frame: DataFrame) -> None:
        self._spec = spec
        self._key_types = frame.schema
        keyed = self._keyed(frame)
        self._ranking = Ranking(spec.n, spec.order_by, frame)
        self._table = KeyedTimeTable("rows", keyed.schema, partitioned_by=[KEY])
        super().__init__({MAIN: self._ranking.best(keyed).drop(KEY).schema}, [self._table])

    def state_definition(self) -> dict[str, str]:
        spec = self._spec
        return {
            "rows": f"the first {spec.n}",
            "keys": typed([spec.event_time, *spec.per], self._key_types),
            "order": expressions(spec.order_by),
        }

    def process(self, batch: Batch, out: Collector) -> BatchStats:
        time = F.col(self._spec.event_time)
        computed = self._table.computed(self._ranking.kept(self._keyed(batch.frame)), time)
        _, stats = append_on_time(self._table, computed, time, batch)
        self._table.merge_small(self._ranking.kept, time)
        return stats

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        rows = self._table.read(since=before, until=watermark - 1)
        if rows is not None:
            time = micros(F.col(self._spec.event_time))
            over = older(time, watermark)
            due = rows.where(over if before is None else over & at_least(time, before))
            out.emit(self._ranking.best(due).drop(KEY))
        self._table.expire(before=watermark)

    def _keyed(self, frame: DataFrame) -> DataFrame:
        known = frame.where(F.col(self._spec.event_time).isNotNull())
        return with_key(known, [self._spec.event_time, *self._spec.per])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningTopNOperator(Operator):
    """Per keys over the whole stream. After a batch, each group that it changed comes out whole.

    State holds rows that were among the first when they came; those that better ones have pushed out go when runs are
    merged.
    """

    takes_changelog: ClassVar[bool] = False

    n: int
    order_by: list[Column]
    keys: list[str]

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame = ctx.empty(inputs[0])
        check_keys(frame, self.keys)
        check_new_columns(frame, [RANK])
        return _RunningTopN(self, frame)


class _RunningTopN(BoundOperator):
    def __init__(self, spec: RunningTopNOperator, frame: DataFrame) -> None:
        self._spec = spec
        self._key_types = frame.schema
        keyed = with_key(frame, spec.keys)
        self._ranking = Ranking(spec.n, spec.order_by, frame)
        self._table = KeyedTimeTable("rows", keyed.schema, partitioned_by=[KEY])
        super().__init__({MAIN: self._result(keyed).schema}, [self._table])

    def state_definition(self) -> dict[str, str]:
        return {
            "rows": f"the first {self._spec.n}",
            "keys": typed(self._spec.keys, self._key_types),
            "order": expressions(self._spec.order_by),
        }

    def process(self, batch: Batch, out: Collector) -> None:
        came = out.for_this_batch(self._ranking.kept(with_key(batch.frame, self._spec.keys)))
        if not came.rows:
            return
        before = self._table.read()
        if before is None:
            out.emit(self._result(self._table.append(came.frame).frame))
            return
        # A row that is not among the first now never will be.
        both = (
            _touched(before, came.frame)
            .withColumn(_NEW, F.lit(False))
            .unionByName(came.frame.withColumn(_NEW, F.lit(True)))
        )
        added = self._table.append(self._ranking.kept(both).where(_NEW).drop(_NEW))
        if added.rows:
            out.emit(self._result(_touched(before, added.frame).unionByName(added.frame)))
            self._table.merge_small(self._ranking.kept)

    def _result(self, rows: DataFrame) -> DataFrame:
        return self._ranking.best(rows).drop(KEY)


def _touched(older: DataFrame, rows: DataFrame) -> DataFrame:
    """The older rows of these rows' keys: the latter are hashed, and the state goes past them."""
    return older.join(rows.select(KEY).distinct().hint("shuffle_hash"), KEY, "left_semi")
