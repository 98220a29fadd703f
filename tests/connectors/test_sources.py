"""Sources of Spark's in jobs: where they begin, and that a restart goes on where the epoch ended."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.protocol.control import DriverPhase
from epochal.sql.build import build_sql
from tests.connectors.test_cookbook import COOKBOOK, recipe
from tests.support.kafka.broker import KafkaBroker, Record
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.slow

BEGAN = 1_767_225_600_000
"""2026-01-01, in milliseconds. Record n of a partition is n seconds later."""

ORDERS = """
CREATE TABLE {name} (id BIGINT) WITH ('connector' = 'kafka', 'servers' = '${{kafka}}', {options});
INSERT INTO found SELECT '{name}' AS source, id FROM {name};
"""
EVERYTHING, AFTER = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14], [5, 15]
BEGINNINGS: dict[str, tuple[str, list[int]]] = {
    "by_name": ("'topic' = '${topic}', 'records-per-batch' = '4'", EVERYTHING + AFTER),
    "by_pattern": ("'topic-pattern' = '${topic}.*', 'start' = 'earliest'", EVERYTHING + AFTER),
    "by_partition": ("""'partitions' = '{"${topic}": [1]}'""", [10, 11, 12, 13, 14, 15]),
    "at_offsets": ("""'topic' = '${topic}', 'start' = '{"${topic}": {"0": 3, "1": -1}}'""", [3, 4, *AFTER]),
    "at_a_time": ("'topic' = '${topic}', 'start-time' = '2026-01-01T00:00:03Z'", [3, 4, 13, 14, *AFTER]),
    "at_times": (
        """'topic' = '${topic}', 'spark.startingOffsetsByTimestamp' = '{"${topic}": {"0": 1767225604000, "1": 0}}'""",
        [4, 10, 11, 12, 13, 14, *AFTER],
    ),
    "at_the_end": ("'topic' = '${topic}', 'start' = 'latest'", AFTER),
}
RAW = """
CREATE TABLE records (key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
  headers ARRAY<STRUCT<key: STRING, value: BINARY>>,
  id AS CAST(get_json_object(CAST(value AS STRING), '$.id') AS BIGINT),
  WATERMARK FOR timestamp AS timestamp)
  WITH ('connector' = 'kafka', 'servers' = '${kafka}', 'topic' = '${topic}', 'format' = 'raw');
CREATE TABLE raw WITH ('connector' = 'parquet', 'path' = '${output}/raw');
INSERT INTO raw SELECT id, CAST(key AS STRING) AS key, topic, partition, offset, unix_millis(timestamp) AS at,
  headers[0].key AS header, CAST(headers[0].value AS STRING) AS origin FROM records;
"""


def record(partition: int, place: int) -> Record:
    number = 10 * partition + place
    value = json.dumps({"id": number}).encode()
    headers = (("origin", b"web"),)
    return Record(partition, value, key=b"k%d" % number, timestamp=BEGAN + 1000 * place, headers=headers)


def sql_job(spark: SparkSession, directory: Path, text: str, **parameters: str) -> LocalJob:
    def build(p: Pipeline) -> None:
        p.parameters.update(parameters)
        build_sql(p, text)

    return LocalJob(spark, build, directory)


def wait_for_rows(job: LocalJob, rows: int) -> None:
    """Until this generation's sources have read so many."""
    assert job.engine is not None
    status = job.engine.status
    job.wait(lambda: sum(source.rows for source in status().sources) >= rows, f"{rows} rows")


def ids_of(output: Path, source: str) -> list[int]:
    rows = pq.read_table(output).to_pylist()
    return sorted(row["id"] for row in rows if row["source"] == source)


