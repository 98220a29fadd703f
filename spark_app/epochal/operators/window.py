"""Keyed tumbling and sliding windows over event time: partials by pane, and windows when they are over."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.operators.aggregates import ROWS, Aggregation
from epochal.operators.definitions import named_expressions, seconds, typed
from epochal.operators.keys import check_keys
from epochal.operators.panes import PANE, Panes, after, pane_time
from epochal.runtime.dataflow.operator import MAIN, Operator, OperatorContext
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import Metrics, micros
from epochal.runtime.state.tables import KeyedTimeTable, Run, materialise, together

LATE = "late"
_NEWEST = "__newest"
"""The newest event time of the rows that a partial stands for."""


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
        self._partial: Callable[[DataFrame], DataFrame] | None = None
        self._output: Prepared | None = None
        # Made once: each of Spark's functions is a call to the JVM.
        self._pane, self._pane_time = self._panes.of(event_time), pane_time()
        self._known = F.col(event_time).isNotNull()
        self._newest = F.max(micros(F.col(event_time))).alias(_NEWEST)
        rows = {"rows": F.count(F.lit(1)), "min_time": F.min(PANE), "max_time": F.max(PANE)}
        untimed = F.count(F.when(F.col(PANE).isNull(), 1))
        self._metrics = Metrics(rows | {"input": F.sum(ROWS), "newest": F.max(_NEWEST), "untimed": untimed})

    def state_definition(self) -> dict[str, str]:
        assert self._aggregation is not None
        return {
            "windows": f"{seconds(self._panes.size)} every {seconds(self._panes.slide)} of {self._event_time}",
            "keys": typed(self._keys, self._aggregation.types),
            "aggregates": named_expressions(self._aggregates, self._aggregation.types),
        }

    def on_start(self, ctx: OperatorContext) -> None:
        self._table = ctx.table_manager.keyed_time_table(
            "panes", self.tables["panes"], partitioned_by=[PANE, *self._keys]
        )

    @property
    def counts_input(self) -> bool:
        return self._aggregation is not None and not self._aggregation.keeps_rows

    def prepare(self, frame: DataFrame, ctx: OperatorContext, channel: int, *, small: bool) -> Run | None:
        assert self._table is not None
        assert self._aggregation is not None
        if ctx.counts_input:
            return None
        batch = frame.coalesce(1) if small else frame
        return self._table.computed(self._aggregation.partial(self._paned(batch)), self._pane_time)

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        assert self._aggregation is not None
        aggregation = self._aggregation
        added = self._counted(frame, ctx) if ctx.prepared is None else self._table.add(ctx.prepared)
        latest = ctx.latest_time()
        if latest is not None and added.max_time is not None and added.max_time > latest:
            added = self._too_far_ahead(frame, added, latest, ctx)
        over = self._panes.last_over(ctx.watermark)
        if over is not None and added.rows and added.min_time is not None and added.min_time <= over:
            self._late(frame, added, over, ctx)
        self._table.merge_small(
            lambda partials: aggregation.merged(partials if over is None else after(partials, over)),
            self._pane_time,
            gather=True,
        )

    def _counted(self, frame: DataFrame, ctx: OperatorContext) -> Run:
        """Add a batch's partials, and tell the source what it had. Rows without a time are left out afterwards: to
        count them they have to go through once."""
        assert self._table is not None
        assert self._partial is not None
        batch = frame.coalesce(1) if ctx.small_batch else frame
        held, seen = materialise(self._partial(batch), self._metrics, without=_NEWEST)
        ctx.note_input(rows=int(seen["input"] or 0), newest=seen["newest"])
        run = Run(held, rows=seen["rows"], min_time=seen["min_time"], max_time=seen["max_time"])
        if not seen["untimed"]:
            return self._table.add(run)
        ctx.table_manager.release_later(run.hold())
        return self._table.append(held.where(F.col(PANE).isNotNull()), self._pane_time)

    def _late(self, frame: DataFrame, added: Run, over: int, ctx: OperatorContext) -> None:
        """Count the late rows. Their partials stay where they are: no window that they belong to is emitted again."""
        self._tell_late(frame, added, ctx, lambda pane: pane <= over)

    def _too_far_ahead(self, frame: DataFrame, added: Run, latest: int, ctx: OperatorContext) -> Run:
        """Leave out panes that begin too far ahead of the clock: nothing would ever close their windows."""
        assert self._table is not None
        self._tell_late(frame, added, ctx, lambda pane: pane > latest)
        self._table.drop([added])
        return self._table.append(added.frame.where(F.col(PANE) <= latest), self._pane_time)

    def _tell_late(
        self, frame: DataFrame, added: Run, ctx: OperatorContext, is_late: Callable[[Column], Column]
    ) -> None:
        late = added.frame.where(is_late(F.col(PANE)))
        rows = late.agg(F.sum(ROWS) if ROWS in added.frame.columns else F.count("*")).first()
        ctx.late_rows += int((rows and rows[0]) or 0)
        if ctx.is_read(LATE):
            ctx.emit(frame.where(is_late(self._pane)), LATE)

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._table is not None
        assert self._aggregation is not None
        ends = self._panes.due(self._table.runs, watermark, ctx.watermark)
        if ends:
            due = self._table.between(since=ends[0] - self._panes.size, until=ends[-1] - self._panes.length)
            partials = together(due)
            if partials is not None:
                ctx.emit(self._closed(partials, ends))
        self._table.expire(before=watermark - self._panes.size + 1)

    def output_watermark(self, watermark: int) -> int:
        """Event time downstream is that of the windows' beginnings: those of windows that are over come no more."""
        return self._panes.next_start(watermark)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        """Empty frames of what comes out."""
        check_keys(frames[0], self._keys)
        paned = self._paned(frames[0])
        aggregation = self._aggregation = Aggregation([PANE, *self._keys], self._aggregates, paned, count_rows=True)
        self.tables = {"panes": aggregation.state}
        if not aggregation.keeps_rows:
            groups = [self._pane.alias(PANE), *(F.col(key) for key in self._keys)]
            self._partial = aggregation.partial_of(groups, self._newest)
        window = self._panes.columns(self._panes.end(F.col(PANE)))
        self._output = Prepared([*window, *(F.col(key) for key in self._keys), *aggregation.results()])
        return {MAIN: self._closed(aggregation.partial(paned), range(0)), LATE: frames[0]}

    def _paned(self, frame: DataFrame) -> DataFrame:
        return frame.where(self._known).withColumn(PANE, self._pane)

    def _closed(self, partials: DataFrame, ends: range) -> DataFrame:
        assert self._aggregation is not None
        assert self._output is not None
        return self._output.select(self._aggregation.grouped(self._panes.windows(partials, ends)))
