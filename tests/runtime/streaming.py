"""A job whose micro-batches the test feeds by hand.

Which rows come together, in which order, where an epoch is made and where the driver is lost are all up to the test, so
an operator can be compared with a batch query over any of them.

Everything is real but the sources' queries and the processes that write Parquet: the graph, the tasks, the state
tables, the epochs in the store and the restoring of them.

    def build(p: Pipeline, job: FedJob) -> None:
        orders = job.source(p, "orders", "id long, at timestamp", event_time="at", delay="10 seconds")
        job.collect("out", orders.deduplicate("once", keys=["id"]))

    job = FedJob(spark, build, tmp_path)
    job.play({"orders": [[(1, at(0)), (2, at(1))], [(1, at(0))]]}, random.Random(1))
    assert job.rows("out") == [(1, at(0)), (2, at(1))]
"""

import io
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType, VariantType

from epochal import Pipeline, Stream
from epochal.connectors.registry import AllConnectors
from epochal.protocol.control import CheckpointState
from epochal.protocol.documents import RunPart, StoredRun
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import StateName
from epochal.runtime.dataflow.graph import Graph
from epochal.runtime.dataflow.source import SourceTask
from epochal.runtime.engine import Engine
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.parquet import with_nulls
from epochal.runtime.state.persistence import Persistence, store_of
from epochal.runtime.state.state_objects import read_part, schema_of
from epochal.runtime.state.stored_types import contains
from epochal.runtime.state.tables import Run, union
from tests.support.local_job import LocalJob

Rows = list[tuple[Any, ...]]
Batch = Rows | DataFrame

START = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = "spark.sql.shuffle.partitions"


def at(seconds: float) -> datetime:
    """A moment so long after the beginning, as Spark gives it back: local time without a zone."""
    return (START + timedelta(seconds=seconds)).astimezone().replace(tzinfo=None)


def ordered(rows: Iterable[Row | tuple[Any, ...]]) -> Rows:
    """Rows in an order of their own, floats rounded: sums depend on the order of addition."""
    return sorted((tuple(_rounded(value) for value in row) for row in rows), key=repr)


