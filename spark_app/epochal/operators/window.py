"""Keyed tumbling and sliding windows over event time: partials by pane, and windows when they are over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.aggregates import ROWS
from epochal.operators.aggregation import Aggregation
from epochal.operators.definitions import named_expressions, seconds, typed
from epochal.operators.keys import check_keys
from epochal.operators.panes import PANE, Panes, after, pane_time
from epochal.runtime.dataflow.operator import MAIN, Batch, BatchStats, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import PlanMetrics, micros
from epochal.runtime.state.tables import KeyedTimeTable, Run, materialise, together

LATE = "late"
_NEWEST = "__newest"
"""The newest event time of the rows that a partial stands for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowOperator(Operator):
    """Keeps partials per pane and key as runs, and emits a window once the watermark has passed its end.

    A row is late when the watermark had passed the end of its last window before the row's batch came: it is counted,
    and goes to the port ``late``.
    """

    takes_changelog: ClassVar[bool] = False

    event_time: str
    size: int
    slide: int | None
    keys: list[str]
    aggregates: dict[str, Column]

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame = ctx.empty(inputs[0])
        check_keys(frame, self.keys)
        return _Window(self, frame)


class _Window(BoundOperator):
    def __init__(self, spec: WindowOperator, frame: DataFrame) -> None:
        self._spec = spec
        self._panes = Panes(spec.size, spec.slide or spec.size)
        # Made once: each of Spark's functions is a call to the JVM.
        self._pane, self._pane_time = self._panes.of(spec.event_time), pane_time()
        self._known = F.col(spec.event_time).isNotNull()
        rows = {"rows": F.count(F.lit(1)), "min_time": F.min(PANE), "max_time": F.max(PANE)}
        untimed = F.count(F.when(F.col(PANE).isNull(), 1))
        self._metrics = PlanMetrics(rows | {"input": F.sum(ROWS), "newest": F.max(_NEWEST), "untimed": untimed})
        keys = [F.col(key) for key in spec.keys]
        paned = self._paned(frame)
        aggregation = Aggregation([PANE, *spec.keys], spec.aggregates, paned, count_rows=True)
        self._aggregation = aggregation
        self.counts_input = not aggregation.keeps_rows
        newest = F.max(micros(F.col(spec.event_time))).alias(_NEWEST)
        self._partial = aggregation.partial_of([self._pane.alias(PANE), *keys], newest)
        window = self._panes.columns(self._panes.end(F.col(PANE)))
        self._output = Prepared([*window, *keys, *aggregation.results()])
        self._table = KeyedTimeTable("panes", aggregation.state, partitioned_by=[PANE, *spec.keys])
        closed = self._closed(aggregation.partial(paned), range(0))
        super().__init__({MAIN: closed.schema, LATE: frame.schema}, [self._table])

    def state_definition(self) -> dict[str, str]:
        spec = self._spec
        return {
            "windows": f"{seconds(self._panes.size)} every {seconds(self._panes.slide)} of {spec.event_time}",
            "keys": typed(spec.keys, self._aggregation.types),
            "aggregates": named_expressions(spec.aggregates, self._aggregation.types),
        }

    def prepare(self, batch: Batch) -> Run | None:
        return None if batch.counting else self._computed(batch)

    def _computed(self, batch: Batch) -> Run:
        frame = batch.frame.coalesce(1) if batch.small else batch.frame
        return self._table.computed(self._aggregation.partial(self._paned(frame)), self._pane_time)

    def process(self, batch: Batch, out: Collector) -> BatchStats:
        if batch.counting:
            added, stats = self._counted(batch, out)
        else:
            added, stats = self._table.add(batch.prepared or self._computed(batch)), BatchStats()
        late, latest = 0, batch.latest_time
        if latest is not None and added.max_time is not None and added.max_time > latest:
            late += self._tell_late(batch, added, out, lambda pane: pane > latest)
            # Nothing would ever close the windows of panes that begin too far ahead of the clock.
            self._table.drop([added])
            added = self._table.append(added.frame.where(F.col(PANE) <= latest), self._pane_time)
        over = self._panes.last_over(batch.watermark)
        if over is not None and added.rows and added.min_time is not None and added.min_time <= over:
            # Partials of late rows stay where they are: no window that they belong to is emitted again.
            late += self._tell_late(batch, added, out, lambda pane: pane <= over)
        self._table.merge_small(
            lambda partials: self._aggregation.merged(partials if over is None else after(partials, over)),
            self._pane_time,
            gather=True,
        )
        return replace(stats, late_rows=late)

    def _counted(self, batch: Batch, out: Collector) -> tuple[Run, BatchStats]:
        """Add a batch's partials, and see what it had. Rows without a time are left out afterwards: to count them they
        have to go through once."""
        frame = batch.frame.coalesce(1) if batch.small else batch.frame
        held, seen = materialise(self._partial(frame), self._metrics, without=_NEWEST)
        stats = BatchStats(rows=int(seen["input"] or 0), newest=seen["newest"])
        run = Run(held, rows=seen["rows"], min_time=seen["min_time"], max_time=seen["max_time"])
        if not seen["untimed"]:
            return self._table.add(run), stats
        out.release_later(run.hold())
        return self._table.append(held.where(F.col(PANE).isNotNull()), self._pane_time), stats

    def _tell_late(self, batch: Batch, added: Run, out: Collector, is_late: Callable[[Column], Column]) -> int:
        late = added.frame.where(is_late(F.col(PANE)))
        rows = late.agg(F.sum(ROWS) if ROWS in added.frame.columns else F.count("*")).first()
        if out.is_read(LATE):
            out.emit(batch.frame.where(is_late(self._pane)), LATE)
        return int((rows and rows[0]) or 0)

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        ends = self._panes.due(self._table.runs, watermark, before)
        if ends:
            due = self._table.between(since=ends[0] - self._panes.size, until=ends[-1] - self._panes.length)
            partials = together(due)
            if partials is not None:
                out.emit(self._closed(partials, ends))
        self._table.expire(before=watermark - self._panes.size + 1)

    def output_watermark(self, watermark: int) -> int:
        """Event time downstream is that of the windows' beginnings: those of windows that are over come no more."""
        return self._panes.next_start(watermark)

    def _paned(self, frame: DataFrame) -> DataFrame:
        return frame.where(self._known).withColumn(PANE, self._pane)

    def _closed(self, partials: DataFrame, ends: range) -> DataFrame:
        return self._output.select(self._aggregation.grouped(self._panes.windows(partials, ends)))
