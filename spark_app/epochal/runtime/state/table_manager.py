"""An operator's tables: made by name, frozen at a barrier, restored from a manifest."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from epochal.protocol.documents import Run as StoredRun
from epochal.protocol.documents import Table
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import check_label
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.plan_metrics import Metrics
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.stored_types import as_declared
from epochal.runtime.state.tables import GlobalTable, KeyedTimeTable, Run, run_metrics

Declared = Callable[[DataFrame], DataFrame]
"""Makes restored rows what the table is declared to hold."""

RestoreRun = Callable[[StoredRun, list[str] | None, Declared | None], Run]
"""Brings back a stored run, as it is declared, partitioned by the given columns."""

LoadRun = Callable[[StoredRun, LatestTable], None]
"""Adds a stored run to a table."""


@dataclass(slots=True)
class TableSnapshot:
    """A table's content at a barrier: runs that stay as they are however the table goes on."""

    kind: Literal["Global", "KeyedTime", "Latest"]
    runs: list[Run]
    latest: LatestTable | None = None
    """The table, if its runs are with executors."""
    as_one: bool = False
    """Whether new runs may be written as one: nothing is ever taken out of the middle of them and written again."""


@dataclass(slots=True)
class Snapshot:
    """All tables of one operator at a barrier. Released once the epoch is published or given up."""

    operator: str
    tables: dict[str, TableSnapshot] = field(default_factory=dict)

    def runs(self) -> list[Run]:
        return [run for table in self.tables.values() for run in table.runs]

    def again(self) -> "Snapshot":
        """The same, to be released for itself."""
        for run in self.runs():
            run.hold()
        return Snapshot(self.operator, self.tables)

    def release(self) -> None:
        for run in self.runs():
            run.release()


class TableManager:
    """The tables of one operator."""

    def __init__(
        self,
        operator: str,
        spark: SparkSession,
        stored: dict[str, Table],
        *,
        restore_run: RestoreRun,
        load_run: LoadRun,
    ) -> None:
        self._operator = operator
        self._spark = spark
        self._stored = stored
        self._restore_run = restore_run
        self._load_run = load_run
        self._keyed: dict[str, KeyedTimeTable] = {}
        self._latest: dict[str, LatestTable] = {}
        self._global: dict[str, GlobalTable] = {}
        self._released: list[Run] = []
        self._metrics: Metrics | None = None

    def keyed_time_table(
        self,
        name: str,
        schema: StructType | None = None,
        *,
        restore: bool = True,
        partitioned_by: list[str] | None = None,
    ) -> KeyedTimeTable:
        """The table of that name, with what the restored epoch has of it (unless ``restore`` is False).

        ``schema`` is what it holds, for good: restored rows have these columns and types, or the job does not start.
        Without one they have the types that the store knows, which are fewer than Spark's.
        If all that is appended comes out of a ``groupBy`` of the same columns, name them in ``partitioned_by``:
        restored rows are then laid out alike, and Spark can group runs together without moving a row.
        """
        if name not in self._keyed:
            self._check_new(name)
            table = self._keyed[name] = KeyedTimeTable(name, self.release_later)
            if restore:
                label = f"{self._operator}-{name}"
                declared = None if schema is None else lambda frame: as_declared(frame, schema, table=label)
                stored = self._stored_as(name, "KeyedTime")
                table.runs = [self._restore_run(run, partitioned_by, declared).hold() for run in stored]
        return self._keyed[name]

    def latest_table(self, name: str, schema: StructType) -> LatestTable:
        """The table of that name, which has the latest row of each key, with what the restored epoch has of it.
        ``schema`` has the key, a struct named ``__key``, and the values."""
        if name not in self._latest:
            self._check_new(name)
            table = LatestTable(f"{self._operator}-{name}", self._spark, schema, self.release_later)
            self._latest[name] = table
            for stored in self._stored_as(name, "Latest"):
                self._load_run(stored, table)
        return self._latest[name]

    def global_table(self, name: str) -> GlobalTable:
        """The small table of that name, with what the restored epoch has of it."""
        if name not in self._global:
            self._check_new(name)
            table = self._global[name] = GlobalTable(name)
            for stored in self._stored_as(name, "Global"):
                table.restore(self._restore_run(stored, None, None).hold())
        return self._global[name]

    def unclaimed(self) -> list[str]:
        """Tables with content that the restored epoch has and the operator has not asked for."""
        known = {*self._keyed, *self._latest, *self._global}
        return sorted(name for name, table in self._stored.items() if table.runs and name not in known)

    def checkpoint(self) -> Snapshot:
        """Freeze all tables. Costs a list copy each; writing happens later, while the next batches run."""
        snapshot = Snapshot(self._operator)
        for name, table in self._keyed.items():
            held = [run.hold() for run in table.runs]
            snapshot.tables[name] = TableSnapshot("KeyedTime", held, as_one=table.dropped_together)
        for name, latest in self._latest.items():
            snapshot.tables[name] = TableSnapshot("Latest", [run.hold() for run in latest.runs], latest, True)
        for name, small in self._global.items():
            snapshot.tables[name] = TableSnapshot("Global", [run.hold() for run in small.frozen(self._spark)])
        return snapshot

    def forget_unpublished(self, epoch: Epoch, published: set[str]) -> None:
        """After ``epoch`` is published: a run written before it that it does not name may be cleaned up at any time, so
        it counts as not written."""
        keyed = [run for table in self._keyed.values() for run in table.runs]
        latest = [run for table in self._latest.values() for run in table.runs]
        small = [run for table in self._global.values() for run in table.held()]
        for run in [*keyed, *latest, *small]:
            parts = run.parts or ()
            if run.persisted and run.persisted < epoch and any(part.object not in published for part in parts):
                run.parts = None

    def for_this_batch(self, frame: DataFrame, metrics: Metrics | None = None) -> Run:
        """Rows that a batch needs more than once: computed now, and let go when the batch is done, unless there are
        views of them. ``metrics`` are those of :func:`run_metrics`, if times matter."""
        self._metrics = self._metrics or run_metrics()
        run = Run.materialise(frame, metrics or self._metrics).hold()
        self.release_later(run)
        return run

    def take_dropped(self) -> list[Run]:
        """What tables dropped since the last call: to be released when nothing lazy refers to it any more."""
        dropped, self._released = self._released, []
        return dropped

    def release_later(self, run: Run) -> None:
        """Let a run go when the batch is done."""
        self._released.append(run)

    def _stored_as(self, name: str, kind: str) -> tuple[StoredRun, ...]:
        stored = self._stored.get(name)
        if stored is None:
            return ()
        if stored.kind != kind:
            raise PipelineError(
                f"operator {self._operator!r}: table {name!r} is a {kind} table now, but the restored epoch has it as "
                f"{stored.kind}: use another name for the new table"
            )
        return stored.runs

    def _check_new(self, name: str) -> None:
        check_label("table", name)
        if name in self._keyed or name in self._global or name in self._latest:
            raise PipelineError(f"operator {self._operator!r}: table {name!r} is asked for as two kinds of table")
