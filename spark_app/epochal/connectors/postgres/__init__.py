"""A table of PostgreSQL."""

from collections.abc import Sequence
from typing import Literal

from epochal.connectors.connector import EXACTLY_ONCE, Connector, Option, Promise, TakingBack, Writes
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.stream_end import StreamEnd, needs_extra
from epochal.runtime.errors import PipelineError


def _write(stream: "Postgres", name: str, table: DeclaredTable) -> None:
    """A PRIMARY KEY replaces the row that has the same key."""
    stream.to_postgres(
        name,
        table.options["dsn"],
        table.options["table"],
        mode="upsert" if table.primary_key else "append",
        keys=table.primary_key,
    )


class Postgres(StreamEnd):
    _connector = Connector(
        name="postgres",
        title="PostgreSQL",
        writes=Writes(
            method="to_postgres",
            table=_write,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="rows and epoch are one transaction",
                tests=("connectors/test_postgres.py", "exactly_once/test_connectors.py"),
            ),
            taking_back=(
                TakingBack(
                    case="append",
                    able=True,
                    how="deletes the rows by the transaction that inserted them (`xmin`), in one transaction",
                    refused_if="some of them were changed or deleted; the epochs are older than the latest 10,000, or "
                    "were written by an older release",
                ),
                TakingBack(case="`upsert`", how="the values that were replaced are not kept"),
            ),
        ),
        options={
            "dsn": Option("the connection string, such as postgresql://writer@db:5432/shop", required=True),
            "table": Option("the table that rows are written to", required=True),
        },
        extra="postgres",
    )

    def to_postgres(
        self,
        name: str,
        dsn: str,
        table: str,
        *,
        mode: Literal["append", "upsert"] = "append",
        keys: Sequence[str] = (),
    ) -> None:
        """A table of PostgreSQL, exactly once: each epoch is one transaction, which also notes the epoch in the table
        ``epochal_epochs`` beside the target. ``upsert`` replaces the row that has the same ``keys``.

        Needs the extra ``postgres``. The table must exist. A password is better in ``PGPASSWORD`` or a passfile than
        in ``dsn``.
        """
        if mode not in ("append", "upsert") or (mode == "upsert") != bool(keys):
            raise PipelineError(f"operator {name!r}: give mode='append', or mode='upsert' with keys=[…]")
        with needs_extra("postgres", name):
            from epochal.connectors.postgres.sink import PostgresSink
            from epochal.connectors.postgres.target import PostgresTarget
        target = PostgresTarget(dsn=dsn, table=table, keys=tuple(keys))
        self.to(name, PostgresSink(target, self._store()))
