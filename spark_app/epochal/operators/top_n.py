"""The first rows of groups, in an order: of groups that end by event time, and of groups that go on for ever.

Rows that the given order leaves equal are ordered by their other columns, so that a restart chooses the same ones.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.bounds import append_on_time, at_least, before
from epochal.operators.definitions import expressions, typed
from epochal.operators.keys import KEY, check_keys, check_new_columns, with_key
from epochal.runtime.dataflow.operator import MAIN, Operator, OperatorContext
from epochal.runtime.spark.plan_metrics import micros
from epochal.runtime.state.stored_types import check_storable, has_order
from epochal.runtime.state.tables import KeyedTimeTable, union

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


class TopNOperator(Operator):
    """Per event time and ``per`` columns, when the watermark has passed that event time. A row that is older than the
    watermark is late: it is counted and dropped."""

    takes_changelog = False

    def __init__(self, *, event_time: str, n: int, order_by: list[Column], per: list[str]) -> None:
        self._event_time = event_time
        self._n = n
        self._order_by = order_by
        self._per = per
        self._key_types = StructType()
        self._ranking: Ranking | None = None
        self._table: KeyedTimeTable | None = None

    def state_definition(self) -> dict[str, str]:
        return {
            "rows": f"the first {self._n}",
            "keys": typed([self._event_time, *self._per], self._key_types),
            "order": expressions(self._order_by),
        }

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.keyed_time_table("rows", self.tables["rows"], partitioned_by=[KEY])

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._ranking is not None
        time = F.col(self._event_time)
        append_on_time(self._table, self._table.computed(self._ranking.kept(self._keyed(frame)), time), time, ctx)
        self._table.merge_small(self._ranking.kept, time)

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._table is not None
        assert self._ranking is not None
        rows = self._table.read(since=ctx.watermark, until=watermark - 1)
        if rows is not None:
            time = micros(F.col(self._event_time))
            over = before(time, watermark)
            due = rows.where(over if ctx.watermark is None else over & at_least(time, ctx.watermark))
            ctx.emit(self._ranking.best(due).drop(KEY))
        self._table.expire(before=watermark)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        check_keys(frames[0], self._per)
        self.tables = {"rows": self._keyed(frames[0]).schema}
        check_new_columns(frames[0], [RANK])
        self._key_types = frames[0].schema
        self._ranking = Ranking(self._n, self._order_by, frames[0])
        return {MAIN: self._ranking.best(self._keyed(frames[0])).drop(KEY)}

    def _keyed(self, frame: DataFrame) -> DataFrame:
        known = frame.where(F.col(self._event_time).isNotNull())
        return with_key(known, [self._event_time, *self._per])


class RunningTopNOperator(Operator):
    """Per keys over the whole stream. After a batch, each group that it changed comes out whole.

    State holds rows that were among the first when they came; those that better ones have pushed out go when runs are
    merged.
    """

    takes_changelog = False

    def __init__(self, *, n: int, order_by: list[Column], keys: list[str]) -> None:
        self._n = n
        self._order_by = order_by
        self._keys = keys
        self._key_types = StructType()
        self._ranking: Ranking | None = None
        self._table: KeyedTimeTable | None = None

    def state_definition(self) -> dict[str, str]:
        return {
            "rows": f"the first {self._n}",
            "keys": typed(self._keys, self._key_types),
            "order": expressions(self._order_by),
        }

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.keyed_time_table("rows", self.tables["rows"], partitioned_by=[KEY])

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._ranking is not None
        batch = ctx.table_manager.for_this_batch(self._ranking.kept(with_key(frame, self._keys)))
        if not batch.rows:
            return
        older = self._table.read()
        if older is None:
            ctx.emit(self._result(self._table.append(batch.frame).frame))
            return
        # A row that is not among the first now never will be.
        both = (
            _touched(older, batch.frame)
            .withColumn(_NEW, F.lit(False))
            .unionByName(batch.frame.withColumn(_NEW, F.lit(True)))
        )
        added = self._table.append(self._ranking.kept(both).where(_NEW).drop(_NEW))
        if added.rows:
            changed = union([_touched(older, added.frame), added.frame])
            assert changed is not None
            ctx.emit(self._result(changed))
            self._table.merge_small(self._ranking.kept)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        check_keys(frames[0], self._keys)
        self.tables = {"rows": with_key(frames[0], self._keys).schema}
        check_new_columns(frames[0], [RANK])
        self._key_types = frames[0].schema
        self._ranking = Ranking(self._n, self._order_by, frames[0])
        return {MAIN: self._result(with_key(frames[0], self._keys))}

    def _result(self, rows: DataFrame) -> DataFrame:
        assert self._ranking is not None
        return self._ranking.best(rows).drop(KEY)


def _touched(older: DataFrame, rows: DataFrame) -> DataFrame:
    """The older rows of these rows' keys: the latter are hashed, and the state goes past them."""
    return older.join(rows.select(KEY).distinct().hint("shuffle_hash"), KEY, "left_semi")
