"""Interval join: rows of two streams with the same keys whose event times are close."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from epochal.runtime.errors import PipelineError
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import KeyedTimeTable

SIDES = ("left", "right")


class IntervalJoinOperator(Operator):
    """Joins a left row at time t with right rows at times from t + ``lower`` to t + ``upper`` (microseconds).

    Each side's rows are kept until the watermark says that no partner can come. Columns of both sides, the keys once.
    """

    def __init__(self, *, keys: list[str], left_time: str, right_time: str, lower: int, upper: int) -> None:
        self._keys = keys
        self._times = (left_time, right_time)
        self._lower = lower
        self._upper = upper
        self._tables: list[KeyedTimeTable] = []

    def on_start(self, ctx: OperatorContext) -> None:
        self._tables = [ctx.table_manager.keyed_time_table(side) for side in SIDES]

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        time = F.col(self._times[channel])
        added = self._tables[channel].append(frame, time)
        if not added.rows:
            return
        since, until = self._partners(channel, added.min_time, added.max_time)
        others = self._tables[1 - channel].read(since=since, until=until)
        if others is not None:
            sides = (added.frame, others) if channel == 0 else (others, added.frame)
            ctx.emit(self._joined(*sides))
        horizon = self._horizon(channel, ctx.watermark)
        self._tables[channel].merge_small(
            lambda rows: rows if horizon is None else rows.where(F.unix_micros(time) >= horizon), time
        )

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        for channel, table in enumerate(self._tables):
            horizon = self._horizon(channel, watermark)
            assert horizon is not None
            table.expire(before=horizon)

    def output_watermark(self, watermark: int) -> int:
        """A row that comes now may join a left row as old as the oldest that is kept."""
        return watermark - max(self._upper, 0)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        left, right = frames
        both = (set(left.columns) & set(right.columns)) - set(self._keys)
        if both:
            raise PipelineError(
                f"both sides have the columns {', '.join(sorted(both))}: rename them on one side, or make them keys"
            )
        return {MAIN: self._joined(left, right)}

    def _joined(self, left: DataFrame, right: DataFrame) -> DataFrame:
        distance = F.unix_micros(right[self._times[1]]) - F.unix_micros(left[self._times[0]])
        joined = left.join(right, self._keys)
        return joined.where(distance.between(self._lower, self._upper))

    def _partners(self, channel: int, oldest: int | None, newest: int | None) -> tuple[int | None, int | None]:
        """The event times that the other side's partners can have."""
        low, high = (self._lower, self._upper) if channel == 0 else (-self._upper, -self._lower)
        return (None if oldest is None else oldest + low), (None if newest is None else newest + high)

    def _horizon(self, channel: int, watermark: int | None) -> int | None:
        """Rows of this side from before have no partner to wait for."""
        if watermark is None:
            return None
        return watermark - (self._upper if channel == 0 else -self._lower)
