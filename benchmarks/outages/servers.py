"""The servers that jobs need, each a real one of its own, where pods reach it: its end concerns nobody else."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql

from cluster.layout import HOST_ADDRESS
from cluster.s3 import BUCKET, S3Access
from tests.support.kafka.broker import KafkaBroker, Record
from tests.support.postgres import PostgresServer
from tests.support.s3 import S3Server
from tests.support.server import Server

ROWS = 20
"""Of one micro-batch."""

INPUT, RECORDS = "orders", 60_000
"""A topic that lasts for hours of micro-batches."""


@dataclass(frozen=True)
class Servers:
    s3: S3Server
    postgres: PostgresServer
    kafka: KafkaBroker
    database: str

    def named(self, name: str) -> Server:
        return {"S3": self.s3, "PostgreSQL": self.postgres, "Kafka": self.kafka}[name]

    def access(self) -> S3Access:
        return S3Access(self.s3.endpoint, BUCKET, self.s3.region, self.s3.access_key, self.s3.secret_key)

    def make_table(self, name: str) -> None:
        columns = "window_start timestamptz, window_end timestamptz, shop bigint, orders bigint, total bigint"
        with psycopg.connect(self.database, autocommit=True) as db:
            db.execute(sql.SQL(f"CREATE TABLE {{}} ({columns})").format(sql.Identifier(name)))

    def table_rows(self, name: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.database) as db:
            query = sql.SQL("SELECT window_start, shop, orders, total FROM {}").format(sql.Identifier(name))
            found = db.execute(query).fetchall()
        return [dict(zip(("window_start", "shop", "orders", "total"), row, strict=True)) for row in found]

    def topic_rows(self, name: str) -> list[dict[str, Any]]:
        """As a reader sees them that reads what is committed only."""
        rows = [json.loads(value) for _, value in self.kafka.committed(name) if value is not None]
        return [row | {"window_start": datetime.fromtimestamp(row["window_start"], UTC)} for row in rows]


@contextmanager
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        s3 = stack.enter_context(S3Server(host=HOST_ADDRESS))
        postgres = stack.enter_context(PostgresServer(host=HOST_ADDRESS))
        kafka = stack.enter_context(KafkaBroker(host=HOST_ADDRESS))
        s3.make_bucket(BUCKET)
        kafka.make_topic(INPUT, 1)
        kafka.send(INPUT, (Record(0, str(number).encode()) for number in range(RECORDS)))
        yield Servers(s3, postgres, kafka, postgres.make_database())
