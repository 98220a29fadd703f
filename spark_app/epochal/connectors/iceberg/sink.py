"""Rows into an Iceberg table, exactly once: an epoch is one snapshot, committed together with the epoch's number."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table import Table, TableProperties
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from epochal.connectors.commit_ledger import LedgerSink, LedgerState, check_fence, check_life, patiently
from epochal.connectors.iceberg.history import EPOCH, JOB, OPERATOR, TAKEN_BACK, files_of, later_snapshots
from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.operator import MAIN, OperatorContext
from epochal.runtime.errors import OutsideError, explained


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergTarget:
    """``namespace.table`` in a catalog. ``catalog`` are the properties of PyIceberg's ``load_catalog``, with the
    catalog's name as ``name``, and may hold secrets."""

    table: str
    catalog: Mapping[str, str] = field(repr=False)


class IcebergSink(LedgerSink):
    """Appends an epoch's rows.

    The epoch's number is a property of the table, changed in the same commit as the snapshot is added. A commit holds
    only if the table's newest snapshot is still the one that was read before, so of two drivers one loses, and looks
    again.
    """

    can_take_back = True

    def __init__(self, target: IcebergTarget, storage: StorageConfig) -> None:
        super().__init__(storage)
        self._target = target
        self._schema: pa.Schema | None = None

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        self._schema = to_arrow_schema(frames[0].schema, timezone="UTC")
        self._check(self._schema)
        return {MAIN: frames[0]}

    def open(self, ctx: OperatorContext) -> None:
        """Take over from older generations: from here on they can commit nothing here."""
        patiently(lambda: self._take_over(ctx))

    def write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        return patiently(lambda: self._write(epoch, objects, ctx))

    def _write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        with self._catalog() as catalog:
            table = catalog.load_table(self._target.table)
            recorded = _recorded(table, ctx)
            check_fence(recorded, ctx)
            if recorded.epoch >= epoch:
                return False
            rows = self.reader(objects)
            # PyIceberg takes a stream for tables without partitions only.
            _append(table, rows if table.spec().is_unpartitioned() else rows.read_all(), epoch, ctx)
        return True

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        return patiently(lambda: self._take_back(after, ctx))

    def _take_back(self, after: int, ctx: OperatorContext) -> int:
        """One snapshot, without the files that the later epochs' snapshots added. Other writers' files stay."""
        with self._catalog() as catalog:
            table = catalog.load_table(self._target.table)
            recorded = _recorded(table, ctx)
            check_fence(recorded, ctx)
            if recorded.epoch <= after:
                return 0
            later = later_snapshots(table, ctx, after)
            files = files_of(table, ctx, later)
            _commit_alone(table)
            with table.transaction() as change:
                said = {**_told(ctx, after), TAKEN_BACK: "true"}
                with change.update_snapshot(snapshot_properties=said).overwrite() as update:
                    for file in files:
                        update.delete_data_file(file)
                change.set_properties(_numbers(ctx, after))
        return len({entry.epoch for entry in later})

    def _take_over(self, ctx: OperatorContext) -> None:
        assert self._schema is not None
        name = self._target.table
        with self._catalog() as catalog:
            table = catalog.create_table_if_not_exists(name, schema=self._schema)
            recorded = _recorded(table, ctx)
            remedy = f"If its rows may stay, remove the property {_property(ctx, 'epoch')} of table {name}"
            check_life(recorded, ctx, remedy=remedy)
            if recorded.generation < ctx.job.generation:
                # A snapshot without rows: an older driver's commit, begun before it, fails now.
                _append(table, table.schema().as_arrow().empty_table(), recorded.epoch, ctx)

    def _catalog(self) -> Catalog:
        given = dict(self._target.catalog)
        return load_catalog(given.pop("name", "default"), **given)

    def _found(self) -> Table | None:
        """The table, if it is there, and a clear word if that cannot be known."""
        name = self._target.table
        namespace = name.rpartition(".")[0]
        try:
            with self._catalog() as catalog:
                if namespace and catalog.namespace_exists(namespace):
                    return catalog.load_table(name)
        except NoSuchTableError:
            return None
        except Exception as error:
            raise explained(error, "the Iceberg catalog") from error
        raise OutsideError(f"Iceberg table {name}: the catalog has no namespace {namespace!r}, make it first")

    def _check(self, stream: pa.Schema) -> None:
        name, table = self._target.table, self._found()
        if table is None:
            return
        found = {one.name: one for one in table.schema().fields}
        if unknown := [column for column in stream.names if column not in found]:
            raise OutsideError(
                f"Iceberg table {name} has no column for {', '.join(unknown)}; it has {', '.join(found)}"
            )
        if missing := [key for key, one in found.items() if one.required and key not in stream.names]:
            raise OutsideError(f"Iceberg table {name} needs {', '.join(missing)}, which the stream has not")
        for one in pyarrow_to_schema(stream, name_mapping=table.schema().name_mapping).fields:
            if one.field_type != found[one.name].field_type:
                raise OutsideError(
                    f"column {one.name} is {one.field_type}, and Iceberg table {name} has it as "
                    f"{found[one.name].field_type}: cast it"
                )


def _append(table: Table, rows: pa.Table | pa.RecordBatchReader, epoch: int, ctx: OperatorContext) -> None:
    _commit_alone(table)
    with table.transaction() as change:
        change.append(rows, snapshot_properties=_told(ctx, epoch))
        change.set_properties(_numbers(ctx, epoch))


def _commit_alone(table: Table) -> None:
    """PyIceberg would put our snapshot on top of whatever came in between, also on the same epoch of another driver.
    This changes what was read, not the table."""
    table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"


def _told(ctx: OperatorContext, epoch: int) -> dict[str, str]:
    """What a snapshot says of itself."""
    return {JOB: ctx.job.name, OPERATOR: ctx.name, EPOCH: str(epoch)}


def _numbers(ctx: OperatorContext, epoch: int) -> dict[str, str]:
    return {_property(ctx, "epoch"): str(epoch), _property(ctx, "generation"): str(ctx.job.generation)}


def _property(ctx: OperatorContext, what: str) -> str:
    return f"epochal.{ctx.job.name.replace('/', '.')}.{ctx.name}.{what}"


def _recorded(table: Table, ctx: OperatorContext) -> LedgerState:
    epoch, generation = (int(table.properties.get(_property(ctx, what), 0)) for what in ("epoch", "generation"))
    return LedgerState(epoch=epoch, generation=generation)
