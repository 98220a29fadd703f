"""Keyed tumbling and sliding windows over event time: partials by pane, and windows when they are over."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.operators.aggregates import ROWS, Aggregation
from epochal.operators.panes import PANE, Panes, after, pane_time
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import KeyedTimeTable, Run

LATE = "late"


class WindowOperator(Operator):
    """Keeps partials per pane and key as runs, and emits a window once the watermark has passed its end.

    A row is late when the watermark had passed the end of its last window before the row's batch came: it is counted,
    and goes to the port ``late``.
    """

    takes_changelog = False

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
        self._panes = Panes(size, slide or size)
        self._keys = keys
        self._aggregates = aggregates
        self._aggregation: Aggregation | None = None
        self._table: KeyedTimeTable | None = None

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.keyed_time_table("panes", partitioned_by=[PANE, *self._keys])

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._aggregation is not None
        aggregation = self._aggregation
        added = self._table.append(aggregation.partial(self._paned(frame)), pane_time())
        over = self._panes.last_over(ctx.watermark)
        if over is None:
            self._table.merge_small(aggregation.merged, pane_time())
            return
        if added.rows and added.min_time is not None and added.min_time <= over:
            self._late(frame, added, over, ctx)
        self._table.merge_small(lambda partials: aggregation.merged(after(partials, over)), pane_time())

    def _late(self, frame: DataFrame, added: Run, over: int, ctx: OperatorContext) -> None:
        """Count the late rows. Their partials stay where they are: no window that they belong to is emitted again."""
        late = added.frame.where(F.col(PANE) <= over).agg(F.sum(ROWS) if ROWS in added.frame.columns else F.count("*"))
        ctx.late_rows += int(late.first()[0] or 0)  # type: ignore[index]
        if ctx.is_read(LATE):
            ctx.emit(frame.where(self._panes.of(self._event_time) <= over), LATE)

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._table is not None
        assert self._aggregation is not None
        ends = self._panes.due(self._table.runs, watermark, ctx.watermark)
        if ends:
            partials = self._table.read(since=ends[0] - self._panes.size, until=ends[-1] - self._panes.length)
            if partials is not None:
                ctx.emit(self._closed(partials, ends))
        self._table.expire(before=watermark - self._panes.size + 1)

    def output_watermark(self, watermark: int) -> int:
        """Event time downstream is that of the windows' beginnings: those of windows that are over come no more."""
        return self._panes.next_start(watermark)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        """Empty frames of what comes out."""
        paned = self._paned(frames[0])
        aggregation = self._aggregation = Aggregation([PANE, *self._keys], self._aggregates, paned, count_rows=True)
        return {MAIN: self._closed(aggregation.partial(paned), range(0)), LATE: frames[0]}

    def _paned(self, frame: DataFrame) -> DataFrame:
        return frame.where(F.col(self._event_time).isNotNull()).withColumn(PANE, self._panes.of(self._event_time))

    def _closed(self, partials: DataFrame, ends: range) -> DataFrame:
        assert self._aggregation is not None
        result = self._aggregation.result(self._panes.windows(partials, ends))
        window = self._panes.columns(self._panes.end(F.col(PANE)))
        return result.select(*window, *self._keys, *self._aggregates)
