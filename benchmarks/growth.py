"""Does anything grow in a long run? Windows, a join and an updating aggregate, checkpoints every 10 s, with cleanup.

Every 10 s: memory of driver and JVM, blocks and RDDs that Spark holds, objects that Python holds of the JVM, threads,
local files, runs of each table. A line is fitted to the second half of each series; one that would gain more than a
tenth in an hour is said to grow. Runs of some minutes only show the start: everything grows then.

    make bench-growth
    python -m benchmarks.growth --minutes 5
"""

import argparse
import csv
import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from py4j.finalizer import ThreadSafeFinalizer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.batch import KEYS
from benchmarks.plot import small_multiples
from benchmarks.processes import look, tree
from benchmarks.report import BUILD, PAGES, conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from epochal import Pipeline
from epochal.protocol.cleanup import clean
from epochal.protocol.control import CheckpointState
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import JobPaths
from epochal.runtime.dataflow.source import SourceTask
from epochal.runtime.state.persistence import store_of
from tests.support.local_job import LocalJob

KEEP = 4
SHARE = 10
KEPT_BYTES = 10_000
"""Classes with fewer are not remembered: all of every sample would be the largest thing that grows."""

GROWS = 0.10
"""Share of its mean that a series may gain in an hour."""

SURE = 3
"""Standard errors that a gain must have: what goes up and down has a slope, too."""

Sample = dict[str, float]
Histogram = dict[str, tuple[int, int]]

WATCHED = {
    "org.apache.spark.sql.classic.Dataset": "Datasets in the JVM",
    "org.apache.spark.sql.execution.QueryExecution": "query executions in the JVM",
    "org.apache.spark.sql.Observation": "observations in the JVM",
    "org.apache.spark.sql.execution.LogicalRDD": "logical RDDs in the JVM",
    "org.apache.spark.broadcast.TorrentBroadcast": "broadcast variables in the JVM",
}


TRIGGER_SECONDS = 5


