"""A process that does nothing but commit: epoch after epoch into every exactly-once sink, as a driver does after each
manifest. ``test_commits.py`` kills it again and again."""

import json
import os
from multiprocessing.connection import Connection
from pathlib import Path

from pyspark.sql import DataFrame

from epochal.protocol.control import StorageConfig
from epochal.runtime.operator import SinkOperator
from epochal.sinks.delta import DeltaSink, DeltaTarget
from epochal.sinks.iceberg import IcebergSink, IcebergTarget
from epochal.sinks.kafka import KafkaSink, KafkaTarget
from epochal.sinks.parquet import ParquetSink
from epochal.sinks.postgres import PostgresSink
from epochal.sinks.postgres_target import PostgresTarget
from tests.exactly_once.connectors import catalog
from tests.sinks.commits import SCHEMA, Commits, Described


def sinks(config: dict[str, str], commits: Commits) -> dict[str, SinkOperator]:
    described: list[DataFrame] = [Described(SCHEMA)]
    delta = DeltaSink(DeltaTarget(uri=config["delta"]), commits.storage)
    iceberg = IcebergSink(IcebergTarget(table="shop.rows", catalog=catalog(config["iceberg"])), commits.storage)
    for sink in (delta, iceberg):
        sink.schema_of(described)
    return {
        "postgres": PostgresSink(PostgresTarget(dsn=config["dsn"], table="words"), commits.storage),
        "kafka": KafkaSink(KafkaTarget(bootstrap=config["kafka"], topic="words"), commits.storage),
        "delta": delta,
        "iceberg": iceberg,
        "parquet": ParquetSink(StorageConfig(uri=Path(config["parquet"]).as_uri()), commits.storage),
    }


def main(path: str, generation: int, started: Connection) -> None:
    """From the epoch after the last one noted: what was begun and not noted is committed again. ``started`` is told
    when the sinks have taken over."""
    config = json.loads(Path(path).read_text())
    os.environ["PGPASSWORD"] = config["password"]
    commits, noted = Commits(Path(config["store"])), Path(config["noted"])
    ends = sinks(config, commits)
    epochs: list[dict[str, list[str]]] = config["epochs"]
    done = int(noted.read_text()) if noted.exists() else 0
    for name, sink in ends.items():
        sink.on_start(commits.context(generation, newest_epoch=done + 1, name=name))
    started.send(True)
    for number in range(done + 1, len(epochs) + 1):
        for name, sink in ends.items():
            kind = "kafka" if name == "kafka" else "rows"
            sink.commit(number, None, epochs[number - 1][kind], commits.context(generation, name=name))
        partial = noted.with_suffix(".partial")
        partial.write_text(str(number))
        partial.rename(noted)
