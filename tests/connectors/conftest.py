"""Fixtures of the sinks' tests: the servers, one of each for all tests of a process."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.commits import Commits
from tests.connectors.receiver import Receiver, receiving
from tests.support.kafka.broker import KafkaBroker
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    """A database that no other test knows."""
    return postgres_server.make_database()


@pytest.fixture
def commits(tmp_path: Path) -> Commits:
    return Commits(tmp_path / "store")


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    """A topic that no other test knows, with two partitions."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    broker.make_topic(name, 2)
    return name


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found
