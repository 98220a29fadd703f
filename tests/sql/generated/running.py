"""Queries as one streaming job, beside Spark and DuckDB over the same rows."""

import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import duckdb
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline, Stream
from epochal.connectors.connector import Connector, Writes
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.registry import CONNECTORS, AllConnectors
from epochal.sql.build import build_sql
from tests.runtime.streaming import FedJob, Rows, batches_of
from tests.sql.generated.data import STREAMS, TABLES
from tests.sql.generated.data import rows as rows_of
from tests.sql.generated.planning import is_planned, query_of
from tests.sql.generated.queries import Query

BATCH = "__batch"
ROWS, MOST = 100, 60


@dataclass(frozen=True, slots=True)
class Difference:
    """A query that gave something else."""

    query: Query
    rows: int
    other: str
    expected: Rows
    found: Rows

    def __str__(self) -> str:
        missing, more = _without(self.expected, self.found), _without(self.found, self.expected)
        return (
            f"a {self.query.shape} that gives other rows than {self.other}:\n{self.query.before}"
            f"{self.query.text.stream}\n"
            f"  again: python -m tests.sql.generated --seed {self.query.seed} --rows {self.rows}\n"
            f"  expected {len(self.expected)} rows, found {len(self.found)}\n"
            f"  missing: {missing[:6]}\n  too much: {more[:6]}"
        )


def _without(some: Rows, others: Rows) -> Rows:
    left = list(others)
    return [row for row in some if not (row in left and left.remove(row) is None)]  # type: ignore[func-returns-value]


class Run:
    """One job of several queries, over rows and batches that the seed ``rows`` makes."""

    def __init__(self, spark: SparkSession, queries: Sequence[Query], directory: Path, *, rows: int) -> None:
        self.spark = spark
        self.queries = queries
        self.chance = random.Random(f"rows {rows}")
        self.directory = directory
        self.seed = rows
        self.rows = {one.name: rows_of(self.chance, ROWS) for one in STREAMS}
        self.job = FedJob(spark, self._build, directory)

    def _build(self, p: Pipeline, job: FedJob) -> None:
        nothing = self.directory / "nothing"
        nothing.mkdir(exist_ok=True)
        p.parameters = {"nothing": str(nothing)}
        text = "\n".join([TABLES, *(query.statements("'connector' = 'collected'") for query in self.queries)])
        collected = Connector(name="collected", writes=Writes(table=self._collect))
        with mock.patch.dict(CONNECTORS, {"collected": collected}):
            build_sql(p, text)

    def _collect(self, stream: AllConnectors, name: str, table: DeclaredTable) -> None:
        """A sink whose rows remember their batch: of a result that changes the last ones count."""
        assert isinstance(stream, Stream)
        stamped = stream.transform(f"{name}-stamp", lambda frame: frame.withColumn(BATCH, F.lit(len(self.job.fed))))
        self.job.collect(name, stamped)

    def play(self, *, losses: int) -> None:
        read = {task for query in self.queries for task in _sources(query)}
        batches = {name: batches_of(ones, self.chance, most=MOST) for name, ones in self.rows.items() if name in read}
        self.job.play(batches, self.chance, losses=losses)

    def differences(self) -> list[Difference]:
        """What came out otherwise than Spark and DuckDB say."""
        for one in STREAMS:
            frame = self.spark.createDataFrame(self.rows[one.name], one.columns)
            frame.createOrReplaceTempView(one.name)
        found = []
        with duckdb.connect() as db:
            for one in STREAMS:
                db.execute(f"CREATE TABLE {one.name} ({one.duck})")
                db.executemany(f"INSERT INTO {one.name} VALUES (?, ?, ?, ?, ?, ?, ?)", self.rows[one.name])
            for query in self.queries:
                found += self._differences(query, db)
        return found

    def _differences(self, query: Query, db: duckdb.DuckDBPyConnection) -> list[Difference]:
        came = self.found(query)
        expected = {"Spark": comparable(self.spark.sql(query.text.batch).collect())}
        if query.text.duck is not None:
            expected["DuckDB"] = comparable(db.sql(query.text.duck.replace("`", '"')).fetchall())
        if query.keys == () and not came:
            # An aggregate of everything says nothing before there is a row; in a batch it says that there is none.
            return []
        return [Difference(query, self.seed, other, them, came) for other, them in expected.items() if them != came]

    def found(self, query: Query) -> Rows:
        """What the job gave in the end."""
        collected = [row for _, rows in sorted(self.job._collected[query.name].items()) for row in rows]
        if query.keys is not None:
            newest: dict[str, int] = {}
            for row in collected:
                key = _key(row, query)
                newest[key] = max(row[BATCH], newest.get(key, 0))
            collected = [row for row in collected if row[BATCH] == newest[_key(row, query)]]
            collected = [row for row in collected if query.nobody is None or row[query.nobody] != 0]
        return comparable(tuple(row)[:-1] for row in collected)


def _key(row: Row, query: Query) -> str:
    assert query.keys is not None
    return repr([_plain(row[name]) for name in query.keys])


def _sources(query: Query) -> list[str]:
    text = f"{query.before} {query.text.stream}"
    return [one.name for one in STREAMS if one.name in text]


def comparable(rows: Any) -> Rows:
    """Rows in an order of their own, numbers by their value: both kinds of zero, and 2 and 2.0, are equal."""
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    match value:
        case bool() | None | str():
            return value
        case int() | float() | Decimal():
            number = float(f"{float(value):.9g}")
            return "NaN" if number != number else round(number, 9) + 0.0
        case datetime():
            return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
        case list() | tuple():
            return tuple(_plain(one) for one in value)
        case _:
            return repr(value)


def pack(number: int, size: int = 10) -> list[Query]:
    """Queries for one job: the first ones of its own seeds that are planned."""
    queries = (query_of(seed) for seed in itertools.count(1000 + 2 * number * size))
    return list(itertools.islice((query for query in queries if is_planned(query)), size))


def run(spark: SparkSession, queries: Sequence[Query], *, rows: int, losses: int = 1) -> list[Difference]:
    """Run the queries as one job and compare; what one of them breaks, it breaks alone."""
    with TemporaryDirectory() as directory:
        try:
            job = Run(spark, queries, Path(directory), rows=rows)
            try:
                job.play(losses=losses)
            except Exception:
                with suppress(Exception):
                    job.job.crash()
                raise
            return job.differences()
        except Exception as error:
            if len(queries) == 1:
                return [Difference(queries[0], rows, f"a job that runs: {error}", [], [])]
    return [found for query in queries for found in run(spark, [query], rows=rows, losses=losses)]


def shrunk(spark: SparkSession, difference: Difference) -> Difference:
    """The same difference of a query with less in it."""
    for smaller in difference.query.smaller():
        for found in run(spark, [smaller], rows=difference.rows):
            return shrunk(spark, found)
    return difference
