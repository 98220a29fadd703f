"""What every two-phase sink shares: rows wait in a table until their epoch is published."""

import threading

from pyspark.sql import DataFrame

from epochal.runtime.observed import Metrics
from epochal.runtime.operator import PENDING, OperatorContext, SinkOperator
from epochal.runtime.packed import MANY, packed_run
from epochal.runtime.tables import ComingRun, KeyedTimeTable, Run, run_metrics


class PendingSink(SinkOperator):
    """Holds each batch's rows as a run of the table ``pending``. An epoch's snapshot holds all that is not committed;
    runs leave the table when an epoch that has them is published, so the rows of a failed epoch come with the next
    one."""

    def __init__(self) -> None:
        self._table: KeyedTimeTable | None = None
        self._done: set[int] = set()
        self._metrics: Metrics | None = None
        self._many = False
        self._lock = threading.Lock()
        super().__init__()

    def on_start(self, ctx: OperatorContext) -> None:
        # What a restored epoch has pending is committed from its objects when it is restored.
        self._table = ctx.table_manager.keyed_time_table(PENDING, restore=False)
        self._table.dropped_together = True

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        assert self._table is not None
        self._forget()
        if ctx.batch_run is not None:
            self._table.add(ctx.batch_run.part(frame))
        elif ctx.later is not None:
            run = ComingRun(frame, self._waiting)
            self._table.add_coming(run)
            ctx.later(run.compute)
        else:
            self._table.add(self._waiting(frame))

    def _waiting(self, frame: DataFrame) -> Run:
        """The rows, computed; as Parquet files if there are likely to be many, because there were last time."""
        if self._many and not self.needs_frame:
            run = packed_run(frame)
        else:
            self._metrics = self._metrics or run_metrics()
            run = Run.materialise(frame, self._metrics)
        self._many = run.rows >= MANY
        return run

    def handle_checkpoint(self, barrier: object, ctx: OperatorContext) -> bool:
        self._forget()
        return True

    def committed(self, runs: list[Run]) -> None:
        """Called by another thread than the others: the runs leave the table at its next use."""
        with self._lock:
            self._done.update(run.number for run in runs)

    def _forget(self) -> None:
        assert self._table is not None
        with self._lock:
            done, self._done = self._done, set()
        if done:
            self._table.drop([run for run in self._table.runs if run.number in done])
