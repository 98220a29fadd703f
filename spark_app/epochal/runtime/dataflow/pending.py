"""What a sink has not committed yet: rows wait in a table until their epoch is published."""

import threading
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from epochal.protocol.documents import AT_END, PENDING
from epochal.runtime.dataflow.early_output import Ahead
from epochal.runtime.spark.plan_metrics import Metrics
from epochal.runtime.state.parquet_run import MANY, packed_run
from epochal.runtime.state.table_manager import StateTable
from epochal.runtime.state.tables import ComingRun, KeyedTimeTable, Run, run_metrics


class PendingRows:
    """Holds each batch's rows as a run of the table ``pending``. An epoch's snapshot holds all that is not committed;
    runs leave the table when an epoch that has them is committed, so the rows of a failed epoch come with the next
    one.

    Rows that come because all sources have ended are in a table of their own. If the job is run again, they come again
    unless more input changes them: a sink that can takes them back before; of another one's those that are the same
    are left out (:mod:`epochal.runtime.dataflow.early_output`).

    The runtime makes one for every sink, so there is no sink without it.
    """

    def __init__(self, schema: StructType, *, may_pack: bool, takes_back: bool) -> None:
        """``may_pack``: nobody reads the rows as a frame, so they may wait as Parquet files. ``takes_back``: the sink
        has taken back what a restored epoch gave it because of an end."""
        # What a restored epoch has pending is committed from its objects when it is restored.
        self._table = KeyedTimeTable(PENDING, schema, restored=False, dropped_together=True)
        self._at_end = KeyedTimeTable(AT_END, restored=not takes_back, dropped_together=True)
        self._ahead = Ahead()
        self._ended = self._settled = False
        self.rows_committed = 0
        self._may_pack = may_pack
        self._done: set[int] = set()
        self._metrics: Metrics | None = None
        self._many = False
        self._lock = threading.Lock()

    @property
    def tables(self) -> Sequence[StateTable]:
        return self._table, self._at_end, self._ahead.table

    def start(self) -> None:
        """What a restored epoch gave the sink because of an end, the sink has ahead of time."""
        self._ahead.add(self._at_end.runs)
        self._at_end.clear()

    @property
    def runs(self) -> list[Run]:
        return [*self._table.runs, *self._at_end.runs]

    def end(self) -> None:
        """What comes from here on comes because all sources have ended."""
        self._ended = True

    def add(self, frame: DataFrame, of: Run | None, later: Callable[[Callable[[], None]], None] | None) -> None:
        """Hold a batch's rows. ``of``: the run that they are columns of and nothing else; ``later``: takes a job that
        need not be done within the batch."""
        self._forget_committed()
        table = self._at_end if self._ended else self._table
        if of is not None:
            table.add(of.part(frame))
        elif later is not None:
            run = ComingRun(frame, self._waiting)
            table.add_coming(run)
            later(run.compute)
        else:
            table.add(self._waiting(frame))

    def _waiting(self, frame: DataFrame) -> Run:
        """The rows, computed; as Parquet files if there are likely to be many, because there were last time, and they
        are not to be compared with what is ahead."""
        if self._many and self._may_pack and self._ahead.nothing:
            run = packed_run(frame)
        else:
            self._metrics = self._metrics or run_metrics()
            run = Run.materialise(frame, self._metrics)
        self._many = run.rows >= MANY
        return run

    def committed(self, runs: list[Run], rows: int) -> None:
        """The epoch that has these runs is committed. Called by another thread than the others: the runs leave the
        table at its next use."""
        with self._lock:
            self._done.update(run.number for run in runs)
            self.rows_committed += rows

    def settle(self, sink: str) -> None:
        """Before an epoch: leave out what is committed already. ``sink`` is named in log lines."""
        self._forget_committed()
        if not self._ahead.nothing and not self._settled:
            self._ahead.settle(self._table)
            if self._ended:
                self._ahead.leave_out_of(self._at_end, sink)
        # Nothing comes after an end. An epoch that is made once more has the same rows.
        self._settled = self._ended

    def _forget_committed(self) -> None:
        with self._lock:
            done, self._done = self._done, set()
        if done:
            for table in (self._table, self._at_end):
                table.drop([run for run in table.runs if run.number in done])
