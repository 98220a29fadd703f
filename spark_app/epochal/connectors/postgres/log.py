"""Which rows of a table an epoch added, so that they can be taken back.

An epoch is one transaction, and PostgreSQL keeps with each row the transaction that inserted it (``xmin``). So it is
enough to note the transaction of each epoch: the target needs no column of ours.
"""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from epochal.connectors.postgres.target import PostgresTarget
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.errors import PipelineError

COMMITS = "epochal_commits"
"""The table, beside the target, in which each epoch has a row."""

MOST_EPOCHS = 10_000
"""So many epochs are noted of each sink."""

# A row without a transaction: of that epoch and those before it nothing is known.
_MAKE = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} (job text NOT NULL, operator text NOT NULL, epoch bigint NOT NULL, "
    "transaction bigint, rows bigint NOT NULL, PRIMARY KEY (job, operator, epoch))"
)
_OF_SINK = sql.SQL("job = %s AND operator = %s")

Database = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class CommitLog:
    target: PostgresTarget

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier(*self.target.schema, COMMITS)

    def make(self, db: Database) -> str:
        """Make the table if it is not there. Returns why it cannot be made; empty if it is there."""
        found = db.execute("SELECT to_regclass(%s)", (self.table.as_string(db),)).fetchone()
        if found != (None,):
            return ""
        statement = _MAKE.format(self.table)
        try:
            with db.transaction():
                db.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return (
                f"{self.target} has no right to create the table that records what each epoch added; create it as "
                f"another user, and grant SELECT, INSERT, UPDATE and DELETE on it: {statement.as_string(db)}"
            )
        return ""

    def begin(self, db: Database, ctx: OperatorContext, recorded: int) -> None:
        """Called when a generation starts, with the newest epoch that the target has: if that was noted by nobody (an
        older version does not), nothing is known of the epochs up to it."""
        if self.newest(db, ctx) < recorded:
            self._forget(db, ctx, recorded)

    def newest(self, db: Database, ctx: OperatorContext) -> int:
        """The newest epoch that is noted; 0 if none is."""
        return self._ask(db, "SELECT max(epoch) FROM {} WHERE {}", ctx)[0][0] or 0

    def note(self, db: Database, ctx: OperatorContext, epoch: int, rows: int) -> None:
        """Within the transaction that adds the epoch's rows."""
        note = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, txid_current(), %s)")
        db.execute(note.format(self.table), (ctx.job.name, ctx.name, epoch, rows))
        oldest = sql.SQL("SELECT epoch FROM {} WHERE {} ORDER BY epoch DESC OFFSET %s LIMIT 1")
        found = db.execute(oldest.format(self.table, _OF_SINK), (ctx.job.name, ctx.name, MOST_EPOCHS)).fetchone()
        if found is not None:
            self._forget(db, ctx, found[0])

    def _forget(self, db: Database, ctx: OperatorContext, until: int) -> None:
        """Of this epoch and those before it nothing is known from now on."""
        gone = sql.SQL("DELETE FROM {} WHERE {} AND epoch <= %s")
        db.execute(gone.format(self.table, _OF_SINK), (ctx.job.name, ctx.name, until))
        floor = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, NULL, 0)")
        db.execute(floor.format(self.table), (ctx.job.name, ctx.name, until))

    def take_back(self, db: Database, ctx: OperatorContext, after: int) -> int:
        """Delete the rows of epochs after this one, all or none. Returns how many epochs there were."""
        noted = self._ask(db, "SELECT epoch, transaction, rows FROM {} WHERE {} AND epoch > %s", ctx, after)
        if unknown := [epoch for epoch, transaction, _ in noted if transaction is None]:
            raise PipelineError(
                f"operator {ctx.name!r}: which rows of table {self.target.table} are of epochs {after + 1} to "
                f"{unknown[0]} is not recorded (any more), so it cannot be taken back"
            )
        # The numbers that rows carry are the lower 32 bits.
        transactions = [str(transaction & 0xFFFFFFFF) for _, transaction, _ in noted]
        delete = sql.SQL("DELETE FROM {} WHERE xmin::text = ANY (%s)").format(self.target.identifier)
        found, expected = db.execute(delete, (transactions,)).rowcount, sum(rows for _, _, rows in noted)
        if found != expected:
            epochs = ", ".join(str(epoch) for epoch, _, _ in noted)
            raise PipelineError(
                f"operator {ctx.name!r}: epochs {epochs} added {expected} rows to table {self.target.table}, and "
                f"{found} of them are unchanged: the others were changed or deleted, so none was taken back. "
                "Remove what these epochs added yourself, or start without taking back"
            )
        self._ask(db, "DELETE FROM {} WHERE {} AND epoch > %s RETURNING epoch", ctx, after)
        return len(noted)

    def _ask(self, db: Database, statement: str, ctx: OperatorContext, *more: int) -> list[tuple[Any, ...]]:
        asked = sql.SQL(statement).format(self.table, _OF_SINK)
        return db.execute(asked, (ctx.job.name, ctx.name, *more)).fetchall()
