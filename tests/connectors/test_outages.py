"""A target or a source that is away for a while: commits wait for it, a start is tried again, and nobody edits the
job."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.connectors.kafka import sink as kafka
from epochal.protocol.control import EXIT_FAILED, EXIT_REFUSED, CheckpointState
from epochal.runtime.engine import Engine
from tests.runtime.bad_data import Files
from tests.support.kafka.broker import KafkaBroker
from tests.support.local_job import LocalJob
from tests.support.postgres import PostgresServer
from tests.support.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """One that a test may stop."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


def through_an_outage(job: LocalJob, files: Files, server: Server, sink: str) -> None:
    """Take the target away in a commit, and while the job restarts."""
    files.add(1)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 1, "the first row")
    assert job.checkpoint().state is CheckpointState.READY
    # While a commit is made.
    files.add(2)
    job.wait(lambda: engine.status().sources[0].rows == 2, "the second row")
    server.stop()
    report = job.checkpoint(wait=False)

    def waits() -> str:
        found = engine.checkpoint(report.epoch)
        assert found is not None
        return found.message

    job.wait(lambda: waits() != "", "the commit to wait")
    assert waits().startswith(f"sink {sink!r} waits, and tries again for ")
    assert engine.status().message == waits()
    assert engine.exit_code is None, "the driver stays"
    server.start()
    assert job.wait_for_epoch(report.epoch).state is CheckpointState.READY
    assert engine.status().message == "", "it waits no longer"
    # While a commit is made, and the driver is to end.
    files.add(3)
    job.wait(lambda: engine.status().sources[0].rows == 3, "the third row")
    server.stop()
    report = job.checkpoint(wait=False)
    job.wait(lambda: waits() != "", "the commit to wait")
    job.crash()
    # While it restarts.
    engine = job.start()
    assert engine.exit_code == EXIT_FAILED, engine.status().message
    server.start()
    job.completed = job.issued  # it was published
    engine = job.start()
    files.add(4)
    job.wait(lambda: engine.status().sources[0].rows == 1, "the fourth row")
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY


def test_postgres_is_away(
    spark: SparkSession, own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.connectors.commit_ledger.PATIENCE", 0.1)
    files, dsn = Files(tmp_path / "in"), own_postgres.make_database()
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("CREATE TABLE events (id bigint, at timestamptz)")
    job = LocalJob(spark, lambda p: files.read(p).to_postgres("events", dsn, "events"), tmp_path)
    through_an_outage(job, files, own_postgres, "events")
    with psycopg.connect(dsn) as db:
        assert db.execute("SELECT id FROM events ORDER BY id").fetchall() == [(1,), (2,), (3,), (4,)]


def test_kafka_is_away_as_a_target(
    spark: SparkSession, own_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.connectors.commit_ledger.PATIENCE", 10.0)
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(kafka, "COMMIT_SECONDS", 5.0)
    files = Files(tmp_path / "in")
    own_broker.make_topic("events", 2)

    def build(p: Pipeline) -> None:
        files.read(p).to_kafka("events", own_broker.address, "events", options={"socket.timeout.ms": "3000"})

    job = LocalJob(spark, build, tmp_path)
    through_an_outage(job, files, own_broker, "events")
    sent = sorted(json.loads(value)["id"] for _, value in own_broker.committed("events") if value is not None)
    assert sent == [1, 2, 3, 4]


def test_kafka_is_away_as_a_source(spark: SparkSession, own_broker: KafkaBroker, tmp_path: Path) -> None:
    own_broker.make_topic("events", 1)
    own_broker.produce("events", [(0, {"id": 1})])

    def build(p: Pipeline) -> None:
        records = p.spark.readStream.format("kafka").option("kafka.bootstrap.servers", own_broker.address)
        quick = {"kafka.default.api.timeout.ms": "3000", "kafka.request.timeout.ms": "2000"}
        rows = records.option("subscribe", "events").option("startingOffsets", "earliest").options(**quick).load()
        values = rows.select(F.from_json(F.col("value").cast("string"), "id long").alias("row")).select("row.*")
        p.source("events", values).to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 1, "the first row")
    assert job.checkpoint().state is CheckpointState.READY
    job.crash()
    own_broker.stop()
    engine = job.start()
    job.wait(lambda: engine.exit_code is not None, "the driver to notice")
    assert engine.exit_code == EXIT_FAILED, engine.status().message
    own_broker.start()
    own_broker.produce("events", [(0, {"id": 2})])
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 1, "the second row")
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2]


def refused(engine: Engine) -> str:
    assert engine.exit_code == EXIT_REFUSED, engine.status().message
    return engine.status().message


def test_what_a_person_mends_is_told_and_found_mended(
    spark: SparkSession, postgres_server: PostgresServer, broker: KafkaBroker, tmp_path: Path
) -> None:
    """A table, a password, a topic and a bucket: the same job, tried again, runs once they are there."""
    files, dsn = Files(tmp_path / "in"), postgres_server.make_database()
    topic = f"later-{time.time_ns()}"

    def to_both(p: Pipeline) -> None:
        rows = files.read(p)
        rows.to_postgres("table", dsn, "events")
        rows.to_kafka("topic", broker.address, topic)

    job = LocalJob(spark, to_both, tmp_path)
    assert "has no table events: CREATE TABLE events" in refused(job.start())
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("CREATE TABLE events (id bigint, at timestamptz)")
    assert f"has no topic {topic}" in refused(job.start())
    broker.make_topic(topic, 1)
    files.add(1)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 1, "the row")
    # The right to write is taken away while it runs, and its sink ends the driver: nothing is waited for.
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("ALTER TABLE events RENAME TO moved")
    job.checkpoint()
    assert 'relation "events" does not exist' in refused(engine)
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("ALTER TABLE moved RENAME TO events")
    job.completed = job.issued
    job.start()
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    with psycopg.connect(dsn) as db:
        assert db.execute("SELECT id FROM events").fetchall() == [(1,)]
