"""Kill a job that writes to PostgreSQL, Kafka, Delta Lake, Iceberg and Parquet files at random moments; then ask each
of them, by its own client, what it has.

``EPOCHAL_KILLS`` says how often (``make exactly-once``: 20 times); ``EPOCHAL_SEED`` repeats a choice of moments.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from tests.exactly_once import connectors, data
from tests.exactly_once.killing import KilledJob
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.jars import CONNECTOR, FORMATS, jars
from tests.support.postgres import PostgresServer
from tests.support.small import SMALL_DELTA

KILLS = int(os.environ.get("EPOCHAL_KILLS", "2"))
SEED = int(os.environ.get("EPOCHAL_SEED", "1"))
STEPS = 8 + 3 * KILLS
LONGEST = 480 + 60 * KILLS
DELTA = {
    # As docs/connectors.md says.
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    **SMALL_DELTA,
}
TABLES = (
    "CREATE TABLE orders (id bigint, country text, ordered_at timestamptz, amount bigint, origin text)",
    "CREATE TABLE totals (country text PRIMARY KEY, n bigint, total bigint)",
)

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200 + 180 * KILLS)]

Orders = Counter[tuple[Any, ...]]
"""How often each order is there: id, country, amount, origin. Some were sent twice, and must be there twice."""


@pytest.fixture(scope="module")
def orders() -> list[data.Row]:
    return [row for portion in data.make(STEPS)["orders"] for row in portion]


@pytest.fixture
def broker(orders: list[data.Row]) -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        running.make_topic("orders", 3)
        running.make_topic("copies", 2)
        running.produce("orders", ((number % 3, row) for number, row in enumerate(orders)), origin="web")
        yield running


@pytest.fixture
def dsn(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a database with the tables. The password is in the environment only."""
    with PostgresServer() as server:
        monkeypatch.setenv("PGPASSWORD", server.password)
        where = f"postgresql://epochal@{server.address}{urlsplit(server.make_database()).path}"
        with psycopg.connect(where) as db:
            for table in TABLES:
                db.execute(table.encode())
        yield where


def run_killed(job: KilledJob) -> None:
    chance, began = random.Random(SEED), time.monotonic()
    try:
        job.start()
        while len(job.kills) < KILLS and job.kill_next(chance):
            pass
        job.finish(LONGEST)
    finally:
        job.end()
    states, moved = Counter(kill.state for kill in job.kills), sum(kill.rows > 0 for kill in job.kills)
    print(
        f"\nconnectors: {len(job.kills)} kills in {time.monotonic() - began:.0f} s ({moved} after rows were read); "
        f"killed at {dict(states)}"
    )
    job.check_kills(KILLS)


def test_every_sink_has_every_row_once(orders: list[data.Row], broker: KafkaBroker, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "iceberg").mkdir()
    with load_catalog("default", **connectors.catalog(str(tmp_path / "iceberg"))) as catalog:
        catalog.create_namespace("shop")
    parameters = {
        "kafka": broker.address,
        "orders": "orders",
        "topic": "copies",
        "recordsPerBatch": "80",
        "dsn": dsn,
        "delta": str(tmp_path / "delta"),
        **{name: str(tmp_path / name) for name in ("iceberg", "parquet", "prices", "prices_copy")},
    }
    for step in range(STEPS):
        write_deltalake(parameters["prices"], pa.table({"price": [2 * step, 2 * step + 1]}), mode="append")
    conf = {"spark.jars": ",".join(map(str, [*jars(CONNECTOR), *jars(FORMATS)])), **DELTA}
    run_killed(KilledJob(tmp_path / "killed", parameters, conf, module="tests.exactly_once.connectors"))

    wanted = Counter((row["id"], row["country"], row["amount"], "web") for row in orders)
    with psycopg.connect(dsn) as db:
        found = {"PostgreSQL": db.execute("SELECT id, country, amount, origin FROM orders").fetchall()}
        totals = db.execute("SELECT country, n, total FROM totals").fetchall()
    found["Kafka"] = [_columns(json.loads(value)) for _, value in broker.committed("copies") if value is not None]
    found["Delta Lake"] = [_columns(row) for row in DeltaTable(parameters["delta"]).to_pyarrow_table().to_pylist()]
    with load_catalog("default", **connectors.catalog(parameters["iceberg"])) as catalog:
        iceberg = catalog.load_table(connectors.ICEBERG_TABLE).scan().to_arrow()
    found["Iceberg"] = [_columns(row) for row in iceberg.to_pylist()]
    found["Parquet"] = [_columns(row) for row in pq.read_table(parameters["parquet"]).to_pylist()]
    for target, rows in found.items():
        got = Counter(rows)
        assert got == wanted, f"{target}: {(got - wanted).total()} too many, {(wanted - got).total()} missing"
    prices = pq.read_table(parameters["prices_copy"])["price"].to_pylist()
    assert sorted(prices) == list(range(2 * STEPS)), "the Delta table's rows"
    amounts: dict[str, list[int]] = {}
    for row in orders:
        amounts.setdefault(row["country"] or "none", []).append(row["amount"])
    assert sorted(totals) == sorted((country, len(each), sum(each)) for country, each in amounts.items())


def _columns(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], row["country"], row["amount"], row["origin"]
