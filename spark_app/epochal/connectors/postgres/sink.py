"""Rows into a table of PostgreSQL, exactly once: an epoch's rows and its number are one transaction."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from epochal.connectors.commit_ledger import LedgerSink, LedgerState, check_fence, check_life, patiently
from epochal.connectors.declared_table import quoted
from epochal.connectors.postgres.log import CommitLog, Database
from epochal.connectors.postgres.target import PostgresTarget, connect
from epochal.protocol.control import StorageConfig
from epochal.protocol.faults import worth_waiting
from epochal.runtime.dataflow.operator import MAIN, OperatorContext
from epochal.runtime.errors import OutsideError, explained

EPOCHS = "epochal_epochs"
"""The table, beside the target, in which each sink has a row."""

_MAKE_EPOCHS = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} (job text NOT NULL, operator text NOT NULL, epoch bigint NOT NULL, "
    "generation bigint NOT NULL, committed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, operator))"
)
_STAGE = sql.Identifier("epochal_rows")


class PostgresSink(LedgerSink):
    """Copies an epoch's rows into the table, or merges them by key, over one connection of the driver."""

    def __init__(self, target: PostgresTarget, storage: StorageConfig) -> None:
        super().__init__(storage)
        self._target = target
        self._epochs = sql.Identifier(*target.schema, EPOCHS)
        self._as_json: frozenset[str] = frozenset()
        self._log = CommitLog(target)
        self.why_not_taken_back = (
            "an upsert has replaced the values of earlier epochs, and these are not kept" if target.keys else ""
        )

    @property
    def can_take_back(self) -> bool:  # type: ignore[override]
        return not self.why_not_taken_back

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        self._as_json = self._target.check(frames[0].schema)
        return {MAIN: frames[0]}

    def open(self, ctx: OperatorContext) -> None:
        """Take over from older generations: from here on they can commit nothing here."""
        try:
            self._make_tables()
            with connect(self._target) as db:
                recorded = self._lock_row(db, ctx)
                check_life(recorded, ctx, remedy=self._remedy(ctx))
                if self.can_take_back:
                    self._log.begin(db, ctx, recorded.epoch)
                change = sql.SQL("UPDATE {} SET generation = %s WHERE job = %s AND operator = %s")
                db.execute(change.format(self._epochs), (ctx.job.generation, ctx.job.name, ctx.name))
        except psycopg.Error as error:
            raise explained(error, str(self._target)) from error

    def encode(self, frame: DataFrame) -> DataFrame:
        columns = {name: F.col(quoted(name)) for name in frame.columns}
        as_json = {name: F.to_json(columns[name]).alias(name) for name in self._as_json}
        return frame.select(*(columns | as_json).values())

    def write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        # Also after an answer to COMMIT that was lost: the next try finds the epoch there.
        return patiently(lambda: self._write(epoch, objects, ctx))

    def _write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        """One transaction.

        1. Lock this sink's row; is the epoch there, or a newer generation?
        2. The rows, and a note which they are.
        3. The epoch's number. Then COMMIT.
        """
        with connect(self._target) as db:
            # Step 1
            recorded = self._lock_row(db, ctx)
            check_fence(recorded, ctx)
            if recorded.epoch >= epoch:
                return False
            # Step 2
            if self._target.keys:
                self._merge(db, objects)
            else:
                rows = self._copy(db, objects, self._target.identifier)
                if self.can_take_back:
                    self._log.note(db, ctx, epoch, rows)
            # Step 3
            self._set_epoch(db, ctx, epoch)
        return True

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        return patiently(lambda: self._take_back(after, ctx))

    def _take_back(self, after: int, ctx: OperatorContext) -> int:
        """One transaction: whoever is cut off has changed nothing, and whoever comes again finds nothing to do."""
        try:
            with connect(self._target) as db:
                recorded = self._lock_row(db, ctx)
                check_fence(recorded, ctx)
                if recorded.epoch <= after:
                    return 0
                epochs = self._log.take_back(db, ctx, after)
                self._set_epoch(db, ctx, self._log.newest(db, ctx))
                return epochs
        except psycopg.Error as error:
            if worth_waiting(error):
                raise
            raise explained(error, str(self._target)) from error

    def _set_epoch(self, db: Database, ctx: OperatorContext, epoch: int) -> None:
        change = sql.SQL("UPDATE {} SET epoch = %s, committed_at = now() WHERE job = %s AND operator = %s")
        db.execute(change.format(self._epochs), (epoch, ctx.job.name, ctx.name))

    def _copy(self, db: Database, objects: list[str], into: sql.Identifier) -> int:
        """Returns how many rows the table took."""
        names = self.schema(objects).names
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        with db.cursor() as cursor:
            with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(into, columns)) as copy:
                for batch in self.batches(objects):
                    values: list[list[Any]] = [batch.column(name).to_pylist() for name in names]
                    for row in zip(*values, strict=True):
                        copy.write_row(row)
            return cursor.rowcount

    def _merge(self, db: Database, objects: list[str]) -> None:
        """Of rows with equal keys the last one counts: PostgreSQL changes no row twice in one statement."""
        names = self.schema(objects).names
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        keys = sql.SQL(", ").join(map(sql.Identifier, self._target.keys))
        stage = sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        db.execute(stage.format(_STAGE, columns, self._target.identifier))
        number = sql.SQL("ALTER TABLE {} ADD COLUMN epochal_number bigint GENERATED ALWAYS AS IDENTITY")
        db.execute(number.format(_STAGE))
        self._copy(db, objects, _STAGE)
        merge = sql.SQL(
            "INSERT INTO {target} ({columns}) SELECT {columns} FROM (SELECT DISTINCT ON ({keys}) * FROM {stage} "
            "ORDER BY {keys}, epochal_number DESC) AS newest ON CONFLICT ({keys}) {change}"
        )
        change = _change([name for name in names if name not in self._target.keys])
        db.execute(
            merge.format(target=self._target.identifier, columns=columns, keys=keys, stage=_STAGE, change=change)
        )

    # --- the epoch table ---

    def _make_tables(self) -> None:
        with connect(self._target) as db:
            # Two jobs that start together would both see that the table is missing.
            db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (EPOCHS,))
            found = db.execute("SELECT to_regclass(%s)", (self._epochs.as_string(db),)).fetchone()
            if found == (None,):
                try:
                    db.execute(_MAKE_EPOCHS.format(self._epochs))
                except psycopg.errors.InsufficientPrivilege as error:
                    statement = _MAKE_EPOCHS.format(self._epochs).as_string(db)
                    raise OutsideError(
                        f"{self._target} has no right to create the table that records epochs; create it as another "
                        f"user, and grant SELECT, INSERT and UPDATE on it: {statement}"
                    ) from error
            if self.can_take_back:
                self.why_not_taken_back = self._log.make(db)

    def _lock_row(self, db: Database, ctx: OperatorContext) -> LedgerState:
        key = ctx.job.name, ctx.name
        make = sql.SQL("INSERT INTO {} (job, operator, epoch, generation) VALUES (%s, %s, 0, 0) ON CONFLICT DO NOTHING")
        db.execute(make.format(self._epochs), key)
        read = sql.SQL("SELECT epoch, generation FROM {} WHERE job = %s AND operator = %s FOR UPDATE")
        row = db.execute(read.format(self._epochs), key).fetchone()
        assert row is not None
        return LedgerState(epoch=row[0], generation=row[1])

    def _remedy(self, ctx: OperatorContext) -> str:
        table = ".".join((*self._target.schema, EPOCHS))
        return (
            "If its rows may stay, forget the epoch: "
            f"DELETE FROM {table} WHERE job = '{ctx.job.name}' AND operator = '{ctx.name}'"
        )


def _change(columns: Sequence[str]) -> sql.Composable:
    if not columns:
        return sql.SQL("DO NOTHING")
    each = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in columns]
    return sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(each))
