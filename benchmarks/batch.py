"""Where the time of one small micro-batch goes: Spark jobs, calls to the JVM, planning, metrics, the progress log.

make bench-batch
python -m benchmarks.batch --set spark.sql.adaptive.enabled=false
"""

import argparse
import functools
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import py4j.java_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.report import conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from epochal import Pipeline
from epochal.runtime.dataflow.source import SourceTask
from epochal.runtime.spark import plan_metrics as observed
from epochal.runtime.state import tables
from tests.support.local_job import LocalJob

KEYS = 1000
SETTLE = 15
"""Batches that come before the measured ones: the JVM compiles what it runs often."""


def rate(spark: SparkSession, rows: int) -> DataFrame:
    """So many rows a batch, a second of event time each, without a clock in it."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    stream = stream.option("advanceMillisPerBatch", 1000).option("startTimestamp", 1_700_000_000_000)
    return stream.load().select(
        F.col("timestamp").alias("ts"), (F.col("value") % KEYS).alias("key"), F.col("value").alias("amount")
    )


def window_only(p: Pipeline, rows: int) -> None:
    events = p.source("events", rate(p.spark, rows), event_time="ts")
    aggregates = {"n": F.count("*"), "total": F.sum("amount")}
    events.window("counts", size="10 seconds", keys=["key"], aggregates=aggregates).to_parquet(
        "out", p.parameters["out"]
    )


def join_and_window(p: Pipeline, rows: int) -> None:
    left = p.source("events", rate(p.spark, rows), event_time="ts")
    other = rate(p.spark, max(rows // 10, 1)).select(
        F.col("ts").alias("paid_at"), "key", F.col("amount").alias("payment")
    )
    right = p.source("payments", other, event_time="paid_at")
    joined = left.join("paid", right, keys=["key"], within="2 seconds")
    aggregates = {"n": F.count("*"), "total": F.sum("amount")}
    windowed = joined.window("counts", size="10 seconds", keys=["key"], aggregates=aggregates)
    windowed.to_parquet("out", p.parameters["out"])


PIPELINES: dict[str, Callable[[Pipeline, int], None]] = {
    "window": window_only,
    "join + window": join_and_window,
}


class Spent:
    """Calls and seconds by name, per thread of a source; nested names are both counted."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            self.seconds[name] += seconds
            self.calls[name] += 1

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.add(name, time.perf_counter() - began)

        return call

    def timed_by_line(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Calls to the JVM, by the line of the engine that made them."""

        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return send(*arguments, **named)
            finally:
                taken = time.perf_counter() - began
                self.add("calls to the JVM", taken)
                self.add(f"calls to the JVM: {_place()}", taken)

        return call


def _place() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if "/epochal/" in name:
            return f"{name.rsplit('/', 1)[1]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


@contextmanager
def watched(spent: Spent) -> Iterator[None]:
    """Time what the engine does by wrapping it for a while."""
    wrapped: list[tuple[Any, str, str]] = [
        (DataFrame, "localCheckpoint", "localCheckpoint (plan + job)"),
        (observed.Observed, "__init__", "observe"),
        (observed.Observed, "get", "waiting for metrics"),
        (tables, "unpersist", "unpersist"),
        (tables.KeyedTimeTable, "append", "table append"),
        (tables.KeyedTimeTable, "merge_small", "merge of runs"),
        (SourceTask, "_process", "batch in the engine"),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in wrapped]
    before.append((py4j.java_gateway.GatewayClient, "send_command", py4j.java_gateway.GatewayClient.send_command))
    for owner, name, label in wrapped:
        setattr(owner, name, spent.timed(label, getattr(owner, name)))
    py4j.java_gateway.GatewayClient.send_command = spent.timed_by_line(before[-1][2])
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def jobs_so_far(spark: SparkSession) -> int:
    """Jobs that the scheduler has numbered."""
    context: Any = spark.sparkContext._jsc.sc()
    return int(context.dagScheduler().numTotalJobs())


def measure(spark: SparkSession, name: str, rows: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as home:

        def build(p: Pipeline) -> None:
            p.parameters["out"] = f"{home}/out"
            (Path(home) / "out").mkdir(exist_ok=True)
            PIPELINES[name](p, rows)

        job = LocalJob(spark, build, Path(home))
        engine = job.start()
        sources = [task for task in engine._tasks.values() if isinstance(task, SourceTask)]
        job.wait(lambda: min(task.batch for task in sources) > SETTLE, "the first batches")
        spent = Spent()
        with watched(spent):
            first, jobs = sum(task.batch for task in sources), jobs_so_far(spark)
            time.sleep(seconds)
            batches, jobs = sum(task.batch for task in sources) - first, jobs_so_far(spark) - jobs
        progress = [one for task in sources if task.query for one in task.query.recentProgress[SETTLE:]]
        job.crash()
    assert engine.status().message.startswith("crashed"), engine.status().message
    phases: dict[str, list[float]] = defaultdict(list)
    for one in progress:
        for phase, milliseconds in one.durationMs.items():
            phases[phase].append(milliseconds)
    return {
        "pipeline": name,
        "batches": batches,
        "jobs_per_batch": jobs / max(batches, 1),
        "batch_p50_ms": statistics.median(phases["triggerExecution"]),
        "phases_p50_ms": {phase: statistics.median(values) for phase, values in sorted(phases.items())},
        "inside_ms": {key: 1000 * value / max(batches, 1) for key, value in spent.seconds.items()},
        "inside_calls": {key: value / max(batches, 1) for key, value in spent.calls.items()},
    }


def compare(console: Console, spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Any]:
    """The same pipeline with and without some settings, in turns, in one JVM."""
    given = dict(setting.split("=", 1) for setting in arguments.compare)
    usual = {key: spark.conf.get(key) for key in given}
    name = arguments.only or next(iter(PIPELINES))
    took: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(arguments.rounds):
        for side, settings in (("without", usual), ("with", given)):
            for key, value in settings.items():
                spark.conf.set(key, value or "")
            result = measure(spark, name, arguments.rows, arguments.seconds)
            took[side].append(result["batch_p50_ms"])
            console.print(
                f"{side} {given}: {result['batch_p50_ms']:.0f} ms, {result['jobs_per_batch']:.1f} jobs a batch"
            )
    ratio = statistics.median(took["with"]) / statistics.median(took["without"])
    console.print(f"{name}: with : without = {ratio:.2f}")
    return {"pipeline": name, "settings": given, "p50_ms": took, "ratio": ratio}


def page(results: list[dict[str, Any]], found: dict[str, Any], rows: int) -> str:
    parts = [
        "# Where the time of a small micro-batch goes",
        f"""`make bench-batch` measures this: batches of {rows:,} rows, {KEYS:,} keys, in a local Spark with 2 cores
that has warmed up. Times inside the engine are means over batches and contain each other; `addBatch` is Spark's name
for the engine's part. Calls to the JVM are given by the line of the engine that made them.""",
        conditions_line(found),
    ]
    for result in results:
        parts.append(
            f"## {result['pipeline']}: {result['batch_p50_ms']:.0f} ms (p50 of {result['batches']} batches), "
            f"{result['jobs_per_batch']:.1f} Spark jobs a batch"
        )
        rows_ = [[phase, f"{value:.0f}"] for phase, value in result["phases_p50_ms"].items()]
        parts.append(table(["Spark's phase", "p50 ms"], rows_))
        inside = sorted(result["inside_ms"].items(), key=lambda item: -item[1])
        rows_ = [[name, f"{value:.1f}", f"{result['inside_calls'][name]:.1f}"] for name, value in inside]
        parts.append(table(["inside", "ms a batch", "calls a batch"], rows_))
    return "\n\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=5000, help="rows a batch (5,000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each pipeline is watched (20)")
    parser.add_argument("--only", choices=list(PIPELINES), help="one pipeline only")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting")
    parser.add_argument("--compare", action="append", default=[], metavar="KEY=VALUE", help="measure what this changes")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of --compare (3)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks as it is")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    spark = spark_session("batch", dict(setting.split("=", 1) for setting in arguments.set))
    if arguments.compare:
        write_json("batch-compare", {"conditions": conditions(), **compare(console, spark, arguments)})
        return 0
    results = []
    for name in [arguments.only] if arguments.only else list(PIPELINES):
        with console.status(name):
            results.append(measure(spark, name, arguments.rows, arguments.seconds))
    found = conditions(settings=" ".join(arguments.set) or "as in a driver")
    text = page(results, found, arguments.rows)
    console.print(text, markup=False)
    write_json("batch", {"conditions": found, "results": results})
    if not arguments.set and not arguments.only and not arguments.no_page:
        write_page("batch", text)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
