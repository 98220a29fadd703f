"""Rows that a sink has been given ahead of time: they came because all sources had ended, and the job was run again.

They come once more, when their windows close for good or at the next end, and are left out then. With more input some
come in another form; what was written before stays beside them, unless the sink takes it back.

Rows are known by a digest of all their columns, so the table holds 64 characters and a number for each of them.
"""

import logging

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from epochal.runtime.state.stored_types import stored_type
from epochal.runtime.state.tables import KeyedTimeTable, Run, union

AHEAD = "ahead"
_DIGEST, _ROWS, _PLACE = "__digest", "__rows", "__place"
_EXACTLY = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
}
"""JSON with all digits of everything."""

logger = logging.getLogger(__name__)


class Ahead:
    """How many rows of each digest the sink has ahead of time."""

    def __init__(self) -> None:
        self.table = KeyedTimeTable(AHEAD)

    @property
    def nothing(self) -> bool:
        return not self.table.runs

    def add(self, runs: list[Run]) -> None:
        """The sink has these rows."""
        rows = union(run.frame for run in runs)
        if rows is not None:
            self._put([*(run.frame for run in self.table.runs), _counted(_digested(rows))])

    def settle(self, pending: KeyedTimeTable) -> None:
        """Take out of ``pending`` what the sink has already; from now on it is not ahead of time any more."""
        ahead, rows = self._read(), _rows_of(pending)
        if ahead is None or rows is None:
            return
        came = _counted(_digested(rows)).withColumnRenamed(_ROWS, "came")
        left = F.col(_ROWS) - F.coalesce("came", F.lit(0))
        self._leave_out(pending, rows, ahead)
        self._put([ahead.join(came, _DIGEST, "left").select(_DIGEST, left.alias(_ROWS)).where(F.col(_ROWS) > 0)])

    def leave_out_of(self, at_end: KeyedTimeTable, sink: str) -> None:
        """Take out of what comes at another end what the ``sink`` has already: it stays ahead of time."""
        ahead, rows = self._read(), _rows_of(at_end)
        if ahead is None:
            return
        total = sum(row[_ROWS] for row in ahead.select(F.sum(_ROWS).alias(_ROWS)).collect())
        again = 0 if rows is None else self._leave_out(at_end, rows, ahead)
        if again < total:
            logger.warning(
                "Sink %s: %s rows that it was given when all sources had ended came in another form now that there is "
                "more input; it has both",
                sink,
                total - again,
            )

    def _leave_out(self, table: KeyedTimeTable, rows: DataFrame, ahead: DataFrame) -> int:
        """Take out what is ahead, each row as often as the sink has it. Returns how many rows that are."""
        before = sum(run.rows for run in table.runs)
        place = F.row_number().over(Window.partitionBy(_DIGEST).orderBy(_DIGEST))
        found = _digested(rows).withColumn(_PLACE, place).join(ahead, _DIGEST, "left")
        kept = found.where(F.col(_PLACE) > F.coalesce(_ROWS, F.lit(0))).select(*rows.columns)
        run = Run.materialise(kept)
        table.clear()
        table.add(run)
        return before - run.rows

    def _read(self) -> DataFrame | None:
        frame = union(run.frame for run in self.table.runs)
        return None if frame is None else frame.groupBy(_DIGEST).agg(F.sum(_ROWS).alias(_ROWS))

    def _put(self, frames: list[DataFrame]) -> None:
        frame = union(frames)
        assert frame is not None
        run = Run.materialise(frame)
        self.table.clear()
        self.table.add(run)


def _rows_of(table: KeyedTimeTable) -> DataFrame | None:
    for run in table.runs:
        run.arrive()
    return union(run.frame for run in table.runs)


def _digested(rows: DataFrame) -> DataFrame:
    # Rows that come back from the store have its types: an interval of days is one of days to seconds then.
    columns = [F.col(field.name).cast(stored_type(field.dataType)).alias(field.name) for field in rows.schema]
    text = F.to_json(F.struct(*columns), _EXACTLY)
    return rows.withColumn(_DIGEST, F.sha2(F.coalesce(text, F.lit("")), 256))


def _counted(digested: DataFrame) -> DataFrame:
    return digested.groupBy(_DIGEST).agg(F.count(F.lit(1)).alias(_ROWS))