def build(p: Pipeline, rows: int, out: Path) -> None:
    """Event time is the clock's, so that no source falls behind another where the machine is busy: that would let the
    join's state grow, and rightly so."""

    def source(name: str, columns: list[Any], share: int) -> Any:
        stream = p.spark.readStream.format("rate").option("rowsPerSecond", max(rows // share // TRIGGER_SECONDS, 1))
        made = stream.option("numPartitions", 2).load().select(*columns)
        return p.source(name, made, event_time=made.columns[0], trigger=f"{TRIGGER_SECONDS} seconds")

    amount, key = F.col("value").alias("amount"), F.col("value") % KEYS
    events = source("events", [F.col("timestamp").alias("ts"), key.alias("key"), amount], 1)
    # One payment for each tenth event, at about the same time.
    paid = (F.col("value") * SHARE) % KEYS
    payments = source("payments", [F.col("timestamp").alias("paid_at"), paid.alias("key"), "value"], SHARE)
    sums = {"n": F.count("*"), "total": F.sum("amount")}
    windowed = events.window("counts", size="10 seconds", keys=["key"], aggregates=sums)
    windowed.to_parquet("windows-out", str(out / "windows"))
    events.join("paid", payments, keys=["key"], within="2 seconds").to_parquet("join-out", str(out / "joined"))
    events.aggregate("totals", keys=["key"], aggregates=sums).for_each_epoch("totals-out", lambda *_: None)


class Sampler:
    """Looks at one job and at the processes it runs in."""

    def __init__(self, spark: SparkSession, job: LocalJob, directories: dict[str, Path], *, seconds: float) -> None:
        self._spark = spark
        self._job = job
        self._directories = directories
        self._seconds = seconds
        self._began = time.monotonic()
        self._jvm = next(one.pid for one in tree(os.getpid()) if one.name == "java")
        self.samples: list[Sample] = []
        # Two only: all of them would be the largest thing that grows in this process.
        self.middle: Histogram = {}
        self.end: Histogram = {}

    def take(self) -> Sample:
        gc.collect()
        engine = self._job.engine
        assert engine is not None
        here, there = look(os.getpid()), look(self._jvm)
        assert here is not None
        assert there is not None
        context: Any = self._spark.sparkContext._jsc.sc()
        # Counting the live objects collects garbage first, so their sum is the heap after a collection.
        histogram = live_objects(self._spark)
        self.end = {name: one for name, one in histogram.items() if one[1] >= KEPT_BYTES}
        if self._half_over():
            self.middle = self.middle or self.end
        sample: Sample = {
            "minutes": (time.monotonic() - self._began) / 60,
            "driver RSS MB": here.rss / 2**20,
            "JVM RSS MB": there.rss / 2**20,
            "JVM heap after GC MB": sum(size for _, size in histogram.values()) / 2**20,
            "persistent RDDs": context.persistentRdds().size(),
            "storage memory MB": context.env().blockManager().memoryStore().memoryUsed() / 2**20,
            "Python threads": threading.active_count(),
            "JVM threads": len(list(Path(f"/proc/{self._jvm}/task").iterdir())),
            "Python objects (1000)": len(gc.get_objects()) / 1000,
            "JVM objects held by Python": len(ThreadSafeFinalizer.finalizers),
        }
        for name, label in WATCHED.items():
            sample[label] = histogram.get(name, (0, 0))[0]
        for name, directory in self._directories.items():
            files = [path for path in directory.rglob("*") if path.is_file()]
            sample[f"files in {name}"] = len(files)
            sample[f"MB in {name}"] = sum(_size(path) for path in files) / 2**20
        for operator, task in engine._tasks.items():
            sample |= {f"runs of {operator}/{one.name}": len(one.held()) for one in task.operator.tables}
            if isinstance(task, SourceTask):
                sample[f"batch seconds of {operator}"] = task._batch_seconds
        return sample

    def _half_over(self) -> bool:
        return time.monotonic() - self._began >= self._seconds / 2


def live_objects(spark: SparkSession) -> Histogram:
    """Instances and bytes by class, of what is alive in the JVM."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = gateway.new_array(jvm.java.lang.String, 0)
    types = gateway.new_array(jvm.java.lang.String, 1)
    types[0] = "[Ljava.lang.String;"
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    name = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    found: Histogram = {}
    for line in server.invoke(name, "gcClassHistogram", arguments, types).splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[0].endswith(":"):
            found[fields[3]] = (int(fields[1]), int(fields[2]))
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # gone since it was listed


def trend(samples: list[Sample], name: str) -> tuple[float, float, float]:
    """What the series gains in an hour by a line through its second half, how sure that is (one standard error), and
    its mean there."""
    half = samples[len(samples) // 2 :]
    hours, values = [one["minutes"] / 60 for one in half], [one[name] for one in half]
    middle, mean = statistics.fmean(hours), statistics.fmean(values)
    spread = sum((hour - middle) ** 2 for hour in hours)
    if len(half) < 3 or not spread:
        return 0.0, 0.0, mean
    slope, begin = statistics.linear_regression(hours, values)
    left = sum((value - begin - slope * hour) ** 2 for hour, value in zip(hours, values, strict=True))
    return slope, (left / (len(half) - 2) / spread) ** 0.5, mean


def growing_classes(sampler: Sampler, count: int = 12) -> list[tuple[str, int, int]]:
    """Classes with the most bytes more at the end than in the middle: (name, instances more, bytes more)."""
    middle, end = sampler.middle, sampler.end
    more = [
        (name, n - middle.get(name, (0, 0))[0], size - middle.get(name, (0, 0))[1]) for name, (n, size) in end.items()
    ]
    return sorted(more, key=lambda one: -one[2])[:count]


def run(console: Console, spark: SparkSession, home: Path, arguments: argparse.Namespace) -> Sampler:
    out = home / "out"
    for name in ("windows", "joined"):
        (out / name).mkdir(parents=True)
    job = LocalJob(spark, lambda p: build(p, arguments.rows, out), home)
    engine = job.start()
    directories = {"work dir": home / "work-1", "store": home / "store", "Spark's local dir": home / "spark"}
    sampler = Sampler(spark, job, directories, seconds=60 * arguments.minutes)
    ends = time.monotonic() + 60 * arguments.minutes
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("running", total=60 * arguments.minutes)
        while time.monotonic() < ends:
            began = time.monotonic()
            report = job.checkpoint()
            assert report.state is CheckpointState.READY, report.message
            if job.issued > KEEP:
                clean(store_of(job.storage), JobPaths("test", "job"), Epoch(job.issued - KEEP))
            sampler.samples.append(sampler.take())
            bars.update(bar, completed=60 * arguments.minutes - (ends - time.monotonic()))
            time.sleep(max(0.0, 10.0 - (time.monotonic() - began)))
    assert engine.exit_code is None, engine.status().message
    job.crash()
    return sampler


def findings(samples: list[Sample]) -> list[list[str]]:
    rows = []
    for name in samples[0]:
        if name == "minutes":
            continue
        slope, error, mean = trend(samples, name)
        grows = mean and slope > GROWS * mean and slope > 1 and slope > SURE * error
        cells = (samples[0][name], samples[len(samples) // 2][name], samples[-1][name], slope)
        rows.append([name, *(f"{cell:,.1f}" for cell in cells), "**grows**" if grows else ""])
    return rows


def page(sampler: Sampler, found: dict[str, Any], arguments: argparse.Namespace) -> str:
    header = ["series", "first", "middle", "last", "gain an hour", ""]
    classes = [[f"`{name}`", f"{n:,}", f"{size:,}"] for name, n, size in growing_classes(sampler)]
    return f"""# Does anything grow?

`make bench-growth` measures this: {arguments.minutes:g} minutes of windows, a join and an updating aggregate over
batches of {arguments.rows:,} rows, two sources with a batch each in {TRIGGER_SECONDS} s, checkpoints every 10 s to
disk, and cleanup that keeps {KEEP} epochs. The gain is that of a line through the second half; files in the output
are left out, since results may pile up. More than a tenth of the mean in an hour, and more than {SURE} times its own
standard error, is called growth.

{conditions_line(found)}

![All series over time](growth.svg)

{table(header, findings(sampler.samples))}

Classes of the JVM that gained the most bytes from the middle to the end:

{table(["class", "instances more", "bytes more"], classes)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to run (30)")
    parser.add_argument("--rows", type=int, default=2000, help="rows a batch (2,000)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks as it is")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as home:
        (Path(home) / "spark").mkdir()
        # Other benchmarks want Spark to remember the progress of all batches; a driver does not.
        settings = {"spark.local.dir": f"{home}/spark", "spark.sql.streaming.numRecentProgressUpdates": "100"}
        settings |= dict(one.split("=", 1) for one in arguments.set)
        spark = spark_session("growth", settings)
        sampler = run(console, spark, Path(home), arguments)
        spark.stop()
    found = conditions(minutes=arguments.minutes)
    samples = sampler.samples
    write_json("growth", {"conditions": found, "samples": samples, "classes": growing_classes(sampler, 40)})
    text = page(sampler, found, arguments)
    where = BUILD if arguments.no_page else PAGES
    with (where / "growth.csv").open("w", newline="") as target:
        writer = csv.DictWriter(target, samples[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: round(value, 3) for name, value in one.items()} for one in samples)
    (where / "growth.svg").write_text(small_multiples(samples, x="minutes"))
    console.print(text, markup=False)
    if not arguments.no_page:
        write_page("growth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