def test_every_way_to_begin_in_kafka(spark: SparkSession, tmp_path: Path, broker: KafkaBroker, topic: str) -> None:
    """Where a source begins is asked once: after a crash its epoch says where it goes on."""
    broker.send(topic, (record(partition, place) for partition in range(2) for place in range(5)))
    tables = "".join(ORDERS.format(name=name, options=options) for name, (options, _) in BEGINNINGS.items())
    found = "CREATE TABLE found WITH ('connector' = 'parquet', 'path' = '${output}/found');"
    output = tmp_path / "out"
    job = sql_job(spark, tmp_path, found + tables + RAW, kafka=broker.address, topic=topic, output=str(output))
    engine = job.start()
    all_rows = sum(len(ids) for _, ids in BEGINNINGS.values()) + len(EVERYTHING + AFTER)
    later = sum(len(set(AFTER) & set(ids)) for _, ids in BEGINNINGS.values()) + len(AFTER)
    wait_for_rows(job, all_rows - later)
    begun = tmp_path / "work-1" / "sources" / "at_the_end" / "sources" / "0" / "0"
    job.wait(begun.is_file, "the end to be looked up")
    batches = {source.name: source.batch for source in engine.status().sources}
    assert batches["by_name"] >= 2, "10 records, and no more than 4 a batch"
    job.checkpoint()
    job.crash()
    broker.send(topic, (record(partition, 5) for partition in range(2)))
    job.start()
    wait_for_rows(job, later)
    job.checkpoint(then_stop=True)
    assert {name: ids_of(output / "found", name) for name in BEGINNINGS} == {
        name: sorted(ids) for name, (_, ids) in BEGINNINGS.items()
    }
    raw = sorted(pq.read_table(output / "raw").to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in raw] == sorted(EVERYTHING + AFTER)
    assert raw[7] == {
        "id": 11, "key": "k11", "topic": topic, "partition": 1, "offset": 1, "at": BEGAN + 1000, "header": "origin",
        "origin": "web",
    }  # fmt: skip


def test_records_that_kafka_has_forgotten_end_the_job(
    spark: SparkSession, tmp_path: Path, broker: KafkaBroker, topic: str
) -> None:
    broker.send(topic, [record(0, 0)])
    text = "CREATE TABLE found WITH ('connector' = 'parquet', 'path' = '${output}');" + ORDERS.format(
        name="orders", options="'topic' = '${topic}'"
    )
    job = sql_job(spark, tmp_path, text, kafka=broker.address, topic=topic, output=str(tmp_path / "out"))
    job.start()
    wait_for_rows(job, 1)
    job.checkpoint()
    job.crash()
    broker.send(topic, [record(0, 1), record(0, 2)])
    broker.delete_records(topic, {0: 2})
    engine = job.start()
    job.wait(lambda: engine.exit_code is not None, "the driver to end")
    status = engine.status()
    assert status.phase is DriverPhase.FAILED
    assert "Some data may have been lost because they are not available in Kafka any more" in status.message
    assert len(status.message) < 1000


ROWS = {"id": pa.int64(), "country": pa.string(), "ordered_at": pa.timestamp("us", tz="UTC")}


def add(table: Path, ids: Iterable[int]) -> None:
    rows = [{"id": one, "country": "de" if one % 2 else "xx", "ordered_at": BEGAN * 1000} for one in ids]
    write_deltalake(str(table), pa.Table.from_pylist(rows, pa.schema(list(ROWS.items()))), mode="append")


def test_rows_of_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    """The recipe in Python and in SQL: rows that were read and not in an epoch are read again, and no others."""
    table, countries = tmp_path / "table", tmp_path / "countries"
    write_deltalake(str(countries), pa.table({"country": ["de"], "name": ["Germany"]}))
    add(table, range(3))
    add(table, range(3, 5))
    outputs = {"python": tmp_path / "python", "sql": tmp_path / "sql"}
    given = {"table": str(table), "countries": str(countries)}

    def build(p: Pipeline) -> None:
        for name, make in (("python", recipe("delta_source")), ("sql", by_sql)):
            p.parameters = {**given, "output": str(outputs[name])}
            make(p)

    def by_sql(p: Pipeline) -> None:
        build_sql(p, (COOKBOOK / "delta_source.sql").read_text())

    job = LocalJob(spark, build, tmp_path)
    job.start()
    wait_for_rows(job, 10)
    job.checkpoint()
    add(table, range(5, 8))
    wait_for_rows(job, 16)
    job.crash()
    DeltaTable(str(table)).optimize.compact()  # the same rows in other files: nothing is new
    add(table, range(8, 10))
    job.start()
    wait_for_rows(job, 10)
    job.checkpoint(then_stop=True)
    for output in outputs.values():
        rows: list[dict[str, Any]] = pq.read_table(output).to_pylist()
        assert sorted(row["id"] for row in rows) == list(range(10))
        assert {row["name"] for row in rows if row["country"] == "de"} == {"Germany"}
        assert {row["name"] for row in rows if row["country"] == "xx"} == {None}
