"""One broker process: controller and broker in one, with its own ports and log directory."""

import json
import os
import subprocess
import uuid
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from cluster.processes import free_port
from tests.support.kafka.jars import BROKER, jars
from tests.support.server import LOOPBACK, Server, ServerError

with warnings.catch_warnings():
    # The client reads its own files in a way that Python 3.11 frowns upon.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic

JVM = [
    # One small node: what a JVM takes by default would be a quarter of the machine.
    *("-Xms96m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # Java would listen on an IPv6 socket, also for an IPv4 address.
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]


@dataclass(frozen=True, slots=True)
class Record:
    """``timestamp``: milliseconds since 1970, now if left out."""

    partition: int
    value: bytes
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class KafkaBroker(Server):
    name = "kafka"
    start_timeout = 60.0

    def __init__(self, *, host: str = LOOPBACK) -> None:
        super().__init__(host=host)
        self._classpath = ":".join(map(str, jars(BROKER)))

    def make_topic(self, name: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])
        finally:
            admin.close()

    def add_partitions(self, topic: str, total: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        for answer in admin.create_partitions([NewPartitions(topic, total)]).values():
            answer.result(timeout=30)

    def produce(self, topic: str, rows: Iterable[tuple[int, Mapping[str, Any]]], *, origin: str | None = None) -> None:
        """Send rows as JSON, each to the partition that it names, and wait until all are there. ``origin`` becomes a
        header."""
        headers = () if origin is None else (("origin", origin.encode()),)
        self.send(topic, (Record(partition, json.dumps(row).encode(), headers=headers) for partition, row in rows))

    def send(self, topic: str, records: Iterable["Record"]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.address, acks="all", linger_ms=20)
        try:
            sent = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in records
            ]
            producer.flush(timeout=60)
            for one in sent:
                one.get(timeout=10)
        finally:
            producer.close(timeout=10)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Forget the records of each partition that are older than an offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.address})
        asked = admin.delete_records([TopicPartition(topic, number, offset) for number, offset in before.items()])
        for answer in asked.values():
            answer.result(timeout=30)

    def committed(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of all records that are committed, partition by partition."""
        settings = {"bootstrap.servers": self.address, "group.id": "tests", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
        try:
            partitions = consumer.list_topics(topic, timeout=self.start_timeout).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            found: list[tuple[bytes | None, bytes | None]] = []
            ended: set[int | None] = set()
            while len(ended) < len(partitions):
                message = consumer.poll(self.start_timeout)
                if message is None:
                    raise ServerError(f"{self.name} does not answer")
                error = message.error()
                if error is None:
                    found.append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise ServerError(f"{self.name}: {error}")
            return found
        finally:
            consumer.close()

    def _command(self, port: int) -> list[str]:
        java = [_java(), *JVM, "-cp", self._classpath]
        data, settings = self._home / f"data-{port}", self._home / f"server-{port}.properties"
        if not settings.exists():
            values = _settings(self.host, port, free_port(), data)
            settings.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            self._format(java, settings)
        return [*java, "kafka.Kafka", str(settings)]

    def _format(self, java: list[str], settings: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with self._log.open("ab") as log:
            subprocess.run(
                # One word: an id that begins with a dash would be taken for an option.
                [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(settings)],
                stdout=log, stderr=log, check=True, timeout=self.start_timeout,
            )  # fmt: skip


def _settings(host: str, port: int, controller: int, data: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        # Tests say when a record was sent, and some say long ago.
        "log.retention.ms": "-1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "auto.create.topics.enable": "false",
        "num.network.threads": "2",
        "num.io.threads": "2",
    }


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"
