"""Rows into a Delta Lake table, exactly once: an epoch is one Delta transaction, which carries the epoch's number."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from epochal.connectors.commit_ledger import LedgerSink, LedgerState, check_fence, check_life, patiently
from epochal.connectors.delta.log import DeltaLog
from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.operator import MAIN, OperatorContext
from epochal.runtime.errors import OutsideError, PipelineError, explained


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTarget:
    """A table, made on the first start if it is not there. ``options`` may hold keys of the store."""

    uri: str
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


class DeltaSink(LedgerSink):
    """Appends an epoch's rows. Beside them the commit has two application transactions (``txn`` in the Delta log): the
    epoch, and the generation. Delta refuses a commit whose application transaction somebody else has changed since the
    table was read, so of two drivers one loses, and looks again."""

    can_take_back = True

    def __init__(self, target: DeltaTarget, storage: StorageConfig) -> None:
        super().__init__(storage)
        self._target = target
        self._schema: pa.Schema | None = None

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        self._schema = to_arrow_schema(frames[0].schema, timezone="UTC")
        self._check(Schema.from_arrow(self._schema))
        return {MAIN: frames[0]}

    def open(self, ctx: OperatorContext) -> None:
        """Take over from older generations: from here on they can commit nothing here."""
        patiently(lambda: self._take_over(ctx))

    def write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        return patiently(lambda: self._write(epoch, objects, ctx))

    def _write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        table = self._read()
        recorded = _recorded(table, ctx)
        check_fence(recorded, ctx)
        if recorded.epoch >= epoch:
            return False
        write_deltalake(table, self.reader(objects), mode="append", commit_properties=_properties(ctx, epoch))
        return True

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        return patiently(lambda: self._take_back(after, ctx))

    def _take_back(self, after: int, ctx: OperatorContext) -> int:
        """One Delta transaction, which removes the files that later epochs added. Other writers' files stay."""
        table = self._read()
        recorded = _recorded(table, ctx)
        check_fence(recorded, ctx)
        if recorded.epoch <= after:
            return 0
        log = DeltaLog(table, self._target.uri, self._target.options, _epoch_id(ctx))
        return log.take_back(after, _transactions(ctx, after), _told(ctx, after))

    def _take_over(self, ctx: OperatorContext) -> None:
        table = self._made()
        recorded = _recorded(table, ctx)
        remedy = f"Give the operator another name, or write to another table than {self._target.uri}"
        check_life(recorded, ctx, remedy=remedy)
        if recorded.generation < ctx.job.generation:
            properties = _properties(ctx, recorded.epoch)
            table.create_write_transaction([], mode="append", schema=table.schema(), commit_properties=properties)

    def _made(self) -> DeltaTable:
        try:
            return self._read()
        except TableNotFoundError:
            assert self._schema is not None
            return DeltaTable.create(
                self._target.uri,
                schema=self._schema,
                mode="ignore",
                partition_by=list(self._target.partition_by),
                storage_options=dict(self._target.options),
            )

    def _read(self) -> DeltaTable:
        return DeltaTable(self._target.uri, storage_options=dict(self._target.options))

    def _check(self, stream: Schema) -> None:
        columns = {one.name: one.type for one in stream.fields}
        if unknown := [name for name in self._target.partition_by if name not in columns]:
            raise PipelineError(f"partition_by names {', '.join(unknown)}, and the stream has {', '.join(columns)}")
        try:
            table = self._read()
        except TableNotFoundError:
            return
        except Exception as error:
            raise explained(error, f"Delta table {self._target.uri}") from error
        found = {one.name: one.type for one in table.schema().fields}
        if columns.keys() != found.keys():
            raise OutsideError(
                f"Delta table {self._target.uri} has the columns {', '.join(found)}, "
                f"and the stream {', '.join(columns)}"
            )
        for name, kind in columns.items():
            if kind != found[name]:
                raise OutsideError(
                    f"column {name} is {_told_type(kind)}, and Delta table {self._target.uri} has it as "
                    f"{_told_type(found[name])}: cast it"
                )
        if self._target.partition_by and list(self._target.partition_by) != table.metadata().partition_columns:
            raise OutsideError(
                f"Delta table {self._target.uri} is partitioned by {table.metadata().partition_columns}, "
                f"not by {list(self._target.partition_by)}"
            )


def _epoch_id(ctx: OperatorContext) -> str:
    return f"epochal/{ctx.job.name}/{ctx.name}"


def _generation_id(ctx: OperatorContext) -> str:
    return f"{_epoch_id(ctx)}/generation"


def _recorded(table: DeltaTable, ctx: OperatorContext) -> LedgerState:
    epoch, generation = (table.transaction_version(name) or 0 for name in (_epoch_id(ctx), _generation_id(ctx)))
    return LedgerState(epoch=epoch, generation=generation)


def _properties(ctx: OperatorContext, epoch: int) -> CommitProperties:
    transactions = [Transaction(name, version) for name, version in _transactions(ctx, epoch).items()]
    return CommitProperties(app_transactions=transactions, custom_metadata=_told(ctx, epoch))


def _transactions(ctx: OperatorContext, epoch: int) -> dict[str, int]:
    return {_epoch_id(ctx): epoch, _generation_id(ctx): ctx.job.generation}


def _told(ctx: OperatorContext, epoch: int) -> dict[str, str]:
    """What a commit says of itself to people: what counts are its transactions."""
    return {"epochal.job": ctx.job.name, "epochal.epoch": str(epoch)}


def _told_type(kind: object) -> str:
    return str(getattr(kind, "type", kind))
