"""What a checkpoint costs a running job with much state: the pause it puts on processing, and the bytes it writes.

An updating aggregate is filled with wide keys up to the wanted size, and all of it is checkpointed. Then each round
changes one key in a hundred and makes a checkpoint: its bytes. Then many small batches wait to be read while
checkpoints are made: the pause, since only a batch that comes while a barrier passes can be held up. Goals: p99 of the
pause below 50 ms, less than 5% of the bytes.

    make bench-pause
    python -m benchmarks.pause --megabytes 100 --rounds 10
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import Progress

from benchmarks.report import conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from epochal import Pipeline
from epochal.protocol.control import CheckpointReport, CheckpointState, OperatorEvent
from epochal.runtime.dataflow.source import SourceTask
from tests.support.local_job import LocalJob

WIDTH = 200
"""Characters of payload a key has: hexadecimal digits of hashes, which compress to half and no further."""
FILL = 200_000
"""Keys a file of the filling has."""
CHANGED = 0.01
PAUSE_GOAL, BYTES_GOAL = 0.050, 0.05


def write_keys(target: Path, keys: Any, seed: int) -> None:
    """One input file: appears whole, under a name that comes after the others'."""
    payload = F.concat(
        *(F.sha2(F.concat_ws("-", "key", F.lit(f"{seed}-{part}")), 256) for part in range(WIDTH // 64 + 1))
    )
    frame = keys.select(F.col("id").alias("key"), F.lit(1).alias("n")).withColumn("payload", payload.substr(1, WIDTH))
    staging = target.with_suffix(".staging")
    frame.coalesce(1).write.mode("overwrite").parquet(str(staging))
    next(staging.glob("*.parquet")).rename(target)


def sync_spans(report: CheckpointReport) -> dict[str, float]:
    """Seconds in which each operator could not take rows because of the barrier."""
    return {
        one.name: (one.events[OperatorEvent.FINISHED_SYNC] - one.events[OperatorEvent.STARTED_CHECKPOINTING]) / 1e6
        for one in report.operators
    }


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    return {
        "count": len(ordered),
        "p50": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "max": ordered[-1],
    }


class Filling:
    """The job and its input."""

    def __init__(self, spark: SparkSession, home: Path, keys: int) -> None:
        self.spark = spark
        self.keys = keys
        self.input = home / "input"
        self.input.mkdir()
        self.files = 0
        self.job = LocalJob(spark, self._build, home)
        self.engine = self.job.start()
        source = self.engine._tasks["changes"]
        assert isinstance(source, SourceTask)
        self.source = source

    def _build(self, p: Pipeline) -> None:
        stream = p.spark.readStream.schema("key long, n int, payload string").option("maxFilesPerTrigger", 1)
        changes = p.source("changes", stream.parquet(str(self.input)))
        aggregates = {"n": F.sum("n"), "payload": F.max("payload")}
        changes.aggregate("latest", keys=["key"], aggregates=aggregates).for_each_epoch("out", lambda *_: None)

    def add(self, keys: Any) -> None:
        self.files += 1
        write_keys(self.input / f"{self.files:06d}.parquet", keys, self.files)

    def settle(self) -> None:
        """Wait until all files are in the state."""
        self.job.wait(
            lambda: self.source.batch + 1 >= self.files or self.engine.exit_code is not None, "the input to be read"
        )
        assert self.engine.exit_code is None, self.engine.status().message

    def checkpoint(self) -> CheckpointReport:
        report = self.job.checkpoint()
        assert report.state is CheckpointState.READY, report.message
        return report


def bytes_of(report: CheckpointReport, operator: str) -> int:
    return next(one.bytes for one in report.operators if one.name == operator)


def run(console: Console, spark: SparkSession, home: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    keys = arguments.megabytes * 2**20 // (WIDTH + 30)
    filling = Filling(spark, home, keys)
    with Progress(console=console, transient=True) as bars:
        bar = bars.add_task("filling", total=keys)
        for begin in range(0, keys, FILL):
            filling.add(spark.range(begin, min(begin + FILL, keys)))
            filling.settle()
            bars.update(bar, completed=begin + FILL)
        began = time.perf_counter()
        first = filling.checkpoint()
        first_seconds = time.perf_counter() - began
        bar = bars.add_task("bytes", total=arguments.rounds)
        rounds = []
        for number in range(arguments.rounds):
            filling.add(spark.range(keys).where(F.xxhash64("id", F.lit(number)) % 100 == 0))
            filling.settle()
            rounds.append(filling.checkpoint())
            bars.advance(bar)
        bar = bars.add_task("pauses", total=arguments.pauses)
        filling.source.pauses.clear()
        for number in range(arguments.pauses):
            filling.add(spark.range(number * 100, number * 100 + 100))
        busy = []
        while filling.source.batch + 1 < filling.files:
            busy.append(filling.checkpoint())
            bars.update(bar, completed=arguments.pauses - (filling.files - filling.source.batch - 1))
    met = list(filling.source.pauses)
    # A barrier that passed while Spark was between two batches anyway held up none.
    pauses = met + [0.0] * max(0, len(busy) - len(met))
    filling.job.crash()
    spans = [sync_spans(one) for one in (first, *rounds, *busy)]
    changed = [bytes_of(one, "latest") for one in rounds]
    return {
        "keys": keys,
        "first_bytes": bytes_of(first, "latest"),
        "first_seconds": first_seconds,
        "next_bytes": changed,
        "next_ratio": [one / bytes_of(first, "latest") for one in changed],
        "met": met,
        "busy_checkpoints": len(busy),
        "pause": quantiles(pauses),
        "met_longest": max(met, default=0.0),
        "sync": {
            name: quantiles([sync_spans(one)[name] for one in [first, *rounds, *busy]]) for name in sync_spans(first)
        },
        "sync_first": spans[0],
    }


def verdicts(result: dict[str, Any]) -> list[str]:
    typical = statistics.median([ratio for ratio in result["next_ratio"] if ratio] or [0.0])
    worst = max(result["next_ratio"])
    longest = max(span["p99"] for span in result["sync"].values())
    synced = "met" if longest < PAUSE_GOAL else f"missed by {1000 * (longest - PAUSE_GOAL):.0f} ms"
    small = "met" if typical < BYTES_GOAL else "missed"
    lines = [
        f"Sync span, p99 of the slowest operator: {1000 * longest:.1f} ms (goal: below 50 ms, {synced})",
        f"Bytes after 1% of the keys changed: {100 * typical:.2f}% of the first checkpoint's (goal: below 5%, {small})",
        f"The most that one later checkpoint wrote: {100 * worst:.2f}%",
    ]
    pause = result["pause"]
    reached = "met" if pause["p99"] < PAUSE_GOAL else f"missed by {1000 * (pause['p99'] - PAUSE_GOAL):.0f} ms"
    held_up = f"{len(result['met'])} of them held a batch up, {1000 * result['met_longest']:.1f} ms at most"
    lines.insert(
        0,
        f"Pause of the source a checkpoint, p99 of {pause['count']}: {1000 * pause['p99']:.1f} ms "
        f"(goal: below 50 ms, {reached}; {held_up})",
    )
    return lines


def page(result: dict[str, Any], found: dict[str, Any], arguments: argparse.Namespace) -> str:
    def cells(spans: dict[str, float]) -> list[str]:
        return [
            f"{spans['count']}",
            *(f"{1000 * spans[key]:.1f}" if key in spans else "–" for key in ("p50", "p99", "max")),
        ]

    rows = [["source waits for the barrier", *cells(result["pause"])]]
    rows += [[f"sync span of `{name}`", *cells(spans)] for name, spans in result["sync"].items()]
    lines = "\n".join(f"- {line}" for line in verdicts(result))
    return f"""# The pause of a checkpoint, and its bytes

`make bench-pause` measures this: an updating aggregate of {result["keys"]:,} keys with {WIDTH} characters each,
about {arguments.megabytes:,} MB of rows, on local disk; {arguments.rounds} rounds that change 1% of the keys and make a
checkpoint; then {result["busy_checkpoints"]} checkpoints while {arguments.pauses} small batches were waiting.

{conditions_line(found)}

The first checkpoint wrote {result["first_bytes"] / 2**20:,.1f} MB in {result["first_seconds"]:.1f} s.

{lines}

{table(["what", "count", "p50 ms", "p99 ms", "max ms"], rows)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--megabytes", type=int, default=1024, help="state to fill, about (1,024)")
    parser.add_argument("--rounds", type=int, default=12, help="checkpoints after changes (12)")
    parser.add_argument("--pauses", type=int, default=200, help="small batches to make checkpoints between (200)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks as it is")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    spark = spark_session("pause")
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as home:
        result = run(console, spark, Path(home), arguments)
    found = conditions()
    write_json("pause", {"conditions": found, "arguments": vars(arguments), "result": result})
    text = page(result, found, arguments)
    console.print(text, markup=False)
    if not arguments.no_page:
        write_page("pause", text)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
