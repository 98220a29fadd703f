"""The table that rows go to, and whether they can: looked at before the job starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import types as T

from epochal.runtime.errors import OutsideError, PipelineError, explained

CONNECT_SECONDS = 10
SESSION = (
    # A driver whose machine is gone must not hold its locks for hours: PostgreSQL's own patience is that of TCP.
    "SET tcp_keepalives_idle = 30",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    "SET lock_timeout = '60s'",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTarget:
    """A table and how to reach it. ``keys`` make it an upsert; without, rows are appended."""

    dsn: str = field(repr=False)
    table: str
    keys: tuple[str, ...] = ()

    @property
    def schema(self) -> tuple[str, ...]:
        return tuple(self.table.split(".")[:-1])

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    def __str__(self) -> str:
        """Whom, where: never the password."""
        known = _parsed(self.dsn)
        host, port = known.get("host", "localhost"), known.get("port", "5432")
        return f"{known.get('user', 'the default user')} at PostgreSQL {host}:{port}/{known.get('dbname', '')}"

    def check(self, schema: T.StructType) -> frozenset[str]:
        """See that rows of this schema fit the table. Returns the columns that it takes as JSON."""
        try:
            with connect(self) as db:
                return _check(db, self, schema)
        except psycopg.Error as error:
            raise explained(error, str(self)) from error


@dataclass(frozen=True, slots=True)
class _Column:
    type: str
    category: str
    needed: bool
    generated: bool


def connect(target: PostgresTarget) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection that is one transaction: committed when its block ends, rolled back by an error."""
    given = _parsed(target.dsn)
    defaults = {"connect_timeout": CONNECT_SECONDS, "application_name": "epochal"}
    db = psycopg.connect(target.dsn, **{key: value for key, value in defaults.items() if key not in given})  # type: ignore[arg-type]
    try:
        for setting in SESSION:
            db.execute(setting)
    except BaseException:
        db.close()
        raise
    return db


def _parsed(dsn: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(dsn)
    except psycopg.Error:
        # PostgreSQL's own words would quote what it did not understand, and that may be the password.
        raise PipelineError(
            "invalid dsn: use postgresql://user@host:5432/database, and the password in PGPASSWORD or a passfile"
        ) from None


def _check(db: psycopg.Connection, target: PostgresTarget, schema: T.StructType) -> frozenset[str]:
    found = _columns(db, target)
    if not found:
        columns = ", ".join(f"{name.name} {_fitting(name.dataType)}" for name in schema)
        keys = f", PRIMARY KEY ({', '.join(target.keys)})" if target.keys else ""
        raise OutsideError(f"{target} has no table {target.table}: CREATE TABLE {target.table} ({columns}{keys})")
    unknown = [name for name in schema.names if name not in found or found[name].generated]
    if unknown:
        raise OutsideError(
            f"table {target.table} has no column for {', '.join(unknown)}; it takes "
            f"{', '.join(name for name, column in found.items() if not column.generated)}"
        )
    if missing := [name for name, column in found.items() if column.needed and name not in schema.names]:
        raise OutsideError(
            f"table {target.table} needs {', '.join(missing)}, which the stream has not: it has "
            f"{', '.join(schema.names)}"
        )
    for one in schema:
        if not _fits(one.dataType, found[one.name]):
            raise OutsideError(
                f"column {one.name} is {one.dataType.simpleString()}, and table {target.table} has it as "
                f"{found[one.name].type}: cast one of them (for example to {_fitting(one.dataType)})"
            )
    if target.keys:
        _check_keys(db, target, schema.names)
    return frozenset(
        one.name for one in schema if isinstance(one.dataType, _NESTED) and found[one.name].category != "A"
    )


def _columns(db: psycopg.Connection, target: PostgresTarget) -> dict[str, _Column]:
    rows = db.execute(
        "SELECT attname, format_type(atttypid, atttypmod), typcategory, attnotnull AND NOT atthasdef "
        "AND attidentity = '', attgenerated <> '' FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (target.identifier.as_string(db),),
    )
    return {name: _Column(kind, category, needed, generated) for name, kind, category, needed, generated in rows}


def _check_keys(db: psycopg.Connection, target: PostgresTarget, columns: Sequence[str]) -> None:
    if unknown := [key for key in target.keys if key not in columns]:
        raise PipelineError(f"the stream has no key column {', '.join(unknown)}: it has {', '.join(columns)}")
    # to_jsonb: the column for NULLS NOT DISTINCT is there since PostgreSQL 15 only.
    rows = db.execute(
        "SELECT array_agg(attname::text ORDER BY attname), bool_and(attnotnull) OR "
        "coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false) FROM pg_index i JOIN pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) "
        "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL "
        "GROUP BY i.indexrelid, to_jsonb(i)",
        (target.identifier.as_string(db),),
    ).fetchall()
    fitting = [nulls_equal for names, nulls_equal in rows if names == sorted(target.keys)]
    keys = ", ".join(target.keys)
    if not fitting:
        raise OutsideError(
            f"an upsert by {keys} needs a unique index on just these columns: "
            f"ALTER TABLE {target.table} ADD PRIMARY KEY ({keys})"
        )
    if not any(fitting):
        raise OutsideError(
            f"a key of {keys} may be NULL in table {target.table}, and NULLs are not equal there: such a row would be "
            "inserted with every update. Declare the columns NOT NULL, or the index NULLS NOT DISTINCT (PostgreSQL 15)"
        )


# --- types ---

_NESTED = (T.ArrayType, T.MapType, T.StructType)
_CATEGORIES: dict[type[T.DataType], str] = {
    T.NumericType: "NS",
    T.BooleanType: "BS",
    T.DateType: "DS",
    T.TimestampType: "DS",
    T.TimestampNTZType: "DS",
    T.MapType: "S",
    T.StructType: "S",
    T.ArrayType: "AS",
}
"""Which of PostgreSQL's categories (``pg_type.typcategory``) take a type. Text is read by any type, as in SQL."""

_FITTING: dict[type[T.DataType], str] = {
    T.StringType: "text",
    T.LongType: "bigint",
    T.IntegerType: "integer",
    T.ShortType: "smallint",
    T.ByteType: "smallint",
    T.DoubleType: "double precision",
    T.FloatType: "real",
    T.DecimalType: "numeric",
    T.BooleanType: "boolean",
    T.DateType: "date",
    T.TimestampType: "timestamptz",
    T.TimestampNTZType: "timestamp",
    T.BinaryType: "bytea",
}


def _fits(kind: T.DataType, column: _Column) -> bool:
    if isinstance(kind, T.BinaryType):
        return column.type == "bytea"
    if isinstance(kind, _NESTED) and column.type in ("json", "jsonb"):
        return True
    return all(column.category in taken for known, taken in _CATEGORIES.items() if isinstance(kind, known))


def _fitting(kind: T.DataType) -> str:
    return next((name for known, name in _FITTING.items() if isinstance(kind, known)), "jsonb")
