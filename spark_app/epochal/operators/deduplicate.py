"""Deduplication: of rows with the same keys the first comes out, at once.

State is the event time of the row that came out of each key: a latest table. A batch's keys are looked up there.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from epochal.operators.bounds import at_least, before
from epochal.operators.keys import KEY, check_columns, check_looked_up, with_key
from epochal.runtime.latest_files import later_than
from epochal.runtime.latest_table import LatestTable
from epochal.runtime.observed import Metrics, Observed, micros
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import run_metrics

TIME = "__time"
_ARRIVAL, _PLACE = "__arrival", "__place"


class DeduplicateOperator(Operator):
    """Passes on the first row of each key: of those that come in one batch the one with the oldest event time.

    A key is forgotten when the watermark has passed the event time of the row that came out by ``within``. A row that
    is older than the watermark is late: it is counted and dropped, because its key may be forgotten.
    """

    takes_changelog = False

    def __init__(self, *, event_time: str, keys: list[str], within: int) -> None:
        self._event_time = event_time
        self._keys = keys
        self._within = within
        self._table: LatestTable | None = None
        self._state = StructType()
        self._metrics = run_metrics(F.timestamp_micros(TIME))

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.latest_table("times", self._state)

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        watermark = ctx.watermark
        since = None if watermark is None else watermark - self._within
        rows, counted = self._keyed(frame), None
        if watermark is not None:
            counted = Observed(rows, Metrics({"late": F.count(F.when(before(F.col(TIME), watermark), 1))}))
            rows = counted.frame.where(at_least(F.col(TIME), watermark))
        new = self._table.keep_new(_first(rows), time=TIME, since=since, metrics=self._metrics)
        if counted is not None:
            ctx.late_rows += counted.get(default={"late": 0})["late"]
        if new.rows:
            ctx.emit(new.frame.drop(KEY, TIME), of=new)
            self._table.merge_small(None if since is None else later_than(TIME, since))

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._table is not None
        self._table.expire(before=watermark - self._within)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        check_columns(frames[0], self._keys)
        check_looked_up(frames[0], self._keys)
        key = self._keyed(frames[0]).schema[KEY]
        self._state = StructType([key, StructField(TIME, LongType())])
        return {MAIN: frames[0]}

    def _keyed(self, frame: DataFrame) -> DataFrame:
        known = frame.where(F.col(self._event_time).isNotNull())
        return with_key(known, self._keys).withColumn(TIME, micros(F.col(self._event_time)))


def _first(rows: DataFrame) -> DataFrame:
    """The first row of each key in a batch, partitioned by key."""
    arrived = rows.withColumn(_ARRIVAL, F.monotonically_increasing_id()).repartition(KEY)
    place = F.row_number().over(Window.partitionBy(KEY).orderBy(TIME, _ARRIVAL))
    return arrived.withColumn(_PLACE, place).where(F.col(_PLACE) == 1).drop(_PLACE, _ARRIVAL)
