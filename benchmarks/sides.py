"""One side of the comparison, in a process of its own: ``python -m benchmarks.sides KIND CONF.json``.

Says when it is up, then reads a task a line, as JSON, and answers each with a line of JSON: what it took, or what went
wrong. Keys of the S3 server are in the environment.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.session import spark_session
from benchmarks.spans import Batch, Feeder, batches_of, committed_at, file_ends
from benchmarks.workloads import Workload, workloads
from epochal.driver import PARTITIONS
from epochal.protocol.control import CheckpointReport, CheckpointState, OperatorEvent, StorageConfig
from epochal.protocol.epochs import Epoch
from epochal.runtime.dataflow.source import SourceTask
from epochal.runtime.engine import Engine
from tests.support.local_job import LocalJob

EPOCHAL = "epochal"
READY, ANSWER = "READY", "ANSWER "


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``store`` is where checkpoints go, ``output`` where results go; both as the side's own client writes them.
    ``interval``: seconds between Epochal's checkpoints, None for one at the end only. ``kill_after`` so many batches
    the side kills itself; with ``generation`` 2 it goes on where the killed one was. ``floor``: only read. ``again``:
    without what only warms up."""

    workload: str
    quick: bool
    scale: float
    input: str
    store: str
    output: str
    work: str
    endpoint: str | None
    region: str | None
    interval: float | None
    kill_after: int | None = None
    generation: int = 1
    floor: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Moments are seconds since 1970. ``begin`` is when the first batch began, ``measured`` when the first measured one
    did, ``end`` when the last one was done, ``committed`` when all results were. ``batches``: seconds of each measured
    one; ``ends``: number and end of every batch. ``checkpoints`` and ``pauses``: seconds that each took, and that
    processing waited for it. ``computed`` and ``visible``: seconds from a file's arrival to its result, of a paced
    input."""

    begin: float
    measured: float
    end: float
    committed: float
    batches: list[float]
    ends: list[tuple[int, float]]
    checkpoints: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    inside: int = 0
    """Checkpoints that ended between ``measured`` and ``end``."""
    computed: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.end - self.measured


def main() -> int:
    side, conf = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    spark = spark_session(f"bench-{side}", conf, defaults=side == EPOCHAL)
    # The first jobs of a JVM load thousands of classes: neither side is measured by that.
    spark.range(1000).repartition(2).groupBy(F.col("id") % 7).count().collect()
    print(READY, flush=True)
    for line in sys.stdin:
        try:
            answer = asdict(run(spark, side, Task(**json.loads(line))))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(ANSWER + json.dumps(answer), flush=True)
    return 0


def run(spark: SparkSession, side: str, task: Task) -> Took:
    workload = next(one for one in workloads(quick=task.quick, scale=task.scale) if one.name == task.workload)
    return run_workload(spark, side, workload.again() if task.again else workload, task)


def run_workload(spark: SparkSession, side: str, workload: Workload, task: Task) -> Took:
    spark.conf.set(PARTITIONS, str(workload.partitions))
    feeder = None if workload.pace is None else Feeder(Path(task.input), Path(task.work) / "fed", workload.pace)
    reader = spark.readStream.schema(workload.input.schema)
    if feeder is None:
        stream = reader.option("maxFilesPerTrigger", 1).parquet(task.input)
    else:
        stream = reader.parquet(str(feeder.directory))
    running = _epochal if side == EPOCHAL else _structured
    return running(spark, stream, workload, task, feeder)


def _took(workload: Workload, task: Task, batches: list[list[Batch]], committed: float) -> Took:
    """``batches`` of each query. A batch is a file, or more where files come faster than they are taken."""
    measured = [one for query in batches for one in _after_load(query, workload, task)]
    every = [one for query in batches for one in query]
    if not measured:
        raise RuntimeError(f"only {len(every)} batches were run, none of them to be measured")
    return Took(
        begin=min(one.begin for one in every),
        measured=min(one.begin for one in measured),
        end=max(one.end for one in measured),
        committed=committed,
        batches=[one.end - one.begin for one in measured],
        ends=sorted((one.number, one.end) for one in every),
    )


def _after_load(batches: list[Batch], workload: Workload, task: Task) -> list[Batch]:
    if workload.pace is None:
        return batches[workload.input.load :] if task.generation == 1 else batches
    loaded = file_ends(batches, workload.input.sizes[: workload.input.load])[-1]
    return [one for one in batches if one.end > loaded]


def _paced(workload: Workload, feeder: Feeder, batches: list[Batch], visible: Callable[[float], float | None]) -> Any:
    """Seconds from the arrival of each measured file until its rows were computed, and until that was visible."""
    ends = file_ends(batches, workload.input.sizes)
    # The report of a batch may be missing if its query was stopped right after it.
    known = list(zip(feeder.arrivals, ends, strict=False))[workload.input.load :]
    seen = [(arrived, visible(end)) for arrived, end in known]
    return {
        "computed": [end - arrived for arrived, end in known],
        "visible": [at - arrived for arrived, at in seen if at is not None],
    }


# --- Epochal ---


class EpochalRun:
    """One job, with its timer for checkpoints."""

    def __init__(self, spark: SparkSession, stream: DataFrame, workload: Workload, task: Task) -> None:
        self._task = task
        self._issued = Path(task.work) / "issued"
        self.job = LocalJob(
            spark, lambda p: workload.epochal(p, stream).to_parquet("out", task.output), Path(task.work)
        )
        self.job.storage = StorageConfig(uri=task.store, endpoint=task.endpoint, region=task.region)
        self.job.generation = task.generation - 1
        with suppress(OSError):
            # What a controller keeps in its record: the number of the last epoch that was asked for.
            self.job.issued = Epoch(int(self._issued.read_text()))
        self.reports: list[CheckpointReport] = []
        self.engine: Engine = self.job.start()
        self.sources = [one for one in self.engine._tasks.values() if isinstance(one, SourceTask)]
        self._last = time.monotonic()

    @property
    def batch(self) -> int:
        return min(source.batch for source in self.sources)

    def checkpoint(self, *, then_stop: bool = False) -> None:
        self._issued.write_text(str(self.job.issued + 1))
        report = self.job.checkpoint(then_stop=then_stop)
        assert report.state is CheckpointState.READY, report.message
        self.reports.append(report)
        self._last = time.monotonic()

    def until(self, done: Callable[[], bool]) -> None:
        """Let it run, with checkpoints by the clock."""
        while not done():
            if self.engine.exit_code is not None:
                raise RuntimeError(self.engine.status().message)
            time.sleep(0.02)
            if self._task.interval is not None and time.monotonic() - self._last > self._task.interval:
                self.checkpoint()

    def rows(self) -> int:
        return min(source.report().rows for source in self.sources)

    def batches(self, partitions: int) -> list[list[Batch]]:
        return [batches_of(source.query, partitions) for source in self.sources if source.query is not None]


def _epochal(spark: SparkSession, stream: DataFrame, workload: Workload, task: Task, feeder: Feeder | None) -> Took:
    running = EpochalRun(spark, stream, workload, task)
    if task.kill_after is not None:
        running.until(lambda: running.batch + 1 >= workload.input.load)
        running.checkpoint()
        _kill_when(lambda: running.batch, task)
    if feeder is None:
        running.until(lambda: running.engine.status().finished)
    else:
        feeder.start()
        running.until(lambda: running.rows() >= sum(workload.input.sizes))
    periodic = list(running.reports)
    running.checkpoint(then_stop=True)
    committed = time.time()
    running.job._join()
    batches = running.batches(workload.partitions)
    took = _took(workload, task, batches, committed)
    paced = {} if feeder is None else _paced(workload, feeder, batches[0], committed_at(periodic))
    # The last checkpoint is of a job that has nothing else to do, so it counts only where there is no other.
    spans = [(one.started / 1e6, (one.finished or one.started) / 1e6) for one in periodic or running.reports]
    waits = [wait for source in running.sources for wait in source.pauses]
    return replace(
        took,
        checkpoints=[end - begin for begin, end in spans],
        pauses=[*waits, *(_sync(report) for report in running.reports)],
        inside=sum(took.measured <= end <= took.end for _, end in spans),
        **paced,
    )


def _sync(report: CheckpointReport) -> float:
    """Seconds in which operators could not take rows because of the barrier."""
    begin, end = OperatorEvent.STARTED_CHECKPOINTING, OperatorEvent.FINISHED_SYNC
    return max((one.events[end] - one.events[begin]) / 1e6 for one in report.operators)


# --- Structured Streaming ---


def _structured(spark: SparkSession, stream: DataFrame, workload: Workload, task: Task, feeder: Feeder | None) -> Took:
    if task.endpoint is not None:
        # Each bucket has a server of its own, with or without delay.
        key = f"fs.s3a.bucket.{task.store.split('/')[2]}.endpoint"
        spark.conf.set(key, task.endpoint)
        configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        configuration.set(key, task.endpoint)
    if task.floor:
        query = (
            stream.writeStream.option("checkpointLocation", task.store)
            .format("noop")
            .trigger(availableNow=True)
            .start()
        )
    else:
        query = _started(workload.structured(stream), workload, task)
    if task.kill_after is not None:
        _kill_when(lambda: (query.lastProgress or {"batchId": -1})["batchId"], task)
    if feeder is None:
        query.awaitTermination()
    else:
        feeder.start()
        while sum(one.rows for one in batches_of(query, 1)) < sum(workload.input.sizes):
            if error := query.exception():
                raise error
            time.sleep(0.5)
    batches, committed = batches_of(query, workload.partitions), time.time()
    if feeder is not None:
        query.stop()
    took = _took(workload, task, [batches], committed if feeder is None else batches[-1].end)
    # It writes its checkpoint within every batch, and the next one waits for that.
    waits = [one.waits for one in _after_load(batches, workload, task)]
    paced = {} if feeder is None else _paced(workload, feeder, batches, lambda end: end)
    return replace(took, checkpoints=waits, pauses=waits, inside=len(waits), **paced)


def _started(result: DataFrame, workload: Workload, task: Task) -> StreamingQuery:
    writer = result.writeStream.option("checkpointLocation", task.store)
    if workload.pace is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{workload.pace:g} seconds")
    if workload.updates is None:
        return writer.format("parquet").outputMode("append").option("path", task.output).start()
    # Files of Spark's own are for appending only. These go to local disk, which costs less than S3.
    directory = Path(task.work) / "updates"

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(directory / str(batch)))

    return writer.outputMode("update").foreachBatch(write).start()


# --- both ---


def _kill_when(newest: Callable[[], int], task: Task) -> None:
    """End like a machine that loses its power: this process, its JVM and its workers at once."""
    assert task.kill_after is not None
    while newest() + 1 < task.kill_after:
        time.sleep(0.05)
    (Path(task.work) / "killed").write_text(str(newest()))
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The JVM does not end by itself while its streams have threads.
    os._exit(code)
