"""Deduplication: of rows with the same keys the first comes out, at once.

State is the event time of the row that came out of each key: a latest table. A batch's keys are looked up there.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from epochal.operators.bounds import before
from epochal.operators.definitions import seconds, typed
from epochal.operators.keys import KEY, check_keys, check_looked_up, key_of
from epochal.runtime.dataflow.operator import MAIN, Operator, OperatorContext
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import Metrics, Observed, micros
from epochal.runtime.state.latest_files import later_than
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.stored_types import check_storable
from epochal.runtime.state.tables import run_metrics

TIME = "__time"
_ARRIVAL = "__arrival"


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
        self._key_types = StructType()
        self._state = StructType()
        self._columns: Prepared | None = None
        self._times = Metrics({"rows": F.count(F.lit(1)), "newest": F.max(TIME), "oldest": F.min(TIME)})
        self._metrics = run_metrics(F.timestamp_micros(TIME))

    def state_definition(self) -> dict[str, str]:
        return {
            "keys": typed(self._keys, self._key_types),
            "time": f"within {seconds(self._within)} of {self._event_time}",
        }

    @property
    def counts_input(self) -> bool:
        return True

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.latest_table("times", self._state)

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._columns is not None
        watermark = ctx.watermark
        since = None if watermark is None else watermark - self._within
        keyed = self._columns.select(frame)
        seen = Observed(keyed, self._times)
        new = self._table.keep_new(
            seen.frame.repartition(KEY), time=TIME, arrival=_ARRIVAL, late=watermark, since=since, metrics=self._metrics
        )
        times = seen.get()
        if ctx.counts_input:
            ctx.note_input(rows=times["rows"], newest=times.get("newest"))
        oldest = times.get("oldest")
        if watermark is not None and oldest is not None and oldest < watermark:
            ctx.late_rows += keyed.where(F.col(TIME).isNotNull() & before(F.col(TIME), watermark)).count()
        if new.rows:
            ctx.emit(new.frame.drop(KEY, TIME), of=new)
            self._table.merge_small(None if since is None else later_than(TIME, since))

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._table is not None
        self._table.expire(before=watermark - self._within)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        check_keys(frames[0], self._keys)
        check_storable(frames[0].schema)
        check_looked_up(frames[0], self._keys)
        self._key_types = frames[0].schema
        time = micros(F.col(self._event_time)).alias(TIME)
        arrival = F.monotonically_increasing_id().alias(_ARRIVAL)
        self._columns = Prepared([F.col("*"), key_of(self._keys), time, arrival])
        key = self._columns.select(frames[0]).schema[KEY]
        self._state = StructType([key, StructField(TIME, LongType())])
        self.tables = {"times": self._state}
        return {MAIN: frames[0]}
