"""Processes that do nothing but commit: epoch after epoch into every exactly-once sink, as a driver does after each
manifest; and the same that go back each time they start. ``test_commits.py`` and ``test_going_back.py`` kill them again
and again."""

import json
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from epochal.connectors.delta.sink import DeltaSink, DeltaTarget
from epochal.connectors.iceberg.sink import IcebergSink, IcebergTarget
from epochal.connectors.kafka.sink import KafkaSink, KafkaTarget
from epochal.connectors.parquet.sink import ParquetSink
from epochal.connectors.postgres.sink import PostgresSink
from epochal.connectors.postgres.target import PostgresTarget
from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from tests.connectors.commits import SCHEMA, Commits, Described
from tests.exactly_once.connectors import catalog


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
        sink.open(commits.context(generation, newest_epoch=done + 1, name=name))
    started.send(True)
    for number in range(done + 1, len(epochs) + 1):
        for name, sink in ends.items():
            kind = "kafka" if name == "kafka" else "rows"
            sink.commit(number, None, epochs[number - 1][kind], commits.context(generation, name=name))
        note(noted, str(number))


def note(noted: Path, text: str) -> None:
    partial = noted.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(noted)


def going_back(path: str, generation: int, started: Connection) -> None:
    """Goes back by as many epochs as the configuration says, takes their rows back, and writes them again under numbers
    of their own. Noted are the number of each epoch that counts, and the highest that was given out: both before
    anything is done by them."""
    config = json.loads(Path(path).read_text())
    os.environ["PGPASSWORD"] = config["password"]
    commits, noted = Commits(Path(config["store"])), Path(config["noted"])
    ends = {name: sink for name, sink in sinks(config, commits).items() if sink.can_take_back}
    given: list[dict[str, list[str]]] = config["epochs"]
    known: dict[str, Any] = json.loads(noted.read_text()) if noted.exists() else {"line": [], "newest": 0}
    line: list[int] = known["line"][: max(0, len(known["line"]) - config["back"][generation])]
    newest: int = known["newest"]
    note(noted, json.dumps({"line": line, "newest": newest}))
    contexts = {name: commits.context(generation, newest_epoch=newest, name=name) for name in ends}
    for name, sink in ends.items():
        sink.open(contexts[name])
    started.send(True)
    for name, sink in ends.items():
        sink.take_back(line[-1] if line else 0, contexts[name])
    while len(line) < len(given):
        newest += 1
        note(noted, json.dumps({"line": line, "newest": newest}))
        for name, sink in ends.items():
            sink.commit(newest, None, given[len(line)]["rows"], contexts[name])
        line.append(newest)
        note(noted, json.dumps({"line": line, "newest": newest}))
