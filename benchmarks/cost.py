"""How the cost of a job grows: with rows a batch, with keys in its state, with executors, and with epochs kept.

Each series is one process (with executors: one each), one quantity that grows, everything else the same.

    make bench-cost
    python -m benchmarks.cost --only keys --scale 0.01
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.progress import Progress

from benchmarks.figures import high
from benchmarks.inputs import Input
from benchmarks.plot import small_multiples
from benchmarks.processes import PeakMemory, cpu_seconds
from benchmarks.report import BUILD, PAGES, conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from benchmarks.sides import EPOCHAL, EpochalRun, Task, run_workload
from benchmarks.workloads import Workload, updating, windows

Sample = dict[str, float]

BATCHES = 8
TOUCHED = 50_000
EXECUTORS = (1, 2, 4)
KEPT = (1, 10, 100)


def task_in(home: Path, given: Input, *, interval: float | None) -> Task:
    return Task(
        workload="", quick=False, scale=1.0, input=str(home / given.name), store=(home / "store").as_uri(),
        output=(home / "out").as_uri(), work=str(home), endpoint=None, region=None, interval=interval,
    )  # fmt: skip


def once(spark: SparkSession, workload: Workload) -> Sample:
    """The workload on local disk, with a checkpoint when all has been read."""
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as directory, PeakMemory(os.getpid()) as memory:
        home = Path(directory)
        (home / workload.input.name).mkdir()
        workload.input.write(spark, home / workload.input.name, workload.input)
        before = cpu_seconds(os.getpid())
        took = run_workload(spark, EPOCHAL, workload, task_in(home, workload.input, interval=None))
        cpu = cpu_seconds(os.getpid()) - before
        state = sum(path.stat().st_size for path in (home / "store").rglob("*.parquet"))
    return {
        "p50 of a batch, ms": statistics.median(took.batches) * 1e3,
        "p99 of a batch, ms": high(took.batches) * 1e3,
        "rows per second": workload.input.rows / took.seconds,
        "CPU s per million rows": cpu / sum(workload.input.sizes) * 1e6,
        "checkpoint of all state, s": took.checkpoints[0],
        "its bytes, MB": state / 2**20,
        "peak memory so far, MB": memory.bytes / 2**20,
    }


# --- the series ---


def rows_series(spark: SparkSession, scale: float) -> Iterator[tuple[float, Sample]]:
    """Windows over 200,000 keys: ten thousand to a million rows a batch."""
    for rows in (10_000, 10_000, 100_000, 1_000_000):
        size = max(int(rows * scale), 50)
        yield size, once(spark, windows("rows", (size,) * (BATCHES + 3), load=3, delays=(None,)))


def keys_series(spark: SparkSession, scale: float) -> Iterator[tuple[float, Sample]]:
    """An updating aggregate: ten thousand to twenty million keys, of which a batch touches 50,000."""
    for keys in (10_000, 10_000, 100_000, 1_000_000, 20_000_000):
        held, files = max(int(keys * scale), 50), max(1, keys // 1_000_000)
        touched = (max(int(TOUCHED * scale), 50),) * (BATCHES + 1)
        yield held, once(spark, updating((held // files,) * files, touched, goal=1, delays=(None,)))


def executors_series(spark: SparkSession, scale: float) -> Iterator[tuple[float, Sample]]:
    """Windows of a million rows a batch, with as many partitions as executors, each a process with one core."""
    size = max(int(1_000_000 * scale), 50)
    count = int(spark.conf.get("spark.executor.instances") or 1)
    made = windows("executors", (size,) * (BATCHES + 3), load=3, delays=(None,), partitions=count)
    yield count, once(spark, made)


def epochs_series(spark: SparkSession, scale: float) -> Iterator[tuple[float, Sample]]:
    """Checkpoints of windows over small batches, of which none is deleted: what is in the store, and what one more
    checkpoint costs."""
    size = max(int(5_000 * scale), 50)
    made = windows("epochs", (size,) * (KEPT[-1] + 20), load=1, delays=(None,), pace=0.1)
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as directory:
        home = Path(directory)
        (home / made.input.name).mkdir()
        made.input.write(spark, home / made.input.name, made.input)
        task = task_in(home, made.input, interval=None)
        stream: DataFrame = (
            spark.readStream.schema(made.input.schema).option("maxFilesPerTrigger", 1).parquet(task.input)
        )
        running = EpochalRun(spark, stream, made, task)
        for kept in range(1, KEPT[-1] + 1):
            # One more batch, so that each epoch has something to write.
            running.until(partial(_read, running, kept))
            running.checkpoint()
            if kept in KEPT:
                yield kept, _store(home, running)
        running.job.crash()


def _read(running: EpochalRun, batches: int) -> bool:
    return running.batch + 1 >= batches


def _store(home: Path, running: EpochalRun) -> Sample:
    files = [path for path in (home / "store").rglob("*") if path.is_file()]
    manifests = sorted(path for path in files if path.name == "manifest.json")
    spans = [((one.finished or 0) - one.started) / 1e3 for one in running.reports[-10:]]
    return {
        "checkpoint, ms": statistics.median(spans),
        "objects in the store": len(files),
        "MB in the store": sum(path.stat().st_size for path in files) / 2**20,
        "bytes of the newest manifest": manifests[-1].stat().st_size,
    }


SERIES: dict[str, tuple[str, Callable[[SparkSession, float], Iterator[tuple[float, Sample]]]]] = {
    "rows": ("rows a batch", rows_series),
    "keys": ("keys", keys_series),
    "executors": ("executors", executors_series),
    "epochs": ("epochs kept", epochs_series),
}


def measure(name: str, scale: float, executors: int | None) -> list[Sample]:
    """In this process. The first of two equal ones warms up."""
    conf = {}
    if executors is not None:
        conf = {"spark.master": f"local-cluster[{executors},1,1024]", "spark.executor.instances": str(executors)}
    spark = spark_session(f"cost-{name}", conf)
    x, series = SERIES[name]
    found: dict[float, Sample] = {}
    for value, sample in series(spark, scale):
        found[value] = {x: value, **sample}
    spark.stop()
    return list(found.values())


def in_a_process(name: str, scale: float, executors: int | None) -> list[Sample]:
    command = [sys.executable, "-m", "benchmarks.cost", "--series", name, "--scale", str(scale)]
    command += [] if executors is None else ["--executors", str(executors)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the series {name} failed: see above")
    found: list[Sample] = json.loads(done.stdout.splitlines()[-1])
    return found


def page(found: dict[str, list[Sample]], facts: dict[str, Any]) -> str:
    parts = [
        "# How cost grows",
        f"""`make bench-cost` measures this, on local disk, with Epochal alone: one quantity grows, all else stays. Each
