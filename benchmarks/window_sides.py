"""One side of the windows benchmark, in a process of its own: ``python -m benchmarks.window_sides TASK.json``.

Prints one line of JSON: what it took. Keys of the S3 server are in the environment.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.processes import PeakMemory, Stopwatch
from benchmarks.session import spark_session
from epochal.pipeline import Pipeline
from epochal.protocol.control import CheckpointState, StorageConfig
from epochal.runtime.source import SourceTask
from tests.support.local_job import LocalJob

SCHEMA = "ts timestamp, key long, value long"
SIZE = "10 seconds"
DELAY = "2 seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTask:
    """``store`` is where checkpoints go, ``output`` where results go; both as the side's own client writes them."""

    side: str
    input: str
    store: str
    output: str
    work: str
    endpoint: str | None = None
    region: str | None = None
    interval: float = 10.0
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideResult:
    """``seconds`` is from the first batch's start to the last one's end; ``whole`` until all is committed."""

    seconds: float
    whole: float
    cpu: float
    peak: int
    batches: int
    epochs: int = 0
    batch_seconds: list[float] = field(default_factory=list)


def main() -> int:
    task = SideTask(**json.loads(Path(sys.argv[1]).read_text()))
    spark = spark_session(f"windows-{task.side}", task.conf, defaults=task.side == "epochal")
    # The first job of a JVM loads thousands of classes: neither side is measured by that.
    spark.range(1000).repartition(2).groupBy(F.col("id") % 7).count().collect()
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(task.input)
    with PeakMemory(os.getpid()) as memory:
        watch = Stopwatch()
        progress, epochs = epochal(spark, stream, task) if task.side == "epochal" else structured(stream, task)
        whole, cpu = watch.read()
    begins = [datetime.fromisoformat(one["timestamp"]).timestamp() for one in progress]
    lengths = [one["durationMs"]["triggerExecution"] / 1000 for one in progress]
    result = SideResult(
        seconds=max(b + t for b, t in zip(begins, lengths, strict=True)) - min(begins),
        whole=whole,
        cpu=cpu,
        peak=memory.bytes,
        batches=len(progress),
        epochs=epochs,
        batch_seconds=lengths,
    )
    print("RESULT " + json.dumps(asdict(result)), flush=True)
    return 0


def epochal(spark: SparkSession, stream: DataFrame, task: SideTask) -> tuple[list[dict[str, Any]], int]:
    def build(p: Pipeline) -> None:
        events = p.source("events", stream, event_time="ts", delay=DELAY, bounded=True)
        aggregates = {"n": F.count("*"), "total": F.sum("value")}
        events.window("counts", size=SIZE, keys=["key"], aggregates=aggregates).to_parquet("out", task.output)

    job = LocalJob(spark, build, Path(task.work))
    job.storage = StorageConfig(uri=task.store, endpoint=task.endpoint, region=task.region)
    engine = job.start()
    source = engine._tasks["events"]
    assert isinstance(source, SourceTask)
    shown = _Shown(lambda: source.batch + 1)
    last = time.monotonic()
    while not engine.status().finished and engine.exit_code is None:
        time.sleep(0.05)
        if time.monotonic() - last > task.interval:
            report = job.checkpoint()
            assert report.state is CheckpointState.READY, report.message
            last = time.monotonic()
    assert source.query is not None
    progress = [dict(one) for one in _as_json(source.query.recentProgress) if one["numInputRows"]]
    job.finish()
    shown.done()
    return progress, job.issued


def structured(stream: DataFrame, task: SideTask) -> tuple[list[dict[str, Any]], int]:
    counted = (
        stream.withWatermark("ts", DELAY)
        .groupBy(F.window("ts", SIZE), "key")
        .agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        .select(
            F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "key", "n", "total"
        )
    )
    query = (
        counted.writeStream.format("parquet")
        .outputMode("append")
        .option("path", task.output)
        .option("checkpointLocation", task.store)
        .trigger(availableNow=True)
        .start()
    )
    shown = _Shown(lambda: len(query.recentProgress))
    query.awaitTermination()
    shown.done()
    return [one for one in _as_json(query.recentProgress) if one["numInputRows"]], 0


def _as_json(progress: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(one.json) for one in progress]


class _Shown:
    """Tells the parent how many batches are done."""

    def __init__(self, count: Any) -> None:
        self._count = count
        self._done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._done.wait(1.0):
            print(f"BATCHES {self._count()}", flush=True)

    def done(self) -> None:
        self._done.set()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The JVM does not end by itself while its streams have threads.
    os._exit(code)
