"""Keyed tumbling and sliding windows over event time."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.operators.aggregates import Aggregation
from epochal.runtime.observed import Observed
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import KeyedTimeTable

START, END = "window_start", "window_end"
LATE = "late"


class WindowOperator(Operator):
    """Keeps partials per window and key as runs, and emits a window once the watermark has passed its end.

    A row is late when the watermark had passed the end of its window before the row's batch came: it is counted, and
    goes to the port ``late``.
    """

    def __init__(
        self,
        *,
        event_time: str,
        size: int,
        slide: int | None,
        keys: list[str],
        aggregates: dict[str, Column],
    ) -> None:
        self._event_time = event_time
        self._size = size
        self._slide = slide
        self._keys = keys
        self._aggregates = aggregates
        self._aggregation: Aggregation | None = None
        self._table: KeyedTimeTable | None = None

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.keyed_time_table("windows")

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._aggregation is not None
        aggregation, watermark = self._aggregation, ctx.watermark
        if watermark is None:
            self._table.append(aggregation.partial(self._windowed(frame)), F.col(END))
        else:
            ctx.emit(frame.where(self._late(watermark)), LATE)
            observed = Observed(frame, {"late": F.count_if(self._late(watermark))})
            windowed = _open(self._windowed(observed.frame), watermark)
            self._table.append(aggregation.partial(windowed), F.col(END))
            ctx.late_rows += int(observed.get(default={"late": 0})["late"] or 0)
        self._table.merge_small(lambda partials: aggregation.merged(_open(partials, watermark)), F.col(END))

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._table is not None
        due = self._table.between(until=watermark)
        if due:
            partials = self._table.read(until=watermark)
            assert partials is not None
            closed = partials.where(F.unix_micros(END) <= watermark)
            if ctx.watermark is not None:
                closed = closed.where(F.unix_micros(END) > ctx.watermark)
            assert self._aggregation is not None
            ctx.emit(self._aggregation.result(closed))
        self._table.expire(before=watermark + 1)

    def output_watermark(self, watermark: int) -> int:
        return watermark - self._size

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        """Empty frames of what comes out."""
        windowed = self._windowed(frames[0])
        aggregation = self._aggregation = Aggregation([START, END, *self._keys], self._aggregates, windowed)
        return {MAIN: aggregation.result(aggregation.partial(windowed)), LATE: frames[0]}

    def _windowed(self, frame: DataFrame) -> DataFrame:
        size = f"{self._size} microseconds"
        slide = None if self._slide is None else f"{self._slide} microseconds"
        window = F.window(F.col(self._event_time), size, slide)
        spread = frame.select("*", window.alias("__window"))
        return spread.select("*", F.col("__window.start").alias(START), F.col("__window.end").alias(END)).drop(
            "__window"
        )

    def _late(self, watermark: int) -> Column:
        """Whether the last window that a row belongs to was emitted already."""
        time = F.unix_micros(self._event_time)
        slide = self._slide or self._size
        return time - F.pmod(time, F.lit(slide)) + self._size <= watermark


def _open(partials: DataFrame, watermark: int | None) -> DataFrame:
    return partials if watermark is None else partials.where(F.unix_micros(END) > watermark)
