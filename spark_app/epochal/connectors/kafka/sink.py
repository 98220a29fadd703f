"""Rows into a topic of Kafka, exactly once: an epoch is one transaction, which also carries its number."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.connectors.commit_ledger import (
    LedgerSink,
    LedgerState,
    SinkFencedError,
    check_fence,
    check_life,
    patiently,
)
from epochal.protocol.control import StorageConfig
from epochal.protocol.faults import FixedBy, fault_of
from epochal.runtime.dataflow.operator import MAIN, OperatorContext
from epochal.runtime.errors import OutsideError, explained

ANSWER_SECONDS = 10.0
COMMIT_SECONDS = 60.0
T = TypeVar("T")
TRANSACTION_MILLISECONDS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTarget:
    """A topic and what its records are made of. ``options`` are those of librdkafka, and may hold secrets."""

    bootstrap: str
    topic: str
    key: Column | str | None = None
    value: Column | str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.options}


class KafkaSink(LedgerSink):
    """One transactional producer on the driver.

    The number of the newest epoch is the offset that a consumer group named after the sink has committed, in the same
    transaction as the records: both are there, or neither. After a crash in the middle, the next driver's
    ``init_transactions`` brings what was begun to an end (which also shuts out the driver before it); then the offset
    says whether the epoch is in. Readers must be ``read_committed``.
    """

    why_not_taken_back = "records that were sent stay in their topic"

    def __init__(self, target: KafkaTarget, storage: StorageConfig) -> None:
        super().__init__(storage)
        self._target = target
        self._producer: Producer | None = None

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        records = self.encode(frames[0])
        self._check_topic()
        return {MAIN: records}

    def encode(self, frame: DataFrame) -> DataFrame:
        target = self._target
        value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}) if target.value is None else target.value
        key = F.lit(None).cast("binary") if target.key is None else target.key
        records = frame.select(_named(key, "key"), _named(value, "value"))
        # Kafka's records are bytes: text becomes UTF-8, and other types their text.
        text = [name for name, kind in records.dtypes if kind != "binary"]
        return records.withColumns({name: F.col(name).cast("string").cast("binary") for name in text})

    def open(self, ctx: OperatorContext) -> None:
        """Take over from older generations: from here on they can commit nothing here."""
        group = _id(ctx)
        remedy = f"If its records may stay, forget the epoch: kafka-consumer-groups.sh --delete --group {group}"
        self._asking(lambda: check_life(self._recorded(ctx, "read_uncommitted"), ctx, remedy=remedy))
        self._asking(lambda: self._open(ctx))

    def write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        try:
            return self._asking(lambda: self._write(epoch, objects, ctx))
        except Exception:
            self._give_up_producer()
            raise

    def _write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        """One transaction.

        1. Is the epoch there?
        2. The records.
        3. The epoch's number. Then commit.
        """
        # Step 1
        producer = self._open(ctx)
        recorded = self._recorded(ctx, "read_committed")
        check_fence(recorded, ctx)
        if recorded.epoch >= epoch:
            return False
        # Step 2
        producer.begin_transaction()
        for batch in self.batches(objects):
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                self._produce(producer, key, value)
        # Step 3
        mark = TopicPartition(self._target.topic, 0, epoch, f"generation={ctx.job.generation}")
        consumer = self._consumer(ctx, "read_committed")
        try:
            producer.send_offsets_to_transaction([mark], consumer.consumer_group_metadata(), COMMIT_SECONDS)
        finally:
            consumer.close()
        producer.commit_transaction(COMMIT_SECONDS)
        return True

    def _produce(self, producer: Producer, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._target.topic, value, key)
                producer.poll(0)
                return
            except BufferError:  # the client's queue is full
                producer.poll(1.0)

    def _recorded(self, ctx: OperatorContext, isolation: str) -> LedgerState:
        """With ``read_committed`` the broker answers when no transaction is open any more."""
        return patiently(lambda: self._ask_group(ctx, isolation))

    def _ask_group(self, ctx: OperatorContext, isolation: str) -> LedgerState:
        consumer = self._consumer(ctx, isolation)
        try:
            found = consumer.committed([TopicPartition(self._target.topic, 0)], COMMIT_SECONDS)[0]
            if found.error is not None:
                raise KafkaException(found.error)
        finally:
            consumer.close()
        if found.offset < 0:
            return LedgerState(epoch=0, generation=0)
        generation = re.fullmatch(r"generation=(\d+)", found.metadata or "")
        return LedgerState(epoch=found.offset, generation=int(generation[1]) if generation else 0)

    def _consumer(self, ctx: OperatorContext, isolation: str) -> Consumer:
        return Consumer({**self._target.client(), "group.id": _id(ctx), "isolation.level": isolation})

    def _open(self, ctx: OperatorContext) -> Producer:
        """The producer. A new one brings to an end what one before it has begun, and shuts that one out."""
        if self._producer is None:
            producer = Producer(
                {
                    **self._target.client(),
                    "transactional.id": _id(ctx),
                    "transaction.timeout.ms": TRANSACTION_MILLISECONDS,
                    # As Java's clients do it: equal keys of all producers meet in one partition.
                    "partitioner": "murmur2_random",
                }
            )
            producer.init_transactions(COMMIT_SECONDS)
            self._producer = producer
        return self._producer

    def _give_up_producer(self) -> None:
        """After an error nobody knows how far its transaction has come: the next try begins with another one, as the
        next driver would."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _check_topic(self) -> None:
        said: list[KafkaError] = []
        topic = self._target.topic

        def ask() -> None:
            settings: dict[str, Any] = {**self._target.client(), "error_cb": said.append}
            admin = AdminClient(settings)
            found = admin.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
            if found.error is not None:
                raise OutsideError(
                    f"Kafka at {self._target.bootstrap} has no topic {topic} ({found.error.str()}): make it first"
                )

        self._asking(ask, said)

    def _asking(self, ask: Callable[[], T], said: list[KafkaError] | None = None) -> T:
        """Ask Kafka, and tell by the table of faults what went wrong. ``said`` is what the client said meanwhile: of a
        wrong password it says no more than that nobody answers."""
        try:
            return ask()
        except KafkaException as error:
            heard = [error, *map(KafkaException, said or [])]
            worst = next((one for one in heard if fault_of(one).fixed_by is not FixedBy.TIME), error)
            if fault_of(error).name == "kafka-fenced":
                raise SinkFencedError(f"a newer generation has taken over topic {self._target.topic}") from error
            raise explained(worst, f"Kafka at {self._target.bootstrap}", worst.args[0].str()) from worst


def _id(ctx: OperatorContext) -> str:
    """The producer's transactional id, and the group that holds the epoch's number."""
    return f"epochal.{ctx.job.name.replace('/', '.')}.{ctx.name}"


def _named(column: Column | str, name: str) -> Column:
    return (F.col(column) if isinstance(column, str) else column).alias(name)
