"""A job that writes to Kafka and would go back: what was sent stays sent, so it waits until somebody chooses."""

import json
from pathlib import Path

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


def sent(broker: KafkaBroker, topic: str) -> list[int]:
    return sorted(json.loads(value)["id"] for _, value in broker.committed(topic) if value is not None)


def test_rows_come_to_kafka_a_second_time_only_if_that_was_chosen(
    spark: SparkSession, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")

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
