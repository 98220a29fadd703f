"""Small inputs and pipelines for tests of what goes wrong."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal import Pipeline, Stream
from epochal.protocol.barrier import CheckpointBarrier
from epochal.runtime.dataflow.operator import (
    MAIN,
    Batch,
    BindContext,
    BoundOperator,
    Collector,
    Operator,
    OperatorContext,
)
from epochal.runtime.state.tables import GlobalTable, KeyedTimeTable
from tests.support.local_job import LocalJob
from tests.support.proxy import CountingProxy

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id long, at timestamp"


def moment(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


class Files:
    """A directory that a file source reads, one file a batch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir()
        self._count = 0
        self._ids = 0

    def add(self, *seconds: float) -> None:
        """A file with a row for each event time."""
        rows = []
        for second in seconds:
            self._ids += 1
            rows.append(json.dumps({"id": self._ids, "at": moment(second)}))
        self.add_text("\n".join(rows) + "\n")

    def add_text(self, text: str) -> None:
        path = self.directory / f"{self._count:04d}.json"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(text)
        # The file source takes files by age, and must not see half a file.
        os.utime(hidden, (1_000_000_000 + self._count, 1_000_000_000 + self._count))
        hidden.rename(path)
        self._count += 1

    def read(self, p: Pipeline, name: str = "rows", **options: Any) -> Stream:
        stream = p.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.directory))
        return p.source(name, stream, event_time="at", **options)


def ids(spark: SparkSession, directory: Path) -> list[int]:
    """The ids in a sink's output, each as often as it is there."""
    if not list(directory.glob("*.parquet")):
        return []
    return sorted(row[0] for row in spark.read.parquet(str(directory)).select("id").collect())


class Gate(Operator):
    """Lets batches through while it is open, and waits while it is not."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Event()

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return _Gate(self, inputs[0])


class _Gate(BoundOperator):
    def __init__(self, gate: Gate, rows: StructType) -> None:
        super().__init__({MAIN: rows})
        self._gate = gate

    def process(self, batch: Batch, out: Collector) -> None:
        if not self._gate.open.is_set():
            self._gate.waiting.set()
            self._gate.open.wait(60)
        out.emit(batch.frame)


class Counting(Operator):
    """Keeps how many rows it saw, and their ids; says at checkpoints whether it takes part."""

    def __init__(self, takes_part: Callable[[], bool] = lambda: True) -> None:
        self.takes_part = takes_part
        self.total = 0
        self.restored_ids = 0

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return _Counting(self, inputs[0])


class _Counting(BoundOperator):
    """Tells the test what it counts."""

    def __init__(self, told: Counting, rows: StructType) -> None:
        self._told = told
        self._table = GlobalTable("total")
        self._seen = KeyedTimeTable("seen")
        super().__init__({MAIN: rows}, [self._table, self._seen])

    def on_start(self, ctx: OperatorContext) -> None:
        self._told.total = self._table.get("rows", 0)
        self._told.restored_ids = sum(run.rows for run in self._seen.runs)

    def process(self, batch: Batch, out: Collector) -> None:
        self._told.total += self._seen.append(batch.frame, F.col("at")).rows
        self._table.put("rows", self._told.total)
        out.emit(batch.frame)

    def handle_checkpoint(self, barrier: CheckpointBarrier, ctx: OperatorContext, out: Collector) -> bool:
        return self._told.takes_part()


def through(proxy: CountingProxy, job: LocalJob) -> LocalJob:
    """The same job, with a proxy between it and its store."""
    job.storage = msgspec.structs.replace(job.storage, endpoint=proxy.endpoint)
    return job
