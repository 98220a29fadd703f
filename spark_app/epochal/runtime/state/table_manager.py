"""An operator's tables: restored from a manifest, frozen at a barrier."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import SparkSession

from epochal.protocol.documents import StoredRun, StoredTable
from epochal.protocol.epochs import Epoch
from epochal.runtime.errors import PipelineError
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.tables import Declared, GlobalTable, KeyedTimeTable, Run

StateTable = KeyedTimeTable | LatestTable | GlobalTable
"""Every kind of table that there is."""

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
class OperatorSnapshot:
    """All tables of one operator at a barrier. Released once the epoch is published or given up."""

    operator: str
    tables: dict[str, TableSnapshot] = field(default_factory=dict)

    def runs(self) -> list[Run]:
        return [run for table in self.tables.values() for run in table.runs]

    def again(self) -> "OperatorSnapshot":
        """The same, to be released for itself."""
        for run in self.runs():
            run.hold()
        return OperatorSnapshot(self.operator, self.tables)

    def release(self) -> None:
        for run in self.runs():
            run.release()


class TableManager:
    """The tables of one operator, which has made them."""

    def __init__(self, operator: str, spark: SparkSession, tables: Sequence[StateTable]) -> None:
        self._operator = operator
        self._spark = spark
        self._tables = {table.name: table for table in tables}

    def restore(self, stored: Mapping[str, StoredTable], *, restore_run: RestoreRun, load_run: LoadRun) -> None:
        """Give the tables what the restored epoch has of them."""
        for name, table in self._tables.items():
            kept = stored.get(name)
            runs = () if kept is None else kept.runs
            match table:
                case KeyedTimeTable():
                    if table.restored:
                        self._check_kind(name, "KeyedTime", kept)
                        declared, columns = table.declared(self._operator), table.partitioned_by
                        table.runs = [restore_run(run, columns, declared).hold() for run in runs]
                case LatestTable():
                    self._check_kind(name, "Latest", kept)
                    table.open()
                    for run in runs:
                        load_run(run, table)
                case GlobalTable():
                    self._check_kind(name, "Global", kept)
                    for run in runs:
                        table.restore(restore_run(run, None, None).hold())

    def unclaimed(self, stored: Mapping[str, StoredTable]) -> list[str]:
        """Tables with content that the restored epoch has and the operator does not."""
        return sorted(name for name, table in stored.items() if table.runs and name not in self._tables)

    def checkpoint(self) -> OperatorSnapshot:
        """Freeze all tables. Costs a list copy each; writing happens later, while the next batches run."""
        snapshot = OperatorSnapshot(self._operator)
        for name, table in self._tables.items():
            match table:
                case KeyedTimeTable():
                    held = [run.hold() for run in table.runs]
                    snapshot.tables[name] = TableSnapshot("KeyedTime", held, as_one=table.dropped_together)
                case LatestTable():
                    snapshot.tables[name] = TableSnapshot("Latest", [run.hold() for run in table.runs], table, True)
                case GlobalTable():
                    snapshot.tables[name] = TableSnapshot("Global", [run.hold() for run in table.frozen(self._spark)])
        return snapshot

    def forget_unpublished(self, epoch: Epoch, published: set[str]) -> None:
        """After ``epoch`` is published: a run written before it that it does not name may be cleaned up at any time, so
        it counts as not written."""
        for run in [run for table in self._tables.values() for run in table.held()]:
            parts = run.parts or ()
            if run.persisted and run.persisted < epoch and any(part.object not in published for part in parts):
                run.parts = None

    def take_dropped(self) -> list[Run]:
        """What tables dropped since the last call: to be released when nothing lazy refers to it any more."""
        return [run for table in self._tables.values() for run in table.take_dropped()]

    def _check_kind(self, name: str, kind: str, stored: StoredTable | None) -> None:
        if stored is not None and stored.kind != kind:
            raise PipelineError(
                f"operator {self._operator!r}: table {name!r} is a {kind} table now, but the restored epoch has it as "
                f"{stored.kind}: use another name for the new table"
            )
