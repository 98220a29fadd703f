"""The cookbook's connectors, each run as a job on real Spark, with a crash in the middle."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.connectors.kafka.sink import KafkaSink, KafkaTarget
from epochal.protocol.control import DriverPhase, StorageConfig
from epochal.sql.build import build_sql
from tests.connectors.receiver import Receiver
from tests.support.local_job import LocalJob
from tests.support.postgres import PostgresServer

COOKBOOK = Path(__file__).parents[2] / "examples" / "cookbook"
pytestmark = pytest.mark.slow

Rows = list[tuple[Any, ...]]


def recipe(name: str) -> Callable[[Pipeline], None]:
    spec = importlib.util.spec_from_file_location(f"cookbook_{name}", COOKBOOK / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build: Callable[[Pipeline], None] = module.build
    return build


def job(spark: SparkSession, directory: Path, name: str, parameters: dict[str, str]) -> LocalJob:
    return LocalJob(spark, _given(recipe(name), parameters), directory)


def run(running: LocalJob) -> None:
    """To the end, with an epoch and a crash before it."""
    running.start()
    running.checkpoint()
    running.crash()
    running.run_to_the_end()


def run_both(spark: SparkSession, directory: Path, name: str, parameters: dict[str, str]) -> list[list[dict[str, Any]]]:
    """The rows, by their ids, that a recipe in Python writes and those of its SQL text, each run over a crash."""
    text = (COOKBOOK / f"{name}.sql").read_text()
    builds: list[Callable[[Pipeline], None]] = [recipe(name), lambda p: build_sql(p, text)]
    found: list[list[dict[str, Any]]] = []
    for number, build in enumerate(builds):
        where = directory / f"run-{number}"
        given = {**parameters, "output": str(where / "out")}
        run(LocalJob(spark, _given(build, given), where))
        rows = pq.read_table(sorted((where / "out").glob("*.parquet"))).to_pylist()
        found.append(sorted(rows, key=lambda row: row["id"]))
    return found


def _given(build: Callable[[Pipeline], None], parameters: dict[str, str]) -> Callable[[Pipeline], None]:
    def given(p: Pipeline) -> None:
        p.parameters.update(parameters)
        build(p)

    return given


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Ten orders in two files."""
    directory = tmp_path / "in"
    directory.mkdir()
    for file in range(2):
        rows = [
            {
                "id": 5 * file + number,
                "country": "de" if number % 2 else "fr",
                "ordered_at": f"2026-01-01T00:00:0{number}Z",
                "amount": 40.0 * number,
            }
            for number in range(5)
        ]
        (directory / f"{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


IDS = list(range(10))


def test_postgres(
    spark: SparkSession, tmp_path: Path, orders: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = postgres_server.make_database()
    monkeypatch.setenv("PGPASSWORD", postgres_server.password)
    dsn = f"postgresql://epochal@{postgres_server.address}{urlsplit(whole).path}"
    made = str(recipe("postgres").__globals__["__doc__"]).split("\n\n")[1]
    with psycopg.connect(dsn) as db:
        db.execute(made.encode())
    run(job(spark, tmp_path, "postgres", {"input": str(orders), "dsn": dsn}))
    with psycopg.connect(dsn) as db:
        assert [row[0] for row in db.execute("SELECT id FROM orders ORDER BY id")] == IDS
        totals = db.execute("SELECT country, orders, revenue FROM totals ORDER BY country").fetchall()
    assert totals == [("de", 4, 320.0), ("fr", 6, 480.0)]


def test_a_wrong_table_is_told_before_the_start(
    spark: SparkSession, tmp_path: Path, orders: Path, postgres_server: PostgresServer
) -> None:
    dsn = postgres_server.make_database()
    status = job(spark, tmp_path, "postgres", {"input": str(orders), "dsn": dsn}).start().status()
    assert status.phase is DriverPhase.FAILED
    assert "operator 'orders_out': " in status.message
    assert "has no table orders: CREATE TABLE orders (id bigint, country text," in status.message
    assert postgres_server.password not in status.message
    assert not list(tmp_path.glob("store/**/*.json")), "nothing was begun"


def test_delta(spark: SparkSession, tmp_path: Path, orders: Path) -> None:
    table = str(tmp_path / "table")
    run(job(spark, tmp_path, "delta", {"input": str(orders), "table": table}))
    found = DeltaTable(table).to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == IDS
    assert DeltaTable(table).metadata().partition_columns == ["country"]


def test_iceberg(spark: SparkSession, tmp_path: Path, orders: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    given = {"catalog": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": (tmp_path / "warehouse").as_uri()}
    with load_catalog("default", type="sql", uri=given["catalog"], warehouse=given["warehouse"]) as catalog:
        catalog.create_namespace("shop")
        run(job(spark, tmp_path, "iceberg", {"input": str(orders), **given}))
        assert sorted(catalog.load_table("shop.orders").scan().to_arrow()["id"].to_pylist()) == IDS


def test_http(spark: SparkSession, tmp_path: Path, orders: Path, receiver: Receiver) -> None:
    run(job(spark, tmp_path, "http", {"input": str(orders), "url": receiver.url, "token": "t"}))
    once = dict(receiver.requests)
    assert sorted(row["id"] for body in once.values() for row in body) == [3, 4, 8, 9]
    assert {headers["Authorization"] for headers in receiver.headers} == {"Bearer t"}


def test_what_kafka_records_are_made_of(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(1, "ü", bytearray(b"\x00\xff"), None)], "id long, word string, raw binary, no string"
    )

    def record(key: Column | str | None, value: Column | str | None) -> tuple[bytes | None, bytes | None]:
        target = KafkaTarget(bootstrap="nowhere:1", topic="t", key=key, value=value)
        row = KafkaSink(target, StorageConfig(uri="memory://")).encode(frame).collect()[0]
        return row.key, row.value

    assert record("id", "word") == (b"1", "ü".encode())
    assert record(F.upper("word"), "raw") == ("Ü".encode(), b"\x00\xff")
    assert record(None, "no") == (None, None)
    key, value = record("raw", None)
    assert key == b"\x00\xff"
    assert json.loads(value or b"") == {"id": 1, "word": "ü", "raw": "AP8=", "no": None}


def test_files(spark: SparkSession, tmp_path: Path) -> None:
    for kind in ("json", "csv", "parquet", "text"):
        (tmp_path / "in" / kind).mkdir(parents=True)
    (tmp_path / "in" / "json" / "a.json").write_text('{"id": 1, "country": "de", "amount": 1.5}\n')
    (tmp_path / "in" / "csv" / "a.csv").write_text("id,country,amount\n2,fr,2.5\n")
    pq.write_table(pa.table({"id": [3], "country": ["us"], "amount": [3.5]}), tmp_path / "in" / "parquet" / "a.parquet")
    (tmp_path / "in" / "text" / "a.txt").write_text("4,jp,4.5\n")
    for found in run_both(spark, tmp_path, "files", {"input": str(tmp_path / "in")}):
        assert [tuple(row.values()) for row in found] == [
            (1, "de", 1.5), (2, "fr", 2.5), (3, "us", 3.5), (4, "jp", 4.5),
        ]  # fmt: skip
