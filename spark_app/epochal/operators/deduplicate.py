"""Deduplication: of rows with the same keys the first comes out, at once.

State is the event time of the row that came out of each key: a latest table. A batch's keys are looked up there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from epochal.operators.bounds import before
from epochal.operators.definitions import seconds, typed
from epochal.operators.keys import KEY, check_keys, check_looked_up, key_of
from epochal.runtime.dataflow.operator import MAIN, Batch, BatchStats, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import Observed, PlanMetrics, micros
from epochal.runtime.state.latest_files import later_than
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.stored_types import check_storable
from epochal.runtime.state.tables import run_metrics

TIME = "__time"
_ARRIVAL = "__arrival"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeduplicateOperator(Operator):
    """Passes on the first row of each key: of those that come in one batch the one with the oldest event time.

    A key is forgotten when the watermark has passed the event time of the row that came out by ``within``. A row that
    is older than the watermark is late: it is counted and dropped, because its key may be forgotten.
    """

    takes_changelog: ClassVar[bool] = False

    event_time: str
    keys: list[str]
    within: int

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame = ctx.empty(inputs[0])
        check_keys(frame, self.keys)
        check_storable(inputs[0])
        check_looked_up(frame, self.keys)
        return _Deduplicate(self, frame, ctx)


class _Deduplicate(BoundOperator):
    counts_input = True

    def __init__(self, spec: DeduplicateOperator, frame: DataFrame, ctx: BindContext) -> None:
        self._spec = spec
        self._key_types = frame.schema
        self._times = PlanMetrics({"rows": F.count(F.lit(1)), "newest": F.max(TIME), "oldest": F.min(TIME)})
        self._metrics = run_metrics(F.timestamp_micros(TIME))
        time = micros(F.col(spec.event_time)).alias(TIME)
        arrival = F.monotonically_increasing_id().alias(_ARRIVAL)
        self._columns = Prepared([F.col("*"), key_of(spec.keys), time, arrival])
        key = self._columns.select(frame).schema[KEY]
        state = StructType([key, StructField(TIME, LongType())])
        self._table = LatestTable("times", state, operator=ctx.name, spark=ctx.spark)
        super().__init__({MAIN: frame.schema}, [self._table])

    def state_definition(self) -> dict[str, str]:
        return {
            "keys": typed(self._spec.keys, self._key_types),
            "time": f"within {seconds(self._spec.within)} of {self._spec.event_time}",
        }

    def process(self, batch: Batch, out: Collector) -> BatchStats:
        watermark, late = batch.watermark, 0
        since = None if watermark is None else watermark - self._spec.within
        keyed = self._columns.select(batch.frame)
        seen = Observed(keyed, self._times)
        new = self._table.keep_new(
            seen.frame.repartition(KEY), time=TIME, arrival=_ARRIVAL, late=watermark, since=since, metrics=self._metrics
        )
        times = seen.get()
        oldest = times.get("oldest")
        if watermark is not None and oldest is not None and oldest < watermark:
            late = keyed.where(F.col(TIME).isNotNull() & before(F.col(TIME), watermark)).count()
        if new.rows:
            out.emit(new.frame.drop(KEY, TIME), of=new)
            self._table.merge_small(None if since is None else later_than(TIME, since))
        return BatchStats(late_rows=late, rows=times["rows"], newest=times.get("newest"))

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        self._table.expire(before=watermark - self._spec.within)
