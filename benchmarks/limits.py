"""How far Epochal is from what the machine can do: the parts of its work alone, beside the whole, on the same rows.

Reading Parquet, moving rows between partitions, aggregating all at once, a stream that only reads, and writing objects
to S3: each alone, in the same Spark; then Epochal's windows over the same files, with its checkpoints on the same S3
server.

    make bench-limits
    python -m benchmarks.limits --scale 0.01
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import Progress

from benchmarks.report import conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from benchmarks.sides import EPOCHAL, Task, Took, run_workload
from benchmarks.workloads import ROCKSDB, Workload, workloads
from tests.support.s3 import S3Server

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Limit:
    """``ours``: Epochal's figure for the same amount."""

    what: str
    amount: float
    unit: str
    seconds: float
    ours: float

    def row(self) -> list[str]:
        alone, whole = self.amount / self.seconds, self.amount / self.ours
        numbers = [f"{self.seconds:.2f}", f"{alone:,.0f}", f"{self.ours:.2f}", f"{whole:,.0f}", f"{whole / alone:.2f}"]
        return [self.what, f"{self.amount:,.0f} {self.unit}", *numbers]


class Limits:
    def __init__(self, spark: SparkSession, server: S3Server, home: Path, workload: Workload) -> None:
        self._spark, self._server, self._home, self._workload = spark, server, home, workload
        self._input = home / workload.input.name
        self._input.mkdir()
        self._runs = 0
        workload.input.write(spark, self._input, workload.input)

    def alone(self) -> dict[str, float]:
        """Seconds of each part, in turns; the first round is not counted."""
        files = sorted(map(str, self._input.glob("*.parquet")))[self._workload.input.load :]
        rows = self._spark.read.schema(self._workload.input.schema).parquet(*files)
        grouped = rows.groupBy(F.window("ts", "10 seconds"), "key").agg(F.count("*"), F.sum("value"))
        parts: dict[str, DataFrame] = {
            "reading Parquet": rows,
            "reading and moving rows to two partitions by key": rows.repartition(2, "key"),
            "reading and the same aggregation, all at once": grouped,
        }
        took: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(ROUNDS + 1):
            for name, frame in parts.items():
                took[name].append(_timed(partial(_drop, frame)))
        return {name: statistics.median(seconds[1:]) for name, seconds in took.items()}

    def stream(self, side: str, *, interval: float | None) -> tuple[Took, list[int]]:
        """What the stream took, and the sizes of the objects that it left on S3. Structured Streaming only reads."""
        self._runs += 1
        bucket = f"limits-{self._runs}"
        self._server.make_bucket(bucket)
        work = self._home / bucket
        work.mkdir()
        root = f"s3://{bucket}" if side == EPOCHAL else work.as_uri()
        task = Task(
            workload=self._workload.name, quick=False, scale=1.0, input=str(self._input), store=f"{root}/checkpoints",
            output=f"{root}/out", work=str(work), endpoint=self._server.endpoint if side == EPOCHAL else None,
            region=self._server.region, interval=interval, floor=side != EPOCHAL,
        )  # fmt: skip
        took = run_workload(self._spark, side, self._workload, task)
        left = [path.stat().st_size for path in (self._server.data_dir / bucket).rglob("*") if path.is_file()]
        return took, left

    def put(self, sizes: list[int]) -> float:
        """Objects of these sizes, by two threads, as two cores do it."""
        self._runs += 1
        store = self._server.make_bucket(f"limits-{self._runs}").store()
        data = os.urandom(max(sizes))

        def put(numbered: tuple[int, int]) -> None:
            store.put(f"{numbered[0]:06d}", data[: numbered[1]])

        def every() -> None:
            with ThreadPoolExecutor(max_workers=2) as pool:
                list(pool.map(put, enumerate(sizes)))

        return statistics.median([_timed(every) for _ in range(ROUNDS)])


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure(limits: Limits, rows: int, console: Console) -> list[Limit]:
    with Progress(console=console, transient=True) as bars:
        bar = bars.add_task("limits", total=5)
        alone = limits.alone()
        bars.advance(bar)
        floor, _ = limits.stream(ROCKSDB, interval=None)
        bars.advance(bar)
        limits.stream(EPOCHAL, interval=10.0)  # warms up
        bars.advance(bar)
        ours, _ = limits.stream(EPOCHAL, interval=10.0)
        bars.advance(bar)
        last, sizes = limits.stream(EPOCHAL, interval=None)
        put = limits.put(sizes)
        bars.advance(bar)
    found = [Limit(what, rows, "rows", seconds, ours.seconds) for what, seconds in alone.items()]
    found.append(Limit("a stream that only reads, a file a batch", rows, "rows", floor.seconds, ours.seconds))
    found.append(Limit("putting the same objects to S3", sum(sizes) / 2**20, "MB", put, last.checkpoints[0]))
    return found


def page(found: list[Limit], facts: dict[str, object], workload: Workload) -> str:
    header = ["part", "amount", "alone, s", "alone, per second", "Epochal, s", "Epochal, per second", "of the limit"]
    return f"""# The distance to the limit

`make bench-limits` measures this: parts of the work of "{workload.name}", each alone and in the same Spark (2 cores,
two partitions; median of {ROUNDS}), and Epochal's whole work on the same rows, with checkpoints every 10 s to S3 on
loopback. The last line is one checkpoint of all state and all results, against a client that puts objects of the same
sizes and does nothing else: what is between them is reading the runs, Parquet, and Spark's job.

{conditions_line(facts)}

{table(header, [one.row() for one in found])}

Epochal reads, moves, aggregates and holds rows; no part alone can be slower than the whole. "All at once" is a batch
query, which sees all rows of a window together and keeps nothing: what an engine without batches might come to.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="rows of each file, to try things out (1)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks as it is")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    workload = workloads(quick=False, scale=arguments.scale)[0]
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as directory, S3Server() as server:
        os.environ |= {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        spark = spark_session("limits")
        limits = Limits(spark, server, Path(directory), workload)
        found = measure(limits, workload.input.rows, console)
        spark.stop()
    facts = conditions()
    text = page(found, facts, workload)
    console.print(text, markup=False)
    shown = [{"part": one.what, "amount": one.amount, "alone": one.seconds, "epochal": one.ours} for one in found]
    write_json("limits", {"conditions": facts, "limits": shown})
    if arguments.scale == 1.0 and not arguments.no_page:
        write_page("limits", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
