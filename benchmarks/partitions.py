"""What the watermarks of Kafka partitions cost a batch: the same rows, said to be of more and more partitions.

Rows are in memory already, so that what Spark's Kafka source takes for many partitions is not in the figures.

make bench-partitions
python -m benchmarks.partitions --rows 100000
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.report import conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from epochal.api.pipeline import Pipeline
from epochal.runtime.dataflow.partitions import FEW, NUMBER, TOPIC, Partition, Partitions
from tests.runtime.streaming import START, FedJob

COUNTS = (0, 1, FEW, 16, 256, 1024)
"""0: a source that is not Kafka's. One partition needs no watermark of its own."""
KEYS = 1000
ROUNDS = 7
SETTLE = 3
"""Rounds that come before the measured ones."""


def build(p: Pipeline, job: FedJob) -> None:
    rows = job.source(p, "rows", "at timestamp, key long, amount long", event_time="at", max_ahead=None)
    aggregates = {"n": F.count("*"), "total": F.sum("amount")}
    rows.window("counts", size="10 seconds", keys=["key"], aggregates=aggregates).for_each_epoch("out", lambda *_: None)


def batch_of(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    at = F.timestamp_micros(F.lit(int(START.timestamp() * 1e6)) + F.col("id") % 1_000_000)
    frame = spark.range(rows, numPartitions=2).select(at.alias("at"), (F.col("id") % KEYS).alias("key"), "id")
    frame = frame.withColumnRenamed("id", "amount")
    if partitions:
        frame = frame.withColumns({TOPIC: F.lit("orders"), NUMBER: (F.col("amount") % partitions).cast("int")})
    return frame.localCheckpoint()


def measure(spark: SparkSession, rows: int, rounds: int) -> dict[int, float]:
    """Milliseconds of a batch (median), by partitions. They take turns."""
    batches = {count: batch_of(spark, rows, count) for count in COUNTS}
    took: dict[int, list[float]] = {count: [] for count in COUNTS}
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as home:
        job = FedJob(spark, build, Path(home))
        job.start()
        task = job._source_task("rows")
        known = {count: Partitions("at", idle_after=30, bounded=False) for count in COUNTS if count}
        for count, partitions in known.items():
            partitions.know([Partition("orders", number) for number in range(count)], looked=0.0)
        for turn in range(SETTLE + rounds):
            for count in COUNTS:
                task._partitions = known.get(count)
                began = time.perf_counter()
                job.feed("rows", batches[count])
                if turn >= SETTLE:
                    took[count].append(1000 * (time.perf_counter() - began))
        job.crash()
    return {count: statistics.median(times) for count, times in took.items()}


def page(results: dict[int, dict[int, float]], found: dict[str, Any]) -> str:
    header = ["partitions", *(f"{rows:,} rows, ms" for rows in results), *(f"{rows:,} rows, times" for rows in results)]
    lines = []
    for count in COUNTS:
        each = [took[count] for took in results.values()]
        times = [took[count] / took[0] for took in results.values()]
        lines.append([str(count or "no Kafka"), *(f"{one:.0f}" for one in each), *(f"{one:.2f}" for one in times)])
    return f"""# What a watermark for each Kafka partition costs

`make bench-partitions` measures this: the same batch into a window of 10 seconds with {KEYS:,} keys, its rows said to
be of more and more partitions; medians of {ROUNDS} batches, in turns. Up to {FEW} partitions the newest time of each is
computed on the way, with one aggregate each. With more, the batch is held, and a job of its own groups it. Rows are in
memory before: what Spark takes to read from many partitions is not in here.

{conditions_line(found)}

{table(header, lines)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[5000, 1_000_000], help="of a batch (5,000 1,000,000)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks as it is")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    spark = spark_session("partitions")
    results = {rows: measure(spark, rows, ROUNDS) for rows in arguments.rows}
    found = conditions()
    text = page(results, found)
    console.print(text, markup=False)
    write_json("partitions", {"conditions": found, "milliseconds": results})
    if not arguments.no_page:
        write_page("partitions", text)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
