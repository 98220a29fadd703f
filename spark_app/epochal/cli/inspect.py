"""``epochal inspect``: any table of any epoch, with SQL over it. State is open Parquet, so this needs no Spark."""

import csv
import io
import json
import re
import sys
from collections.abc import Iterable
from typing import Any

import click
from rich.text import Text

from epochal.cli.epochs import chosen
from epochal.cli.errors import UserError
from epochal.cli.output import console, moment, plain_table
from epochal.cli.targets import Target, target_options
from epochal.cli.view import size
from epochal.protocol.documents import LATEST_KEY, Manifest, StoredTable

_FORMATS = ("table", "csv", "json")


@click.command("inspect")
@target_options
@click.option("--epoch", type=click.IntRange(min=1), help="Epoch to read. Defaults to the latest.")
@click.option("--savepoint", help="Savepoint to read instead of an epoch.")
@click.option("--operator", help="Show a table of this operator.")
@click.option("--table", "table_name", help="Table of the operator. Not needed if it has only one.")
@click.option("--sql", help='SQL query over tables named OPERATOR.TABLE, such as "SELECT count(*) FROM total.sums".')
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Rows to show without --sql.")
@click.option("--format", "how", type=click.Choice(_FORMATS), default="table", show_default=True)
def inspect_state(
    target: Target,
    epoch: int | None,
    savepoint: str | None,
    operator: str | None,
    table_name: str | None,
    sql: str | None,
    limit: int,
    how: str,
) -> None:
    """Show the state of an epoch.

    TARGET is a job's manifest file, its name on the cluster, or a store's URI. By default the command lists the
    tables of the latest epoch. --operator shows the rows of a table, --sql the result of any query over the
    tables of that epoch.

    \b
    epochal inspect job.yaml
    epochal inspect s3://bucket/prefix --job words --epoch 12 --operator counts
    epochal inspect job.yaml --sql "SELECT key, value FROM counts.totals ORDER BY value DESC LIMIT 5"
    """
    manifest = chosen(target, epoch, savepoint)
    if sql is not None:
        _print(*query(target, manifest, sql), how)
    elif operator is not None:
        name = _only_table(manifest, operator, table_name)
        _print(*query(target, manifest, f'SELECT * FROM "{operator}"."{name}" LIMIT {limit}'), how)
    else:
        _overview(manifest)


def _only_table(manifest: Manifest, operator: str, table: str | None) -> str:
    if operator not in manifest.operators:
        raise UserError(f"there is no operator {operator}: epoch {manifest.epoch} has {', '.join(manifest.operators)}")
    tables = manifest.operators[operator].tables
    if table is None and len(tables) == 1:
        return next(iter(tables))
    if table not in tables:
        raise UserError(f"operator {operator} has the tables: {', '.join(tables) or 'none'}; name one with --table")
    return table


def _overview(manifest: Manifest) -> None:
    click.echo(
        f"Epoch {manifest.epoch} of {manifest.namespace}/{manifest.job}, generation {manifest.generation}, "
        f"{moment(manifest.timestamp)}" + (", then stop" if manifest.then_stop else "")
    )
    table = plain_table("operator", "table", "kind", "runs", "rows", "size", "note")
    for name, state in manifest.operators.items():
        notes = []
        if state.position is not None:
            notes.append(f"batch {state.position.batch}")
        if state.watermark is not None:
            notes.append(f"watermark {moment(state.watermark)}")
        if state.transaction is not None:
            notes.append("two-phase")
        if state.carried_from is not None:
            notes.append(f"carried from epoch {state.carried_from}")
        note = ", ".join(notes)
        if not state.tables:
            table.add_row(name, "", "", "", "", "", note)
        for table_name, content in state.tables.items():
            parts = [part for run in content.runs for part in run.parts]
            rows, written = sum(part.rows for part in parts), sum(part.bytes for part in parts)
            table.add_row(name, table_name, content.kind, str(len(content.runs)), f"{rows:,}", size(written), note)
    console().print(table)


def query(target: Target, manifest: Manifest, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run SQL over the tables of an epoch. Only those that the query names are read."""
    try:
        import duckdb
    except ImportError as error:
        raise UserError("this needs duckdb: pip install 'epochal[inspect]'") from error
    connection = duckdb.connect()
    try:
        for operator, state in manifest.operators.items():
            if not _named(operator, sql):
                continue
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{operator}"')
            for name, table in state.tables.items():
                if _named(name, sql):
                    rows = read_table(target, table)
                    connection.register("incoming", rows)
                    connection.execute(f'CREATE TABLE "{operator}"."{name}" AS SELECT * FROM incoming')
                    connection.unregister("incoming")
        answer = connection.execute(sql)
        columns = [column[0] for column in answer.description or ()]
        return columns, answer.fetchall()
    except duckdb.Error as error:
        tables = [f"{operator}.{name}" for operator, state in manifest.operators.items() for name in state.tables]
        first = str(error).splitlines()[0]
        raise UserError(f"{first} (tables of epoch {manifest.epoch}: {', '.join(tables) or 'none'})") from error
    finally:
        connection.close()


def _named(name: str, sql: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", sql, re.IGNORECASE) is not None


def read_table(target: Target, table: StoredTable) -> Any:
    """A table's content as one Arrow table. Runs may differ in columns where a pipeline was changed."""
    import pyarrow
    from pyarrow import parquet

    runs = []
    for number, run in enumerate(table.runs):
        for part in run.parts:
            rows = parquet.read_table(io.BytesIO(target.store.get(part.object)))
            runs.append(rows.append_column(_RUN, pyarrow.nulls(rows.num_rows, pyarrow.int64()).fill_null(number)))
    if not runs:
        raise UserError("the table is empty in this epoch")
    together = pyarrow.concat_tables(runs, promote_options="permissive")
    return (_latest(together) if table.kind == "Latest" else together).drop_columns([_RUN])


_RUN = "__run"


def _latest(rows: Any) -> Any:
    """Of each key the row of the newest run that has it."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("runs", rows)
        newest = f"row_number() OVER (PARTITION BY {LATEST_KEY} ORDER BY {_RUN} DESC) = 1"
        latest = connection.sql(f"SELECT * FROM runs QUALIFY {newest}")
        assert latest is not None
        return latest.to_arrow_table()


def _print(columns: list[str], rows: Iterable[tuple[Any, ...]], how: str) -> None:
    match how:
        case "csv":
            writer = csv.writer(sys.stdout)
            writer.writerow(columns)
            writer.writerows(rows)
        case "json":
            for row in rows:
                click.echo(json.dumps(dict(zip(columns, row, strict=True)), default=str))
        case _:
            table = plain_table(*columns)
            for row in rows:
                table.add_row(*(Text("" if value is None else str(value)) for value in row))
            console().print(table)
