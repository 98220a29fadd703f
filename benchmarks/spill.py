"""State beyond memory: a small heap, a window that holds several times what fits, a restart in the middle.

One window of a day holds a wide row for each of many keys until the input ends. Half-way an epoch is made and the
driver is stopped as by a crash; the next generation restores from that epoch, with the same heap. What comes out is
compared with the input.

    make bench-spill
    python -m benchmarks.spill --heap 2g --keys 3000000
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.processes import tree
from benchmarks.report import conditions, conditions_line, table, write_json, write_page
from benchmarks.session import spark_session
from epochal import Pipeline
from epochal.protocol.control import CheckpointReport, CheckpointState
from epochal.runtime.engine import Engine
from tests.support.local_job import LocalJob

WIDTH = 128
"""Characters of payload that each key has in the state."""
FILES = 12
SCHEMA = "key long, at timestamp, n int, payload string"
LONGEST = 1800.0


@dataclass
class Most:
    """The most that was held at once, in bytes."""

    memory: int = 0
    disk: int = 0
    process: int = 0

    def look(self, spark: SparkSession) -> None:
        runs = spark.sparkContext._jsc.sc().getRDDStorageInfo()
        self.memory = max(self.memory, sum(run.memSize() for run in runs))
        self.disk = max(self.disk, sum(run.diskSize() for run in runs))
        self.process = max([self.process, *(one.rss for one in tree(os.getpid()) if one.name == "java")])


class Spilling:
    def __init__(self, spark: SparkSession, home: Path, keys: int) -> None:
        self.spark = spark
        self.keys = keys
        self.input, self.output = home / "input", home / "output"
        self.most = Most()
        self.job = LocalJob(spark, self._build, home)
        self._write_input()

    def _write_input(self) -> None:
        """Each key twice, in different files: the window has to combine what came hours apart."""
        payload = F.concat(*(F.sha2(F.concat_ws("-", "id", F.lit(part)), 256) for part in range(WIDTH // 64)))
        for number in range(FILES):
            begin = number % (FILES // 2) * (2 * self.keys // FILES)
            rows = self.spark.range(begin, begin + 2 * self.keys // FILES).select(
                F.col("id").alias("key"),
                F.expr(f"timestamp '2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, {number})").alias("at"),
                F.lit(1).alias("n"),
                payload.alias("payload"),
            )
            staging = self.input / f".staging-{number}"
            rows.coalesce(1).write.parquet(str(staging))
            target = self.input / f"{number:03d}.parquet"
            next(staging.glob("*.parquet")).rename(target)
            os.utime(target, (1_000_000_000 + number, 1_000_000_000 + number))

    def _build(self, p: Pipeline) -> None:
        stream = p.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.input))
        rows = p.source("rows", stream, event_time="at", delay="1 day", bounded=True)
        aggregates = {"n": F.sum("n"), "payload": F.max("payload")}
        rows.window("day", size="1 day", keys=["key"], aggregates=aggregates).to_parquet("out", str(self.output))

    def run(self) -> dict[str, Any]:
        began = time.perf_counter()
        engine = self.job.start()
        self._wait(engine, lambda: engine.status().sources[0].batch + 1 >= FILES // 2)
        middle = self._checkpoint(engine)
        in_memory, on_disk = self.most.memory, self.most.disk
        self.job.crash()
        restarted = time.perf_counter()
        engine = self.job.start()
        self._wait(engine, lambda: engine.status().restored_epoch is not None)
        restored = time.perf_counter() - restarted
        self._wait(engine, lambda: engine.status().finished)
        last = self._checkpoint(engine, then_stop=True)
        return {
            "seconds": time.perf_counter() - began,
            "restore_seconds": restored,
            "epoch_bytes": middle.bytes,
            "last_epoch_bytes": last.bytes,
            "most": {"memory": self.most.memory, "disk": self.most.disk, "process": self.most.process},
            "at_the_restart": {"memory": in_memory, "disk": on_disk},
            **self._compared(),
        }

    def _checkpoint(self, engine: Engine, *, then_stop: bool = False) -> CheckpointReport:
        epoch = self.job.checkpoint(then_stop=then_stop, wait=False).epoch
        self._wait(engine, lambda: (found := engine.checkpoint(epoch)) is not None and found.finished is not None)
        report = self.job.wait_for_epoch(epoch)
        assert report.state is CheckpointState.READY, report.message
        return report

    def _wait(self, engine: Engine, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST
        while not condition():
            if engine.exit_code is not None or time.monotonic() > deadline:
                raise SystemExit(f"it did not go on: {engine.status().message}")
            self.most.look(self.spark)
            time.sleep(0.2)

    def _compared(self) -> dict[str, Any]:
        """Both sides reduced by themselves: the machine's memory is not to be what decides."""
        rows = self.spark.read.schema(SCHEMA).parquet(str(self.input))
        wanted = _reduced(rows.select("key", "payload", "n"), per_key=2)
        got = _reduced(self.spark.read.parquet(str(self.output)).select("key", "payload", "n"), per_key=1)
        return {"wanted": wanted, "got": got, "right": wanted == got}


