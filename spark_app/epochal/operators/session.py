"""Event-time sessions: rows with the same keys, none more than a gap after the one before it.

State holds pieces of sessions, as each batch brought them; pieces that touch are one session. When a session is over it
comes out, and a small row that says up to where its key is closed takes the place of removing its pieces: runs never
change. What is closed is swept out when it has become half of the state, so each piece is rewritten a few times only.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from epochal.operators.aggregates import Aggregation, simple_part
from epochal.operators.bounds import at_least, before
from epochal.operators.keys import KEY, check_columns, key_columns, with_key
from epochal.operators.panes import END, START
from epochal.operators.window import LATE
from epochal.runtime.observed import micros
from epochal.runtime.operator import MAIN, Operator, OperatorContext
from epochal.runtime.tables import KeyedTimeTable, Run

FIRST, LAST, NUMBER = "__first", "__last", "__session"
"""A piece's first and last event time, in microseconds, and its session among those of its key."""
CLOSED = "__closed"
"""A closed piece's session's last event time."""
_CLOSED_KEY, _UNTIL = "__closed_key", "__until"


class SessionWindowOperator(Operator):
    """A session begins with its first row and ends ``gap`` after its last one; it comes out once the watermark has
    passed its end.

    A row is late when the watermark had passed it by the gap before its batch came: it is counted, and goes to the port
    ``late``.
    """

    takes_changelog = False

    def __init__(self, *, event_time: str, gap: int, keys: list[str], aggregates: dict[str, Column]) -> None:
        self._event_time = event_time
        self._gap = gap
        self._keys = keys
        self._aggregates = aggregates
        self._aggregation: Aggregation | None = None
        self._pieces: KeyedTimeTable | None = None
        self._closed: KeyedTimeTable | None = None

    def on_start(self, ctx: OperatorContext) -> None:
        self._pieces = ctx.table_manager.keyed_time_table("pieces", partitioned_by=[KEY])
        self._closed = ctx.table_manager.keyed_time_table("closed", partitioned_by=[KEY])

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._pieces is not None
        added = self._pieces.append(self._piece(frame), self._begin())
        horizon = None if ctx.watermark is None else ctx.watermark - self._gap
        if horizon is not None and added.min_time is not None and added.min_time < horizon:
            self._without_late(frame, added, horizon, ctx)
        self._pieces.merge_small(lambda pieces: self._merged(self._open(pieces)), self._begin())

    def _without_late(self, frame: DataFrame, added: Run, horizon: int, ctx: OperatorContext) -> None:
        """Take a batch back, and add it again without its late rows."""
        assert self._pieces is not None
        time = micros(F.col(self._event_time))
        late = frame.where(F.col(self._event_time).isNotNull() & before(time, horizon))
        ctx.late_rows += late.count()
        if ctx.is_read(LATE):
            ctx.emit(late, LATE)
        self._pieces.drop([added])
        self._pieces.append(self._piece(frame.where(at_least(time, horizon))), self._begin())

    def on_watermark(self, watermark: int, ctx: OperatorContext) -> None:
        assert self._pieces is not None
        assert self._closed is not None
        # A row that comes the gap after the last one still belongs to the session, as in Spark.
        horizon = watermark - self._gap
        pieces = self._pieces.read()
        if pieces is None or all(run.min_time is None or run.min_time >= horizon for run in self._pieces.runs):
            return
        last = F.max(self._part(LAST)).over(Window.partitionBy(KEY, NUMBER))
        sessions = self._renumbered(self._open(pieces)).withColumn(CLOSED, last)
        done = ctx.table_manager.for_this_batch(sessions.where(before(F.col(CLOSED), horizon)))
        if done.rows:
            ctx.emit(self._result(done.frame.drop(CLOSED)))
            self._closed.add(done.part(done.frame.select(KEY, CLOSED)))
            self._sweep()

    def _sweep(self) -> None:
        """Write the state anew without what is closed, if that is half of it."""
        assert self._pieces is not None
        assert self._closed is not None
        before_it = list(self._pieces.runs)
        if 2 * sum(run.rows for run in self._closed.runs) < sum(run.rows for run in before_it):
            self._closed.merge_small(lambda rows: rows)
            return
        pieces = self._pieces.read()
        assert pieces is not None
        self._pieces.append(self._merged(self._open(pieces)), self._begin())
        self._pieces.drop(before_it)
        self._closed.clear()

    def output_watermark(self, watermark: int) -> int:
        """Event time downstream is that of the sessions' ends: none comes any more that ended before."""
        return watermark

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        check_columns(frames[0], self._keys)
        rows = self._numbered(self._rows(frames[0]), FIRST, LAST)
        spans = {FIRST: F.min(FIRST), LAST: F.max(LAST)}
        self._aggregation = Aggregation([KEY, NUMBER], self._aggregates | spans, rows)
        return {MAIN: self._result(self._aggregation.partial(rows)), LATE: frames[0]}

    # --- pieces ---

    def _rows(self, frame: DataFrame) -> DataFrame:
        """Each row as the smallest piece of a session."""
        time = micros(F.col(self._event_time))
        known = frame.where(F.col(self._event_time).isNotNull())
        return with_key(known, self._keys).withColumn(FIRST, time).withColumn(LAST, time)

    def _piece(self, frame: DataFrame) -> DataFrame:
        """What a batch adds: its rows, as far as possible as one piece per session."""
        assert self._aggregation is not None
        return self._aggregation.partial(self._numbered(self._rows(frame).repartition(KEY), FIRST, LAST))

    def _numbered(self, pieces: DataFrame, first: str, last: str) -> DataFrame:
        """Pieces of the same key that touch get the same number."""
        by_time = Window.partitionBy(KEY).orderBy(first)
        earlier = F.max(last).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
        apart = F.coalesce(F.col(first) > earlier + self._gap, F.lit(True)).cast("int")
        return pieces.withColumn(NUMBER, apart).withColumn(
            NUMBER, F.sum(NUMBER).over(by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        )

    def _renumbered(self, pieces: DataFrame) -> DataFrame:
        return self._numbered(pieces.drop(NUMBER), self._part(FIRST), self._part(LAST))

    def _merged(self, pieces: DataFrame) -> DataFrame:
        """Pieces that touch made one. Where rows are kept, they stay as they are."""
        assert self._aggregation is not None
        return self._aggregation.merged(self._renumbered(pieces))

    def _open(self, pieces: DataFrame) -> DataFrame:
        """Without the pieces of sessions that came out: all that end where their key is closed, or before."""
        assert self._closed is not None
        closed = self._closed.read()
        if closed is None:
            return pieces
        # Under new names: what is closed was made of the pieces, and Spark would take their columns for the same.
        until = closed.groupBy(F.col(KEY).alias(_CLOSED_KEY)).agg(F.max(CLOSED).alias(_UNTIL))
        same = (F.col(KEY) == F.col(_CLOSED_KEY)) & (F.col(self._part(LAST)) <= F.col(_UNTIL))
        return pieces.join(until.hint("shuffle_hash"), same, "left_anti")

    def _part(self, name: str) -> str:
        """The column that has a piece's first or last time: partials have names of their own."""
        assert self._aggregation is not None
        return name if self._aggregation.keeps_rows else simple_part(name)

    def _begin(self) -> Column:
        return F.timestamp_micros(self._part(FIRST))

    def _result(self, pieces: DataFrame) -> DataFrame:
        assert self._aggregation is not None
        span = [
            F.timestamp_micros(FIRST).alias(START),
            F.timestamp_micros(F.col(LAST) + self._gap).alias(END),
        ]
        return self._aggregation.result(pieces).select(*span, *key_columns(self._keys), *self._aggregates)
