"""One broker process: controller and broker in one, with its own ports and log directory."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.kafka.jars import BROKER, jars
from tests.support.processes import free_port, holds_port, start_server

with warnings.catch_warnings():
    # The client reads its own files in a way that Python 3.11 frowns upon.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic

START_TIMEOUT = 60.0
PORT_ATTEMPTS = 3
JVM = [
    # One small node: what a JVM takes by default would be a quarter of the machine.
    *("-Xms96m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # Java would listen on an IPv6 socket, also for an IPv4 address.
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]


class KafkaBrokerError(Exception):
    """The broker did not come up; the message holds the end of its log."""


class KafkaBroker:
    def __init__(self) -> None:
        self._classpath = ":".join(map(str, jars(BROKER)))
        self._home = Path(tempfile.mkdtemp(prefix="epochal-kafka-"))
        self._log = self._home / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port: int | None = None

    @property
    def address(self) -> str:
        if self.port is None:
            raise KafkaBrokerError("the broker was never started")
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        for _ in range(PORT_ATTEMPTS):
            port, controller = free_port(), free_port()
            if self._start_on(port, controller):
                self.port = port
                return
        raise KafkaBrokerError(f"Kafka did not start:\n{self._log_end()}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def make_topic(self, name: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])
        finally:
            admin.close()

    def produce(self, topic: str, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Send rows as JSON, each to the partition that it names, and wait until all are there."""
        producer = KafkaProducer(bootstrap_servers=self.address, acks="all", linger_ms=20)
        try:
            sent = [
                producer.send(topic, value=json.dumps(row).encode(), partition=partition) for partition, row in rows
            ]
            producer.flush(timeout=60)
            for one in sent:
                one.get(timeout=10)
        finally:
            producer.close(timeout=10)

    def _start_on(self, port: int, controller: int) -> bool:
        data = self._home / f"data-{port}"
        settings = self._home / f"server-{port}.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in _settings(port, controller, data).items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        java = [_java(), *JVM, "-cp", self._classpath]
        with self._log.open("ab") as log:
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
                stdout=log, stderr=log, check=True, timeout=START_TIMEOUT,
            )  # fmt: skip
            self._process = start_server([*java, "kafka.Kafka", str(settings)], env=os.environ, log=log)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self._process.poll() is None:
            if holds_port(self._process.pid, port):
                return True
            time.sleep(0.05)
        self.stop()
        return False

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _settings(port: int, controller: int, data: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
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