def _reduced(rows: DataFrame, *, per_key: int) -> list[int]:
    """Keys, rows counted, and a sum over the hashes of keys and payloads."""
    hashed = F.sum(F.xxhash64("key", "payload").cast("decimal(38,0)"))
    row = rows.agg(F.count("*"), F.sum("n"), hashed).first()
    assert row is not None
    return [row[0] // per_key, int(row[1]), int(row[2]) // per_key]


def page(result: dict[str, Any], found: dict[str, Any], arguments: argparse.Namespace) -> str:
    def mb(size: float) -> str:
        return f"{size / 2**20:,.0f} MB"

    most = result["most"]
    rows = [
        ["heap of the one Java process (`local[2]`)", arguments.heap],
        ["storage and execution memory that Spark makes of it", mb(result["spark_memory"])],
        ["state in Spark's memory, at most", mb(most["memory"])],
        ["state on Spark's local disk, at most", mb(most["disk"])],
        ["the Java process, at most (resident)", mb(most["process"])],
        ["epoch half-way", mb(result["epoch_bytes"])],
        ["restored from it in", f"{result['restore_seconds']:.0f} s"],
        ["in all", f"{result['seconds']:.0f} s"],
        ["result", "equal to the input's" if result["right"] else f"WRONG: {result['got']}, not {result['wanted']}"],
    ]
    return f"""# State beyond memory

`make bench-spill` measures this: one window holds {arguments.keys:,} keys with {WIDTH} characters each until the input
ends, in a heap in which they do not fit. Half-way the driver is stopped as by a crash, and the next generation restores
from the epoch of then, in the same heap.

{conditions_line(found)}

{table(["what", "found"], rows)}

It has a limit: in 512 MB, of which Spark leaves 127 MB to state and sorting, 1,200,000 keys were held and restored, but
Spark could not sort them when the window closed (`UNABLE_TO_ACQUIRE_MEMORY`), and the driver ended with that error.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--heap", default="1g", help="of the one Java process (1g)")
    parser.add_argument("--keys", type=int, default=1_200_000, help="keys in the state (1,200,000)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks as it is")
    arguments = parser.parse_args()
    arguments.keys -= arguments.keys % FILES
    console = Console(width=None if sys.stdout.isatty() else 120)
    spark = spark_session("spill", {"spark.driver.memory": arguments.heap})
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as home:
        spilling = Spilling(spark, Path(home), arguments.keys)
        result = spilling.run()
    manager = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().values().head()
    result["spark_memory"] = manager._1()
    found = conditions()
    write_json("spill", {"conditions": found, "arguments": vars(arguments), "result": result})
    text = page(result, found, arguments)
    console.print(text, markup=False)
    if not arguments.no_page:
        write_page("spill", text)
    spark.stop()
    return 0 if result["right"] and result["most"]["disk"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
