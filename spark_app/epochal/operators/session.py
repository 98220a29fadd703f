"""Event-time sessions: rows with the same keys, none more than a gap after the one before it.

State holds sessions that are not over, one row each, and pieces of sessions that batches brought since; pieces that
touch are one session. A batch's rows become pieces by hashing them: of one key, those within the same stretch of event
time that is as long as the gap are in one session, whatever else comes. So rows are neither moved nor sorted, only
pieces are. When the watermark passes a session's end, all pieces become sessions; what is over comes out, and the rest
is the state from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.aggregates import ROWS, simple_part
from epochal.operators.aggregation import Aggregation
from epochal.operators.bounds import at_least, out_of_bounds
from epochal.operators.bounds import before as older
from epochal.operators.definitions import named_expressions, seconds, typed
from epochal.operators.keys import KEY, check_keys, key_columns, with_key
from epochal.operators.panes import END, START
from epochal.operators.window import LATE
from epochal.runtime.dataflow.operator import MAIN, Batch, BatchStats, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import PlanMetrics, micros
from epochal.runtime.state.tables import SMALL_BATCH, KeyedTimeTable, Run, earliest, materialise, together

FIRST, LAST = "__first", "__last"
"""A session's first and last event time, in microseconds; of a row that is kept, its own."""
NUMBER = "__session"
"""Of a piece, the stretch of time that it is from; then its session among those of its key."""
_OVER = "__over"
"""The last event time of a kept row's session."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SessionWindowOperator(Operator):
    """A session begins with its first row and ends ``gap`` after its last one; it comes out once the watermark has
    passed its end.

    A row is late when the watermark had passed it by the gap before its batch came: it is counted, and goes to the port
    ``late``.
    """

    takes_changelog: ClassVar[bool] = False

    event_time: str
    gap: int
    keys: list[str]
    aggregates: dict[str, Column]

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame = ctx.empty(inputs[0])
        check_keys(frame, self.keys)
        return _Sessions(self, frame)


class _Sessions(BoundOperator):
    def __init__(self, spec: SessionWindowOperator, frame: DataFrame) -> None:
        self._spec = spec
        self._event_time = spec.event_time
        self._gap = spec.gap
        self._keys = spec.keys
        self._key_types = frame.schema
        self._time = micros(F.col(spec.event_time))
        self._many = False
        """Whether the last batch had more pieces than one task takes at a time."""
        rows = self._stretched(frame)
        spans = {FIRST: F.min(self._time), LAST: F.max(self._time)}
        aggregation = Aggregation([KEY, NUMBER], spec.aggregates | spans, rows, count_rows=True)
        self._aggregation = aggregation
        self.counts_input = not aggregation.keeps_rows
        first, last = self._part(FIRST), self._part(LAST)
        metrics = {"rows": F.count(F.lit(1)), "min_time": F.min(last), "max_time": F.max(last), "first": F.min(first)}
        if not aggregation.keeps_rows:
            metrics |= {"input": F.sum(ROWS), "untimed": F.count(F.when(F.col(NUMBER).isNull(), 1))}
        self._metrics = PlanMetrics(metrics)
        self._columns = Prepared([F.col(KEY), *aggregation.results()])
        ends = [F.timestamp_micros(FIRST).alias(START), F.timestamp_micros(F.col(LAST) + self._gap).alias(END)]
        self._output = Prepared([*ends, *key_columns(spec.keys), *(F.col(name) for name in spec.aggregates)])
        state = self._rows(frame).schema if aggregation.keeps_rows else aggregation.state
        self._table = KeyedTimeTable("sessions", state, partitioned_by=[KEY])
        result = self._result(aggregation.partial(rows))
        super().__init__({MAIN: result.schema, LATE: frame.schema}, [self._table])

    def state_definition(self) -> dict[str, str]:
        return {
            "sessions": f"a gap of {seconds(self._gap)} of {self._event_time}",
            "keys": typed(self._keys, self._key_types),
            "aggregates": named_expressions(self._spec.aggregates, self._aggregation.types),
        }

    # --- batches ---

    def process(self, batch: Batch, out: Collector) -> BatchStats:
        frame = batch.frame.coalesce(1) if batch.small else batch.frame
        pieces, first, stats = self._pieces(frame, out)
        horizon = None if batch.watermark is None else batch.watermark - self._gap
        newest = pieces.max_time
        outside = (
            None
            if first is None or newest is None
            else out_of_bounds(self._time, first, newest, since=horizon, until=batch.latest_time)
        )
        if outside is not None:
            out.release_later(pieces.hold())
            late = batch.frame.where(F.col(self._event_time).isNotNull() & outside)
            stats = replace(stats, late_rows=late.count())
            if out.is_read(LATE):
                out.emit(late, LATE)
            pieces, _, _ = self._pieces(frame.where(F.col(self._event_time).isNotNull() & ~outside), out)
        self._many = pieces.rows > SMALL_BATCH
        self._table.add(pieces)
        self._table.merge_small(self._joined, F.timestamp_micros(self._part(LAST)), gather=True)
        return stats

    def _pieces(self, frame: DataFrame, out: Collector) -> tuple[Run, int | None, BatchStats]:
        """What a batch adds, its first event time, and what it had. Rows without a time are left out afterwards: to be
        counted they have to go through once."""
        stats = BatchStats()
        if self._aggregation.keeps_rows:
            held, seen = materialise(self._rows(frame).repartition(KEY), self._metrics)
        else:
            pieces = self._aggregation.partial(self._stretched(frame))
            held, seen = materialise(pieces.repartition(KEY) if self._many else pieces, self._metrics)
            stats = BatchStats(rows=int(seen["input"] or 0), newest=seen["max_time"])
            if seen["untimed"]:
                out.release_later(Run(held, rows=seen["rows"]).hold())
                held, seen = materialise(held.where(F.col(NUMBER).isNotNull()), self._metrics)
        run = Run(held, rows=seen["rows"], min_time=seen["min_time"], max_time=seen["max_time"])
        return run, seen["first"], stats

    def _stretched(self, frame: DataFrame) -> DataFrame:
        """Rows with the stretch of time that they are from: those of one key and stretch are in one session."""
        stretch = self._time - F.pmod(self._time, F.lit(max(self._gap, 1)))
        return with_key(frame, self._keys).withColumn(NUMBER, stretch)

    def _rows(self, frame: DataFrame) -> DataFrame:
        """Each row as the smallest piece of a session."""
        known = frame.where(F.col(self._event_time).isNotNull())
        return with_key(known, self._keys).withColumn(FIRST, self._time).withColumn(LAST, self._time)

    # --- sessions ---

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        # A row that comes the gap after the last one still belongs to the session, as in Spark.
        horizon = watermark - self._gap
        runs = list(self._table.runs)
        oldest, pieces = earliest(runs), together(runs)
        if pieces is None or oldest is None or oldest >= horizon:
            return
        last = F.col(self._part(LAST) if self.counts_input else _OVER)
        is_open = at_least(last, horizon)
        counted = {"rows": F.count(F.lit(1)), "open": F.count(F.when(is_open, 1))}
        times = {"min_time": F.min(F.when(is_open, last)), "max_time": F.max(last)}
        held, seen = materialise(self._sessions(pieces), PlanMetrics(counted | times))
        sessions = Run(held, rows=seen["rows"]).hold()
        out.release_later(sessions)
        if seen["open"] < seen["rows"]:
            out.emit(self._result(held.where(older(last, horizon))))
        self._table.drop(runs)
        if seen["open"]:
            left = held.where(is_open)
            state = left if self.counts_input else left.drop(NUMBER, _OVER)
            self._table.add(
                Run(state, rows=seen["open"], min_time=seen["min_time"], max_time=seen["max_time"], of=sessions)
            )

    def _sessions(self, pieces: DataFrame) -> DataFrame:
        """One row for each session; where rows are kept, these, with their session's number and last event time."""
        numbered = self._numbered(pieces)
        if self._aggregation.keeps_rows:
            return numbered.withColumn(_OVER, F.max(LAST).over(Window.partitionBy(KEY, NUMBER)))
        return self._aggregation.merged(numbered)

    def _joined(self, pieces: DataFrame) -> DataFrame:
        """Pieces that touch made one. Where rows are kept, they stay as they are."""
        return pieces if self._aggregation.keeps_rows else self._sessions(pieces)

    def _numbered(self, pieces: DataFrame) -> DataFrame:
        """Pieces of the same key that touch get the same number."""
        first, last = self._part(FIRST), self._part(LAST)
        by_time = Window.partitionBy(KEY).orderBy(first)
        earlier = F.max(last).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
        apart = F.coalesce(F.col(first) > earlier + self._gap, F.lit(True)).cast("int")
        so_far = by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        return pieces.withColumn(NUMBER, apart).withColumn(NUMBER, F.sum(NUMBER).over(so_far))

    def output_watermark(self, watermark: int) -> int:
        """Event time downstream is that of the sessions' ends: none comes any more that ended before."""
        return watermark

    def _part(self, name: str) -> str:
        """The column that has a piece's first or last time: partials have names of their own."""
        return name if self._aggregation.keeps_rows else simple_part(name)

    def _result(self, sessions: DataFrame) -> DataFrame:
        whole = self._aggregation.grouped(sessions) if self._aggregation.keeps_rows else sessions
        return self._output.select(self._columns.select(whole))
