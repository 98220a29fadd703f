"""Epochal beside plain Structured Streaming: the same queries on the same input, the same S3 server, one machine.

Each side is a process; both run the same workloads in the same order, on S3 without and with delay. Results are
compared row by row.

    make bench-quick
    make bench
    python -m benchmarks.compare --only 'windows.*' --delays 0
"""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import s3a
from benchmarks.comparison_page import Figure, page, plot
from benchmarks.report import BUILD, PAGES, conditions, write_json, write_page
from benchmarks.same_results import differences
from benchmarks.session import spark_session
from benchmarks.sides import ANSWER, EPOCHAL, READY, STRUCTURED, Task, Took
from benchmarks.workloads import CPU, P50, ROWS, Delay, Input, Workload, workloads
from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Server

SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Of Structured Streaming: the best that are known."""

MOST_CPU = 0.5
LEAST_MEAN = 2.5
"""The goals for CPU, for every workload, and for the geometric mean of all Nexmark queries."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload on one side."""

    took: Took
    requests: int
    bytes: int
    files: str
    """Pattern of the files that hold its results."""


class Side:
    """A process that runs one workload after another."""

    def __init__(self, kind: str, home: Path, server: S3Server, conf: dict[str, str]) -> None:
        self._log = home / f"{kind}.log"
        settings = home / f"{kind}.json"
        settings.write_text(json.dumps(conf))
        keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sides", kind, str(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log.open("w"), text=True,
            env=os.environ | keys | {"AWS_REGION": server.region}, start_new_session=True,
        )  # fmt: skip
        self.kind = kind

    def wait(self) -> None:
        """Until it is up: the other side must not be measured while this one starts."""
        self._line(READY)

    def run(self, task: Task) -> Took:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(task)) + "\n")
        self._process.stdin.flush()
        return Took(**json.loads(self._line(ANSWER)))

    def _line(self, begin: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(begin):
                return line.removeprefix(begin)
        raise SystemExit(f"{self.kind} failed:\n{self._log.read_text()[-4000:]}")

    def end(self) -> None:
        # The JVM is in the same session, and must not go on beside the other side.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Bench:
    def __init__(self, home: Path, server: S3Server, arguments: argparse.Namespace) -> None:
        self._home = home
        self._server = server
        self._arguments = arguments
        self._buckets = 0
        self._conf = {EPOCHAL: {}, STRUCTURED: SETTINGS | s3a.settings(server, server.endpoint)}

    @contextmanager
    def sides(self) -> Iterator[list[Side]]:
        """Both processes, up and idle; one runs at a time."""
        with ExitStack() as stack:
            found = []
            for kind, conf in self._conf.items():
                side = Side(kind, self._home, self._server, conf)
                stack.callback(side.end)
                found.append(side)
            for side in found:
                side.wait()
            yield found

    def run(self, side: Side, workload: Workload, delay: Delay) -> Measured:
        self._buckets += 1
        bucket = f"bench-{self._buckets}"
        work = self._home / bucket
        work.mkdir()
        self._server.make_bucket(bucket)
        with CountingProxy(self._server.endpoint, delay=(delay or 0.0) / 2000) as proxy:
            scheme = "s3" if side.kind == EPOCHAL else "s3a"
            root = work.as_uri() if delay is None else f"{scheme}://{bucket}"
            task = Task(
                workload=workload.name,
                quick=self._arguments.quick,
                scale=self._arguments.scale,
                input=str(self._home / workload.input.name),
                store=f"{root}/checkpoints",
                output=f"{root}/out",
                work=str(work),
                endpoint=None if delay is None else proxy.endpoint,
                region=None if delay is None else self._server.region,
                interval=self._arguments.interval,
            )
            took = side.run(task)
            requests, passed = len(proxy.requests), proxy.bytes
        where = work if delay is None else self._server.data_dir / bucket
        files = f"{where}/out/*.parquet"
        if side.kind == STRUCTURED and workload.updates is not None:
            files = f"{work}/updates/*/*.parquet"
        return Measured(took, requests, passed, files)


def figures(workload: Workload, delay: Delay, ours: Measured, theirs: Measured) -> list[Figure]:
    def figure(metric: str, get: Any, *, goal: float | None = None, more_is_better: bool = False) -> Figure:
        goal = workload.goals.get((metric, delay), goal)
        return Figure.of(workload.name, metric, delay, get(ours), get(theirs), goal=goal, more=more_is_better)

    rows = workload.input.rows
    found = [
        figure(ROWS, lambda one: rows / one.took.seconds, more_is_better=True),
        figure(P50, lambda one: statistics.median(one.took.batches)),
        figure("p99 of a batch, seconds", lambda one: _high(one.took.batches)),
        figure("seconds until all is committed", lambda one: one.took.whole),
        figure(CPU, lambda one: one.took.cpu / sum(workload.input.sizes) * 1e6, goal=MOST_CPU),
        figure("peak memory of the processes so far, MB", lambda one: one.took.peak / 2**20),
    ]
    if delay is not None:
        found.append(figure("S3 requests", lambda one: one.requests))
        found.append(figure("S3 bytes, both ways", lambda one: one.bytes))
    return found


def _high(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def means(found: list[Figure], delays: list[Delay]) -> list[Figure]:
    """The geometric mean over all Nexmark queries, by delay."""
    result = []
    for delay in delays:
        of = [one for one in found if one.s3_delay_ms == delay and one.metric == ROWS and "Nexmark" in one.workload]
        if of:
            ours = statistics.geometric_mean(one.epochal for one in of)
            theirs = statistics.geometric_mean(one.structured_streaming for one in of)
            result.append(Figure.of("Nexmark, geometric mean", ROWS, delay, ours, theirs, goal=LEAST_MEAN, more=True))
    return result


def write_inputs(chosen: list[Workload], home: Path) -> None:
    """By a Spark of their own, which is gone before anything is measured."""
    inputs: dict[str, Input] = {workload.input.name: workload.input for workload in chosen}
    spark = spark_session("bench-inputs")
    for name, one in inputs.items():
        (home / name).mkdir()
        one.write(spark, home / name, one)
    spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="what fits into five minutes")
    parser.add_argument("--only", default="", metavar="PATTERN", help="workloads whose names match")
    parser.add_argument("--delays", default="0,30,local", help="milliseconds, or local: what to run (0,30,local)")
    parser.add_argument("--interval", type=float, help="seconds between Epochal's checkpoints (10; quick: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="rows of each file, to try things out (1)")
    arguments = parser.parse_args()
    arguments.interval = arguments.interval or (3.0 if arguments.quick else 10.0)
    wanted: list[Delay] = [None if text == "local" else float(text) for text in arguments.delays.split(",")]
    chosen = [
        one for one in workloads(quick=arguments.quick, scale=arguments.scale) if re.search(arguments.only, one.name)
    ]
    console = Console(width=None if sys.stdout.isatty() else 140)
    began = time.monotonic()
    found: list[Figure] = []
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as directory, S3Server() as server:
        home = Path(directory)
        bench = Bench(home, server, arguments)
        with console.status("writing input"):
            write_inputs(chosen, home)
        with bench.sides() as sides:
            for workload in chosen:
                for delay in [delay for delay in workload.delays if delay in wanted]:
                    ours, theirs = (bench.run(side, workload, delay) for side in sides)
                    compared, different = differences(workload, ours.files, theirs.files)
                    if different or not compared:
                        wrong.append(f"{workload.name}: {different} of {compared} rows differ")
                    new = figures(workload, delay, ours, theirs)
                    found += new
                    console.print(f"{new[0]}; {compared:,} rows compared")
    found += means(found, wanted)
    for line in wrong:
        console.print(f"[red]{line}[/red]")
    took = time.monotonic() - began
    write_json("results", [asdict(one) for one in found])
    facts = conditions(interval=f"{arguments.interval:g} s", took=f"{took:.0f} s")
    name = "structured-streaming-quick" if arguments.quick else "structured-streaming"
    if arguments.scale == 1.0 and not arguments.only and not wrong:
        write_page(name, page(found, chosen, facts, quick=arguments.quick, picture=f"{name}.svg"))
        (PAGES / f"{name}.svg").write_text(plot(found))
    console.print(f"{len(found)} figures in {BUILD / 'results.json'}, {took:.0f} s in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
