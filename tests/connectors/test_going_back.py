"""A job that would go back, and writes where nothing can be taken back: it waits until somebody chooses."""

import json
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.protocol.control import EXIT_WOULD_REPEAT
from epochal.protocol.epochs import Epoch
from tests.runtime.bad_data import Files
from tests.runtime.test_going_back import ended, go_on, with_three_epochs
from tests.support.kafka.broker import KafkaBroker
from tests.support.local_job import LocalJob

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "in")


def sent(broker: KafkaBroker, topic: str) -> list[int]:
    return sorted(json.loads(value)["id"] for _, value in broker.committed(topic) if value is not None)


def test_rows_come_to_kafka_a_second_time_only_if_that_was_chosen(
    spark: SparkSession, broker: KafkaBroker, topic: str, files: Files, tmp_path: Path
) -> None:
    def build(p: Pipeline) -> None:
        files.read(p).to_kafka("events", broker.address, topic, key="id")

    job = LocalJob(spark, build, tmp_path)
    with_three_epochs(job, files)
    assert sent(broker, topic) == [1, 2, 3]
    job.start(back_to=Epoch(1))
    message = ended(job, EXIT_WOULD_REPEAT)
    assert message.startswith("going back to epoch 1 would leave epochs 2 to 3 behind, whose output is committed")
    assert "2 rows of sink 'events': " in message
    assert sent(broker, topic) == [1, 2, 3], "nothing is sent before somebody has chosen"
    job.start(back_to=Epoch(1), repeat=True)
    go_on(job, 2)
    assert sent(broker, topic) == [1, 2, 2, 3, 3], "as it was chosen"


def test_values_that_were_replaced_in_postgres_cannot_come_back(
    spark: SparkSession, dsn: str, files: Files, tmp_path: Path
) -> None:
    with psycopg.connect(dsn) as db:
        db.execute("CREATE TABLE words (id bigint PRIMARY KEY, at timestamptz)")

    def written() -> list[int]:
        with psycopg.connect(dsn) as db:
            return [row[0] for row in db.execute("SELECT id FROM words ORDER BY id")]

    def build(p: Pipeline) -> None:
        files.read(p).to_postgres("words", dsn, "words", mode="upsert", keys=["id"])

    job = LocalJob(spark, build, tmp_path)
    with_three_epochs(job, files)
    with psycopg.connect(dsn) as db:
        db.execute("DELETE FROM words WHERE id > 1")
    job.start(back_to=Epoch(1))
    message = ended(job, EXIT_WOULD_REPEAT)
    assert "2 rows of sink 'words': an upsert has replaced the values of earlier epochs" in message
    assert written() == [1], "nothing is written before somebody has chosen"
    job.start(back_to=Epoch(1), repeat=True)
    go_on(job, 2)
    assert written() == [1, 2, 3], "as it was chosen"