series has a process of its own with 4 GB of heap and 2 cores; executors are processes of their own (`local-cluster`),
with one core and 1 GB each. Where there are more of them than the machine has cores, they share these. After
{BATCHES} counted batches one checkpoint writes all state. [Sizing](../sizing.md) goes on from here to what no machine
here can hold; [jobs of a cluster](operator.md) and [epochs in the thousands](protocol.md) have pages of their own.""",
        conditions_line(facts),
    ]
    for name, samples in found.items():
        x, series = SERIES[name]
        said = (series.__doc__ or "").replace("\n    ", "\n")
        rows = [[f"{value:,.4g}" if value < 100 else f"{value:,.0f}" for value in one.values()] for one in samples]
        parts += [f"## {x.capitalize()}", said, table(list(samples[0]), rows), f"![{x}](cost-{name}.svg)"]
    return "\n\n".join(parts)


def plot(name: str, samples: list[Sample]) -> str:
    """Over the logarithm of what grows: a line that rises evenly grows by as much for each factor of ten."""
    x = SERIES[name][0]
    first = min(one[x] for one in samples)
    shown = [{key: value for key, value in one.items() if key != x} for one in samples]
    label = f"log10 of {x}"
    for one, before in zip(shown, samples, strict=True):
        one[label] = math.log10(before[x] / first)
    return small_multiples(shown, x=label)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", choices=list(SERIES), help="one series only")
    parser.add_argument("--scale", type=float, default=1.0, help="rows of each file, to try things out (1)")
    parser.add_argument("--series", choices=list(SERIES), help=argparse.SUPPRESS)
    parser.add_argument("--executors", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.series:
        print(json.dumps(measure(arguments.series, arguments.scale, arguments.executors)), flush=True)
        # The JVM does not end by itself while its streams have threads.
        os._exit(0)
    console = Console(width=None if sys.stdout.isatty() else 140)
    todo = [
        (name, executors)
        for name in ([arguments.only] if arguments.only else SERIES)
        for executors in (EXECUTORS if name == "executors" else (None,))
    ]
    found: dict[str, list[Sample]] = {}
    with Progress(console=console, transient=True) as bars:
        bar = bars.add_task("cost", total=len(todo))
        for name, executors in todo:
            bars.update(bar, description=name)
            found.setdefault(name, []).extend(in_a_process(name, arguments.scale, executors))
            write_json("cost", {"conditions": conditions(), "series": found})
            bars.advance(bar)
    text = page(found, conditions())
    console.print(text, markup=False)
    whole = arguments.scale == 1.0 and not arguments.only
    for name, samples in found.items():
        ((PAGES if whole else BUILD) / f"cost-{name}.svg").write_text(plot(name, samples))
    if whole:
        write_page("cost", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
