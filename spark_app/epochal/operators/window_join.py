"""Windowed join: rows of two streams with the same keys in the same window, when the window is over."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.definitions import seconds, typed
from epochal.operators.join import LATE_SIDES, OUTER, SIDES
from epochal.operators.keys import (
    KEY,
    as_they_came,
    check_new_columns,
    check_sides,
    key_columns,
    with_join_key,
    without_nulls,
)
from epochal.operators.panes import END, PANE, START, Panes, after, pane_time
from epochal.runtime.dataflow.operator import MAIN, Batch, BatchStats, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.state.tables import KeyedTimeTable, Run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowJoinOperator(Operator):
    """Keeps the rows of both sides by pane and key, and joins those of a window once the watermark has passed its end.

    A row is late when the watermark had passed the end of its last window before the row's batch came: it is counted,
    and goes to the port of its side.
    """

    takes_changelog: ClassVar[bool] = False

    event_times: tuple[str, str]
    size: int
    slide: int | None
    keys: list[str]
    how: str

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        left, right = ctx.empty(inputs[0]), ctx.empty(inputs[1])
        for side in (left, right):
            check_new_columns(side, (START, END))
        check_sides(left, right, self.keys, names=("the left stream", "the right stream"))
        return _WindowJoin(self, (left, right))


class _WindowJoin(BoundOperator):
    def __init__(self, spec: WindowJoinOperator, sides: tuple[DataFrame, DataFrame]) -> None:
        self._event_times = spec.event_times
        self._panes = Panes(spec.size, spec.slide or spec.size)
        self._keys = spec.keys
        self._how = spec.how
        self._key_types = sides[0].schema
        self._pane_time = pane_time()
        self._empty = [self._keyed(frame, side) for side, frame in enumerate(sides)]
        self._tables = [
            KeyedTimeTable(side, frame.schema, partitioned_by=[KEY])
            for side, frame in zip(SIDES, self._empty, strict=True)
        ]
        late = dict(zip(LATE_SIDES, (side.schema for side in sides), strict=True))
        joined = self._closed(self._empty[0], self._empty[1], range(0))
        super().__init__({MAIN: joined.schema, **late}, self._tables)

    def state_definition(self) -> dict[str, str]:
        times = " and ".join(self._event_times)
        return {
            "windows": f"{seconds(self._panes.size)} every {seconds(self._panes.slide)} of {times}",
            "keys": typed(self._keys, self._key_types),
            "how": self._how,
        }

    def prepare(self, batch: Batch) -> Run:
        rows = self._keyed(batch.frame, batch.channel).repartition(KEY)
        return self._tables[batch.channel].computed(rows, self._pane_time)

    def process(self, batch: Batch, out: Collector) -> BatchStats:
        table, late, latest = self._tables[batch.channel], 0, batch.latest_time
        added = table.add(batch.prepared or self.prepare(batch))
        if latest is not None and added.max_time is not None and added.max_time > latest:
            table.drop([added])
            late += self._tell_late(added.frame.where(F.col(PANE) > latest), batch, out)
            added = table.append(added.frame.where(F.col(PANE) <= latest), self._pane_time)
        over = self._panes.last_over(batch.watermark)
        if over is not None and added.min_time is not None and added.min_time <= over:
            # They stay where they are: no window that they belong to is emitted again.
            late += self._tell_late(added.frame.where(F.col(PANE) <= over), batch, out)
        table.merge_small(lambda rows: rows if over is None else after(rows, over), self._pane_time)
        return BatchStats(late_rows=late)

    def _tell_late(self, late: DataFrame, batch: Batch, out: Collector) -> int:
        port = LATE_SIDES[batch.channel]
        if out.is_read(port):
            out.emit(as_they_came(late, self._keys, batch.frame.columns), port)
        return late.count()

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        ends = self._panes.due([run for table in self._tables for run in table.runs], watermark, before)
        if ends:
            first, last = ends[0] - self._panes.size, ends[-1] - self._panes.length
            rows = [table.read(since=first, until=last) for table in self._tables]
            # A side without rows matters only if rows of the other one come out alone.
            left, right = (found if found is not None else self._empty[side] for side, found in enumerate(rows))
            if any(found is not None and (other is not None or outer) for found, other, outer in self._ways(rows)):
                out.emit(self._closed(left, right, ends))
        for table in self._tables:
            table.expire(before=watermark - self._panes.size + 1)

    def output_watermark(self, watermark: int) -> int:
        return self._panes.next_start(watermark)

    def _ways(self, rows: list[DataFrame | None]) -> list[tuple[DataFrame | None, DataFrame | None, bool]]:
        """Each side's rows, those of the other side, and whether the former come out without the latter."""
        return [(rows[side], rows[1 - side], OUTER[self._how][side]) for side in (0, 1)]

    def _keyed(self, frame: DataFrame, channel: int) -> DataFrame:
        outer = OUTER[self._how][channel]
        known = without_nulls(frame, [self._event_times[channel], *(() if outer else self._keys)])
        paned = known.withColumn(PANE, self._panes.of(self._event_times[channel]))
        return with_join_key(paned, self._keys, side=channel, more=[F.col(PANE)])

    def _closed(self, left: DataFrame, right: DataFrame, ends: range) -> DataFrame:
        joined = self._in_windows(left, ends).join(self._in_windows(right, ends), KEY, self._how)
        others = [name for name in joined.columns if name != KEY]
        end = self._panes.end(F.col(KEY)[PANE])
        return joined.select(*self._panes.columns(end), *key_columns(self._keys), *others)

    def _in_windows(self, rows: DataFrame, ends: range) -> DataFrame:
        """Rows with their window in the key. That of a tumbling window is there already, and nothing moves."""
        due = self._panes.windows(rows, ends)
        if not self._panes.tumbling:
            due = due.withColumn(KEY, F.col(KEY).withField(PANE, F.col(PANE)))
        return due.drop(PANE)
