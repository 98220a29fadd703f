"""Watermarks of Kafka sources: each partition has its own, and no job sees the columns that tell them apart."""

import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.protocol.control import SourceReport
from epochal.runtime.dataflow.partitions import FEW
from tests.connectors.test_sources import sql_job, wait_for_rows
from tests.support.kafka.broker import KafkaBroker
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.slow

BEGAN = 1_767_225_600
"""2026-01-01, in seconds. Tests count from here."""

SKEWED = """
CREATE TABLE orders (at TIMESTAMP, WATERMARK FOR at AS at) WITH ('connector' = 'kafka', 'servers' = '${kafka}',
  'topic' = '${topic}', 'records-per-batch' = '24', 'bounded' = 'true');
CREATE TABLE counted WITH ('connector' = 'parquet', 'path' = '${output}');
INSERT INTO counted SELECT window_start, COUNT(*) AS orders
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '10' SECONDS)) GROUP BY window_start, window_end;
"""


def send(broker: KafkaBroker, topic: str, *times: tuple[int, int]) -> None:
    """Each a partition and seconds."""
    broker.produce(topic, ((partition, {"at": BEGAN + seconds}) for partition, seconds in times))


def orders_of(p: Pipeline, broker: KafkaBroker, topic: str) -> DataFrame:
    """As jobs read them: nothing is left of the record but its value."""
    records = p.spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
    values = records.option("subscribe", topic).option("startingOffsets", "earliest").load().select("value")
    rows = values.select(F.from_json(F.col("value").cast("string"), "at long").alias("row")).select("row.*")
    return rows.where("at IS NOT NULL").select(F.timestamp_seconds("at").alias("at"))


def source_of(job: LocalJob) -> SourceReport:
    assert job.engine is not None
    return job.engine.status().sources[0]


def watermark_of(job: LocalJob) -> int | None:
    watermark = source_of(job).watermark
    return None if watermark is None else watermark // 1_000_000 - BEGAN


def late_of(job: LocalJob) -> int:
    assert job.engine is not None
    return job.engine.status().late_rows


@pytest.mark.parametrize("empty", [0, FEW])
def test_no_row_of_a_partition_that_lags_behind_is_late(
    spark: SparkSession, tmp_path: Path, broker: KafkaBroker, topic: str, empty: int
) -> None:
    """One partition is a minute behind the other, and Spark reads some records of both at a time. Those that are empty
    hold nobody back."""
    if empty:
        broker.add_partitions(topic, 2 + empty)
    times = [(part, f"2026-01-01T00:{part:02}:{second:02}Z") for second in range(60) for part in (0, 1)]
    broker.produce(topic, ((part, {"at": at}) for part, at in times))
    output = tmp_path / "out"
    job = sql_job(spark, tmp_path, SKEWED, kafka=broker.address, topic=topic, output=str(output))
    job.run_to_the_end()
    assert late_of(job) == 0
    assert source_of(job).batch >= 4
    assert [row["orders"] for row in pq.read_table(output).to_pylist()] == [10] * 12


def test_partitions_that_are_idle_and_come_back(
    spark: SparkSession, tmp_path: Path, broker: KafkaBroker, topic: str
) -> None:
    def build(p: Pipeline) -> None:
        source = p.source("orders", orders_of(p, broker, topic), event_time="at", idle_after=5)
        counted = source.window("counted", size="10 seconds", aggregates={"orders": F.count("*")})
        counted.to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    send(broker, topic, *((0, seconds) for seconds in range(31)), *((1, seconds) for seconds in range(6)))
    job.start()
    job.wait(lambda: watermark_of(job) == 5, "the watermark of the partition that is behind")
    newest = 30
    while watermark_of(job) == 5:
        newest += 1
        send(broker, topic, (0, newest))
        wait_for_rows(job, newest + 7)
    assert not source_of(job).idle
    # It comes back with newer rows: from here on it counts again.
    send(broker, topic, (1, 200), (0, 300))
    job.wait(lambda: watermark_of(job) == 200, "the watermark of the partition that came back")
    job.checkpoint()
    job.crash()

    # After a restart nobody knows how far it had come: it is waited for.
    send(broker, topic, (0, 400))
    job.start()
    wait_for_rows(job, 1)
    assert watermark_of(job) == 200
    job.wait(lambda: watermark_of(job) == 400, "nobody to hold it back")
    assert late_of(job) == 0
    job.checkpoint(then_stop=True)
    found = sorted(pq.read_table(tmp_path / "out").to_pylist(), key=lambda row: row["window_start"])
    assert sum(row["orders"] for row in found) == newest + 7 + 2, "all but the one whose window is still open"
    assert set(found[0]) == {"window_start", "window_end", "orders"}


def test_many_partitions_more_of_them_while_it_runs_and_a_lost_driver(
    spark: SparkSession, tmp_path: Path, broker: KafkaBroker
) -> None:
    many = FEW + 4
    topic = f"test-{uuid.uuid4().hex[:12]}"
    broker.make_topic(topic, many)

    def build(p: Pipeline) -> None:
        source = p.source("orders", orders_of(p, broker, topic), event_time="at", idle_after=60)
        counted = source.window("counted", size="10 seconds", aggregates={"orders": F.count("*")})
        counted.to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    send(broker, topic, *((part, seconds) for part in range(many) for seconds in ((0, 30) if part else (0, 6))))
    job.start()
    job.wait(lambda: watermark_of(job) == 6, "the watermark of the partition that is behind")
    job.checkpoint()
    # A new partition brings older rows than all others have.
    broker.add_partitions(topic, many + 1)
    send(broker, topic, (many, 8), *((part, 50) for part in range(many)))
    job.wait(lambda: watermark_of(job) == 8, "the watermark of the new partition")
    job.crash()
    job.start()
    job.wait(lambda: watermark_of(job) == 8, "the same after a restart")
    send(broker, topic, *((part, 100) for part in range(many + 1)))
    job.wait(lambda: watermark_of(job) == 100, "all of them")
    assert late_of(job) == 0
    job.checkpoint(then_stop=True)
    found = sorted(pq.read_table(tmp_path / "out").to_pylist(), key=lambda row: row["window_start"])
    assert [row["orders"] for row in found] == [many + 2, many - 1, many], "at 0 to 9, 30 and 50"
