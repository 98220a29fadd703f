"""Deduplication: of rows with the same keys the first comes out, at once.

State is one small row per key: a hash of it, the key, and its event time. A batch's keys are hashed, and the state goes
past them; what is found is then taken away from the batch. All is partitioned by the hash, so that no state moves, and
joined by it, because Spark looks up one whole number far faster than a struct.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from epochal.operators.bounds import at_least, before
from epochal.operators.keys import KEY, check_columns, with_key
from epochal.runtime.observed import Metrics, Observed, micros
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import KeyedTimeTable, run_metrics

HASH, TIME = "__hash", "__time"
_ARRIVAL, _PLACE = "__arrival", "__place"
_SEEN, _SEEN_KEY = "__seen", "__seen_key"


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
        self._table: KeyedTimeTable | None = None
        self._moment = F.timestamp_micros(TIME)
        self._metrics = run_metrics(self._moment)

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.keyed_time_table("seen", partitioned_by=[HASH])

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        watermark = ctx.watermark
        rows = self._hashed(frame)
        if watermark is None:
            new = ctx.table_manager.for_this_batch(_without(_first(rows), self._table.read()), self._metrics)
        else:
            counted = Observed(rows, Metrics({"late": F.count(F.when(before(F.col(TIME), watermark), 1))}))
            first = _first(counted.frame.where(at_least(F.col(TIME), watermark)))
            seen = self._table.read(since=watermark - self._within)
            remembered = None if seen is None else self._remembered(seen, watermark)
            new = ctx.table_manager.for_this_batch(_without(first, remembered), self._metrics)
            ctx.late_rows += counted.get(default={"late": 0})["late"]
        if new.rows:
            # One job for both: the keys are held with the rows until runs are merged.
            ctx.emit(new.frame.drop(HASH, KEY, TIME), of=new)
            self._table.add(new.part(new.frame.select(HASH, KEY, TIME)))
        self._table.merge_small(
            lambda seen: seen if watermark is None else self._remembered(seen, watermark), self._moment
        )

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._table is not None
        self._table.expire(before=watermark - self._within)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        check_columns(frames[0], self._keys)
        self._hashed(frames[0])
        return {MAIN: frames[0]}

    def _hashed(self, frame: DataFrame) -> DataFrame:
        known = frame.where(F.col(self._event_time).isNotNull())
        keyed = with_key(known, self._keys).withColumn(HASH, F.xxhash64(*self._keys))
        return keyed.withColumn(TIME, micros(F.col(self._event_time)))

    def _remembered(self, seen: DataFrame, watermark: int) -> DataFrame:
        return seen.where(at_least(F.col(TIME), watermark - self._within))


def _first(rows: DataFrame) -> DataFrame:
    """The first row of each key in a batch."""
    arrived = rows.withColumn(_ARRIVAL, F.monotonically_increasing_id()).repartition(HASH)
    place = F.row_number().over(Window.partitionBy(HASH, KEY).orderBy(TIME, _ARRIVAL))
    return arrived.withColumn(_PLACE, place).where(F.col(_PLACE) == 1).drop(_PLACE, _ARRIVAL)


def _without(rows: DataFrame, seen: DataFrame | None) -> DataFrame:
    """The rows whose keys were not seen: an anti-join that hashes the batch instead of the state. Keys are compared in
    a way that Spark does not join by and sees no equality in, or it would want the state partitioned by them as well,
    and move all of it."""
    if seen is None:
        return rows
    known = seen.select(F.col(HASH).alias(_SEEN), F.col(KEY).alias(_SEEN_KEY))
    same_key = (F.col(_SEEN_KEY) <= F.col(KEY)) & (F.col(_SEEN_KEY) >= F.col(KEY))
    same = (F.col(_SEEN) == F.col(HASH)) & same_key
    joined = known.join(rows.hint("shuffle_hash"), same, "right_outer")
    return joined.where(F.col(_SEEN).isNull()).drop(_SEEN, _SEEN_KEY)
