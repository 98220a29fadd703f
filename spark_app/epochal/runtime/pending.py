"""What a sink has not committed yet: rows wait in a table until their epoch is published."""

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame

from epochal.protocol.documents import PENDING
from epochal.runtime.observed import Metrics
from epochal.runtime.packed import MANY, packed_run
from epochal.runtime.table_manager import TableManager
from epochal.runtime.tables import ComingRun, Run, run_metrics


class PendingRows:
    """Holds each batch's rows as a run of the table ``pending``. An epoch's snapshot holds all that is not committed;
    runs leave the table when an epoch that has them is committed, so the rows of a failed epoch come with the next
    one.

    The runtime makes one for every sink, so there is no sink without it.
    """

    def __init__(self, tables: TableManager, *, may_pack: bool) -> None:
        """``may_pack``: nobody reads the rows as a frame, so they may wait as Parquet files."""
        # What a restored epoch has pending is committed from its objects when it is restored.
        self._table = tables.keyed_time_table(PENDING, restore=False)
        self._table.dropped_together = True
        self.rows_committed = 0
        self._may_pack = may_pack
        self._done: set[int] = set()
        self._metrics: Metrics | None = None
        self._many = False
        self._lock = threading.Lock()

    @property
    def runs(self) -> list[Run]:
        return self._table.runs

    def add(self, frame: DataFrame, of: Run | None, later: Callable[[Callable[[], None]], None] | None) -> None:
        """Hold a batch's rows. ``of``: the run that they are columns of and nothing else; ``later``: takes a job that
        need not be done within the batch."""
        self.forget_committed()
        if of is not None:
            self._table.add(of.part(frame))
        elif later is not None:
            run = ComingRun(frame, self._waiting)
            self._table.add_coming(run)
            later(run.compute)
        else:
            self._table.add(self._waiting(frame))

    def _waiting(self, frame: DataFrame) -> Run:
        """The rows, computed; as Parquet files if there are likely to be many, because there were last time."""
        if self._many and self._may_pack:
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

    def forget_committed(self) -> None:
        with self._lock:
            done, self._done = self._done, set()
        if done:
            self._table.drop([run for run in self._table.runs if run.number in done])
