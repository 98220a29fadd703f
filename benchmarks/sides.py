"""One side of the comparison, in a process of its own: ``python -m benchmarks.sides epochal|structured CONF.json``.

Says when it is up, then reads a task a line, as JSON, and answers each with a line of JSON: what it took. Keys of the
S3 server are in the environment.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.processes import PeakMemory, Stopwatch
from benchmarks.session import spark_session
from benchmarks.workloads import Workload, workloads
from epochal.driver import PARTITIONS
from epochal.pipeline import Pipeline
from epochal.protocol.control import CheckpointState, StorageConfig
from epochal.runtime.source import SourceTask
from tests.support.local_job import LocalJob

EPOCHAL, STRUCTURED = "epochal", "structured"
READY, ANSWER = "READY", "ANSWER "


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``store`` is where checkpoints go, ``output`` where results go; both as the side's own client writes them.
    ``interval``: seconds between Epochal's checkpoints."""

    workload: str
    quick: bool
    scale: float
    input: str
    store: str
    output: str
    work: str
    endpoint: str | None
    region: str | None
    interval: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """``seconds`` is from the first measured batch's start to the last one's end; ``whole`` from the start until all
    is committed, with CPU seconds and peak memory of the process and all that it started."""

    seconds: float
    whole: float
    cpu: float
    peak: int
    batches: list[float] = field(default_factory=list)
    epochs: int = 0


def main() -> int:
    side, conf = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    spark = spark_session(f"bench-{side}", conf, defaults=side == EPOCHAL)
    # The first jobs of a JVM load thousands of classes: neither side is measured by that.
    spark.range(1000).repartition(2).groupBy(F.col("id") % 7).count().collect()
    print(READY, flush=True)
    for line in sys.stdin:
        print(ANSWER + json.dumps(asdict(run(spark, side, Task(**json.loads(line))))), flush=True)
    return 0


def run(spark: SparkSession, side: str, task: Task) -> Took:
    workload = next(one for one in workloads(quick=task.quick, scale=task.scale) if one.name == task.workload)
    spark.conf.set(PARTITIONS, str(workload.partitions))
    stream = spark.readStream.schema(workload.input.schema).option("maxFilesPerTrigger", 1).parquet(task.input)
    with PeakMemory(os.getpid()) as memory:
        watch = Stopwatch()
        if side == EPOCHAL:
            queries, epochs = epochal(spark, stream, workload, task)
        else:
            queries, epochs = [structured(stream, workload, task)], 0
        whole, cpu = watch.read()
    spans = [span for query in queries for span in _spans(query, workload.input.load)]
    return Took(
        seconds=max(end for _, end in spans) - min(begin for begin, _ in spans),
        whole=whole,
        cpu=cpu,
        peak=memory.bytes,
        batches=[end - begin for begin, end in spans],
        epochs=epochs,
    )


def _spans(query: StreamingQuery, load: int) -> Iterator[tuple[float, float]]:
    """When each measured batch began and ended. A batch without rows only closes windows."""
    progress = [json.loads(one.json) for one in query.recentProgress]
    for one in [one for one in progress if one["numInputRows"]][load:]:
        begin = datetime.fromisoformat(one["timestamp"]).timestamp()
        yield begin, begin + one["durationMs"]["triggerExecution"] / 1000


def epochal(spark: SparkSession, stream: DataFrame, workload: Workload, task: Task) -> tuple[list[StreamingQuery], int]:
    def build(p: Pipeline) -> None:
        workload.epochal(p, stream).to_parquet("out", task.output)

    job = LocalJob(spark, build, Path(task.work))
    job.storage = StorageConfig(uri=task.store, endpoint=task.endpoint, region=task.region)
    engine = job.start()
    last = time.monotonic()
    while not engine.status().finished and engine.exit_code is None:
        time.sleep(0.05)
        if time.monotonic() - last > task.interval:
            report = job.checkpoint()
            assert report.state is CheckpointState.READY, report.message
            last = time.monotonic()
    sources = [one for one in engine._tasks.values() if isinstance(one, SourceTask)]
    queries = [source.query for source in sources if source.query is not None]
    job.finish()
    return queries, job.issued


def structured(stream: DataFrame, workload: Workload, task: Task) -> StreamingQuery:
    result = workload.structured(stream)
    if task.endpoint is not None:
        # Each bucket has a server of its own, with or without delay.
        bucket = task.store.split("/")[2]
        result.sparkSession.conf.set(f"fs.s3a.bucket.{bucket}.endpoint", task.endpoint)
        configuration: Any = result.sparkSession.sparkContext._jsc.hadoopConfiguration()
        configuration.set(f"fs.s3a.bucket.{bucket}.endpoint", task.endpoint)
    writer = result.writeStream.option("checkpointLocation", task.store).trigger(availableNow=True)
    if workload.updates is None:
        query = writer.format("parquet").outputMode("append").option("path", task.output).start()
    else:
        # Files of Spark's own are for appending only. These go to local disk, which costs less than S3.
        directory = Path(task.work) / "updates"

        def write(rows: DataFrame, batch: int) -> None:
            rows.write.parquet(str(directory / str(batch)))

        query = writer.outputMode("update").foreachBatch(write).start()
    query.awaitTermination()
    return query


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The JVM does not end by itself while its streams have threads.
    os._exit(code)
