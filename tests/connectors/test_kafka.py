"""Kafka: an epoch is one transaction with the epoch's number in it, cut off wherever it may be; read by Kafka's own
consumer, which sees what is committed and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from epochal.connectors.commit_ledger import SinkFencedError
from epochal.connectors.kafka import sink as kafka_sink
from epochal.connectors.kafka.sink import KafkaSink, KafkaTarget
from epochal.protocol.control import StorageConfig
from epochal.runtime.errors import PipelineError, UnavailableError
from tests.connectors.commits import Commits, Cut
from tests.support.kafka.broker import KafkaBroker

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def records(*words: str | None) -> list[dict[str, Any]]:
    return [{"key": b"k", "value": None if word is None else word.encode()} for word in words]


def sink_of(broker: KafkaBroker, topic: str, commits: Commits) -> KafkaSink:
    return KafkaSink(KafkaTarget(bootstrap=broker.address, topic=topic), commits.storage)


def read(broker: KafkaBroker, topic: str) -> list[str | None]:
    return [None if value is None else value.decode() for _, value in broker.committed(topic)]


def test_a_commit_that_is_made_again_changes_nothing(broker: KafkaBroker, topic: str, commits: Commits) -> None:
    sink, ctx, objects = sink_of(broker, topic, commits), commits.context(), commits.objects(records("a", None, "b"))
    sink.open(ctx)
    assert sink.write(3, objects, ctx)
    assert not sink.write(3, objects, ctx)
    again, next_ctx = sink_of(broker, topic, commits), commits.context(2)
    again.open(next_ctx)
    assert not again.write(3, objects, next_ctx)
    assert again.write(4, commits.objects(records("c"), records("a")), next_ctx)
    assert read(broker, topic) == ["a", None, "b", "c", "a"]


CUTS = [
    ("produce", False),
    ("produce", True),
    ("send_offsets_to_transaction", True),
    ("commit_transaction", True),
]
"""Before or after which step the driver ends."""


@pytest.mark.parametrize(("step", "after"), CUTS)
def test_a_driver_that_ends_in_the_middle(
    broker: KafkaBroker, topic: str, commits: Commits, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    objects = commits.objects(records("a", "b"))
    sink, ctx = sink_of(broker, topic, commits), commits.context(1)

    class Cutting(Producer):
        pass

    real: Callable[..., Any] = getattr(Producer, step)

    def cutting(self: Producer, *arguments: Any) -> None:
        if after:
            real(self, *arguments)
            if step == "produce":
                self.flush(30.0)
        raise Cut

    setattr(Cutting, step, cutting)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_sink, "Producer", Cutting)
        sink.open(ctx)
        with pytest.raises(Cut):
            sink.write(1, objects, ctx)
    again, next_ctx = sink_of(broker, topic, commits), commits.context(2)
    again.open(next_ctx)
    done = step == "commit_transaction" and after
    assert again.write(1, objects, next_ctx) is not done
    assert read(broker, topic) == ["a", "b"]


def test_an_older_generation_can_commit_nothing(broker: KafkaBroker, topic: str, commits: Commits) -> None:
    zombie, old = sink_of(broker, topic, commits), commits.context(1)
    zombie.open(old)
    sink_of(broker, topic, commits).open(commits.context(2))
    with pytest.raises(SinkFencedError, match="a newer generation has taken over"):
        zombie.write(1, commits.objects(records("a")), old)
    assert read(broker, topic) == []


def test_a_job_begun_anew_is_told(broker: KafkaBroker, topic: str, commits: Commits) -> None:
    sink, ctx = sink_of(broker, topic, commits), commits.context(4)
    sink.open(ctx)
    sink.write(50, commits.objects(records("a")), ctx)
    with pytest.raises(PipelineError, match=r"has epoch 50 of job test/job, .*--delete --group epochal.test.job.out"):
        sink_of(broker, topic, commits).open(commits.context(1, newest_epoch=3))


def test_mistakes_are_told(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(**given: Any) -> None:
        target = KafkaTarget(**{"bootstrap": broker.address, "topic": "nope", **given})
        KafkaSink(target, StorageConfig(uri="memory://"))._check_topic()

    with pytest.raises(PipelineError, match=r"has no topic nope .*: make it first"):
        check()
    with pytest.raises(PipelineError, match="No such configuration property"):
        check(options={"sasl.passwrd": "s3cret"})
    monkeypatch.setattr(kafka_sink, "ANSWER_SECONDS", 1.0)
    with pytest.raises(UnavailableError, match=r"Kafka at 127.0.0.1:1") as caught:
        check(bootstrap="127.0.0.1:1", options={"sasl.password": "s3cret"})
    assert "s3cret" not in str(caught.value)