def _rounded(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


class FedJob(LocalJob):
    """One job over its generations, fed by hand. Sources are those of the pipeline, whatever they read from: their
    queries are never started, and :meth:`feed` gives them a batch."""

    def __init__(self, spark: SparkSession, build: Callable[[Pipeline, "FedJob"], None], directory: Path) -> None:
        super().__init__(spark, lambda p: build(p, self), directory)
        self.fed: list[tuple[str, Batch]] = []
        """All batches that count, in order: a batch that was lost with its driver is no longer here."""
        self._fed_until: dict[Epoch, int] = {Epoch(0): 0}
        self._collected: dict[str, dict[int, list[Row]]] = {}

    # --- the pipeline's ends ---

    def source(self, p: Pipeline, name: str, schema: str, **options: Any) -> Stream:
        """A source of that schema, to be fed. ``options`` are those of ``p.source``."""
        nothing = self.directory / "nothing"
        nothing.mkdir(exist_ok=True)
        return p.source(name, p.spark.readStream.schema(schema).json(str(nothing)), **options)

    def collect(self, name: str, stream: AllConnectors) -> None:
        """A sink, whose rows :meth:`rows` gives."""
        epochs = self._collected.setdefault(name, {})
        stream.for_each_epoch(name, lambda rows, epoch: epochs.update({epoch: rows.collect()}))

    def rows(self, name: str) -> Rows:
        """What came out at a sink in all epochs."""
        return ordered(row for rows in self._collected[name].values() for row in rows)

    def of_epoch(self, name: str, epoch: int) -> Rows:
        """What came out at a sink in one epoch."""
        return ordered(self._collected[name].get(epoch, []))

    def exact(self, name: str) -> Rows:
        """The same, floats to the last digit, in the order of epochs."""
        return [tuple(row) for _, rows in sorted(self._collected[name].items()) for row in rows]

    def frame(self, name: str) -> DataFrame:
        """The same as a frame; its rows keep the epochs' order."""
        rows = [row for _, rows in sorted(self._collected[name].items()) for row in rows]
        return self.spark.createDataFrame(rows)

    # --- step by step ---

    def feed(self, source: str, batch: Batch) -> None:
        """Give a source one micro-batch, and let it through the whole graph."""
        task = self._source_task(source)
        task._process(batch if isinstance(batch, DataFrame) else _frame(self.spark, batch, task.spec.read().schema))
        task.batch += 1
        self.fed.append((source, batch))

    def checkpoint(self, *, then_stop: bool = False, wait: bool = True) -> Any:
        report = super().checkpoint(then_stop=then_stop, wait=wait)
        assert report.state is CheckpointState.READY, report.message
        self._fed_until[report.epoch] = len(self.fed)
        return report

    def lose_driver(self, partitions: int | None = None) -> list[tuple[str, Batch]]:
        """Go on from the newest epoch, as after a crash, with so many partitions. Returns the batches that are lost
        with the driver and have to be fed again."""
        self.crash()
        if partitions is not None:
            self.spark.conf.set(PARTITIONS, str(partitions))
        kept = self._fed_until[self.completed]
        self.fed, lost = self.fed[:kept], self.fed[kept:]
        self.start()
        return lost

    def finish(self) -> None:
        """Tell all sources that nothing comes any more, make the last checkpoint, and stop."""
        for task in self._source_tasks():
            task._end()
        self.checkpoint(then_stop=True)
        self._join()

    def start(self, **options: Any) -> Engine:
        engine = super().start(**options)
        assert engine.exit_code is None, engine.status().message
        for task in self._source_tasks():
            task._on_error = _raise
        return engine

    # --- all of it, by chance ---

    def play(self, batches: Mapping[str, list[Batch]], chance: random.Random, *, losses: int = 2) -> None:
        """Feed all batches, those of different sources in any order; make epochs at times; lose the driver so often,
        each time with another number of partitions; and finish. Each loss is one batch after an epoch or more: there
        is something to restore, and something to feed again."""
        before = self.spark.conf.get(PARTITIONS)
        total = sum(map(len, batches.values()))
        losing = sorted(chance.sample(range(2, total + 1), min(losses, total - 1)))
        waiting = {name: list(ones) for name, ones in batches.items()}
        try:
            self.start()
            while any(waiting.values()):
                name = chance.choice([name for name, ones in waiting.items() if ones])
                self.feed(name, waiting[name].pop(0))
                lost_next = bool(losing) and len(self.fed) == losing[0] - 1
                lost_now = bool(losing) and len(self.fed) >= losing[0]
                if lost_next or (chance.random() < 0.25 and not lost_now):
                    self.checkpoint()
                if lost_now:
                    losing.pop(0)
                    others = [count for count in (1, 2, 3) if str(count) != self.spark.conf.get(PARTITIONS)]
                    for lost, batch in reversed(self.lose_driver(chance.choice(others))):
                        waiting[lost].insert(0, batch)
            self.finish()
        finally:
            self.spark.conf.set(PARTITIONS, before or "2")

    # --- inside ---

    def _engine(self, config: Any) -> Engine:
        return _FedEngine(config)

    def _source_tasks(self) -> list[SourceTask]:
        return [task for task in self._running()._tasks.values() if isinstance(task, SourceTask)]

    def _source_task(self, name: str) -> SourceTask:
        return next(task for task in self._source_tasks() if task.name == name)


class _FedEngine(Engine):
    """Neither starts its sources nor finds them idle."""

    def _start(self, spark: SparkSession, graph: Graph) -> None:
        with mock.patch("epochal.runtime.engine.Persistence", _DriverPersistence):
            super()._start(spark, graph)

    def _sources(self) -> list[SourceTask]:
        return []


class _DriverPersistence(Persistence):
    """The same objects in the same store, written and read by the driver: workers in Python would take longer to start
    than all else together."""

    def write(
        self, runs: list[Run], latest: LatestTable | None, *, operator: str, table: str, epoch: Epoch, number: int
    ) -> tuple[RunPart, ...]:
        frame = union(run.frame for run in runs) if latest is None else latest.frame([run.number for run in runs])
        assert frame is not None
        rows, buffer = _as_arrow(frame), io.BytesIO()
        pq.write_table(rows, buffer)
        name = StateName(operator=operator, table=table, epoch=epoch, generation=self._generation, run=number, part=0)
        target = self._paths.state_object(name)
        store_of(self._storage).create(target, buffer.getvalue())
        return (RunPart(object=target, rows=rows.num_rows, bytes=len(buffer.getvalue())),)

    def write_small(
        self, runs: list[Run], *, operator: str, table: str, epoch: Epoch, numbers: list[int]
    ) -> list[RunPart]:
        return [
            self.write([run], None, operator=operator, table=table, epoch=epoch, number=number)[0]
            for run, number in zip(runs, numbers, strict=True)
        ]

    def _frame(self, stored: StoredRun) -> DataFrame:
        store = store_of(self._storage)
        batches = [batch for part in stored.parts for batch in read_part(store, part)]
        table = pa.Table.from_batches(batches, schema_of(store, stored.parts[0]))
        schema = from_arrow_schema(table.schema)
        if contains(schema, (VariantType,)):  # Spark cannot take those from Arrow here, if some are null
            return super()._frame(stored)
        return self._spark.createDataFrame(table, schema)


def _as_arrow(frame: DataFrame) -> pa.Table:
    """As executors get it: ``toArrow`` fails where a variant is null."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    batches = frame._collect_as_arrow()  # type: ignore[operator]
    return pa.Table.from_batches(map(with_nulls, batches)) if batches else schema.empty_table()


def _frame(spark: SparkSession, rows: Rows, schema: StructType) -> DataFrame:
    """By way of Arrow: rows from a Python list would pass through a Python process with every batch."""
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    for row in named:
        row |= {name: value.astimezone(UTC) for name, value in row.items() if isinstance(value, datetime)}
    return spark.createDataFrame(pa.Table.from_pylist(named, to_arrow_schema(schema, timezone="UTC")), schema)


def _raise(error: BaseException) -> None:
    raise error


def batches_of(rows: Rows, chance: random.Random, *, most: int) -> list[Batch]:
    """Rows cut into batches of chance sizes, some of them empty."""
    cut: list[Batch] = []
    while rows:
        size = chance.choice([0, *range(most // 3, most + 1)]) if cut else most
        cut.append(rows[:size])
        rows = rows[size:]
    return cut
