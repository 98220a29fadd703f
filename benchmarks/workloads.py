"""What is compared: one input, a pipeline, the same as a streaming query of plain Spark, and how results are compared.

Structured Streaming's side says what an experienced user would write, so that neither side does work for nothing.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import nexmark
from epochal.pipeline import Pipeline, Stream
from epochal.sources.nexmark import Nexmark
from examples.nexmark.generate import write_files
from examples.nexmark.queries import QUERIES, UPDATES, Events

BEGIN = 1_700_000_000_000_000
SECONDS_PER_FILE = 5
DELAY = "2 seconds"
ROWS, CPU, P50 = "rows per second", "CPU seconds per million rows", "p50 of a batch, seconds"
"""Metrics that have goals."""

Delay = float | None
"""Milliseconds added to a round trip to S3; None where checkpoints and results are on local disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Parquet files, one a micro-batch; ``write`` makes them, ``load`` of them only fill the state first."""

    name: str
    sizes: tuple[int, ...]
    schema: str
    write: Callable[[SparkSession, Path, "Input"], None]
    load: int = 0

    @property
    def rows(self) -> int:
        """Rows of the micro-batches that are measured."""
        return sum(self.sizes[self.load :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``until``: Structured Streaming leaves what only the end of input would close; results are compared up to the
    newest value that it has in this column. ``updates``: the keys whose newest results are compared, and a column that
    grows with each of them; without, all rows are. ``goals``: at least so much (or at most, for what should be small)
    of Structured Streaming's figure, by metric and delay."""

    name: str
    input: Input
    epochal: Callable[[Pipeline, DataFrame], Stream]
    structured: Callable[[DataFrame], DataFrame]
    until: str | None = None
    updates: tuple[list[str], str] | None = None
    goals: dict[tuple[str, Delay], float] = field(default_factory=dict)
    delays: tuple[Delay, ...] = (0.0, 30.0)
    partitions: int = 2


def workloads(*, quick: bool, scale: float = 1.0) -> list[Workload]:
    """``quick``: what fits into five minutes. ``scale`` shrinks the rows of each file, to try things out."""

    def files(count: int, rows: int) -> tuple[int, ...]:
        return (max(int(rows * scale), 50),) * count

    found = [
        windows("windows, 1M rows a batch", files(4 if quick else 24, 1_000_000), {(ROWS, 0.0): 4, (ROWS, 30.0): 6}),
        windows(
            "windows, 5k rows a batch",
            files(8 if quick else 60, 5_000),
            {(P50, 30.0): 0.1, (P50, None): 0.5},
            delays=(0.0, 30.0, None),
        ),
        updating("updating aggregate", files(2, 250_000 if quick else 1_000_000), files(6 if quick else 30, 50_000)),
    ]
    events = nexmark_input(files(3 if quick else 20, 250_000))
    chosen = nexmark.QUICK if quick else list(nexmark.STRUCTURED)
    return found + [nexmark_query(name, events, (0.0, 30.0)) for name in chosen]


# --- windows ---


def windows(
    name: str, sizes: tuple[int, ...], goals: dict[tuple[str, Delay], float], delays: tuple[Delay, ...] = (0.0, 30.0)
) -> Workload:
    """Count and sum per key in tumbling windows of 10 s, of 200,000 keys."""

    def epochal(p: Pipeline, frame: DataFrame) -> Stream:
        events = p.source("events", frame, event_time="ts", delay=DELAY, bounded=True)
        aggregates = {"n": F.count("*"), "total": F.sum("value")}
        return events.window("counts", size="10 seconds", keys=["key"], aggregates=aggregates)

    def structured(frame: DataFrame) -> DataFrame:
        counted = frame.withWatermark("ts", DELAY).groupBy(F.window("ts", "10 seconds"), "key")
        totals = counted.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        window = [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")]
        return totals.select(*window, "key", "n", "total")

    return Workload(
        name=name,
        input=keyed_input(f"windows-{sizes[0]}", sizes, keys=200_000),
        epochal=epochal,
        structured=structured,
        until="window_end",
        goals=goals,
        delays=delays,
    )


# --- updating aggregates ---


def updating(name: str, load: tuple[int, ...], touched: tuple[int, ...]) -> Workload:
    """Count and sum per key, so far: first every key once, then batches that touch some of them."""

    def epochal(p: Pipeline, frame: DataFrame) -> Stream:
        events = p.source("events", frame, event_time="ts", delay=DELAY, bounded=True)
        aggregates = {"n": F.count("*"), "total": F.sum("value")}
        return events.aggregate("totals", keys=["key"], aggregates=aggregates)

    def structured(frame: DataFrame) -> DataFrame:
        return frame.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))

    keys = sum(load)
    return Workload(
        name=f"{name}, {keys:,} keys",
        input=keyed_input("updating", load + touched, keys=keys, load=len(load)),
        epochal=epochal,
        structured=structured,
        updates=(["key"], "n"),
        goals={(ROWS, 0.0): 2, (ROWS, 30.0): 2},
    )


# --- Nexmark ---


def nexmark_input(sizes: tuple[int, ...]) -> Input:
    """A file is some seconds of event time, so that windows close all along."""
    made = nexmark_of(sizes)
    return Input(
        name="nexmark",
        sizes=sizes,
        schema=nexmark.SCHEMA,
        write=lambda spark, directory, given: write_files(spark, made, directory, given.sizes),
    )


def nexmark_of(sizes: tuple[int, ...]) -> Nexmark:
    return Nexmark(seed=1, events_per_second=max(sizes[0] // SECONDS_PER_FILE, 1))


def nexmark_query(name: str, events: Input, delays: tuple[Delay, ...]) -> Workload:
    made, (structured, until) = nexmark_of(events.sizes), nexmark.STRUCTURED[name]

    def epochal(p: Pipeline, frame: DataFrame) -> Stream:
        return QUERIES[name](Events(query=name, p=p, frame=frame, nexmark=made, bounded=True))

    return Workload(
        name=f"Nexmark {name}",
        input=events,
        epochal=epochal,
        structured=structured,
        until=until,
        updates=UPDATES.get(name),
        goals={(ROWS, delay): 1 for delay in delays},
        delays=delays,
    )


# --- input ---


def keyed_input(name: str, sizes: tuple[int, ...], *, keys: int, load: int = 0) -> Input:
    """Rows of random keys; event time goes on by some seconds a file, and rows are up to a second out of order. The
    files of the load have every key once."""

    def write(_: SparkSession, directory: Path, given: Input) -> None:
        random = np.random.default_rng(7)
        every = random.permutation(keys)
        for number, rows in enumerate(given.sizes):
            begin = BEGIN + number * SECONDS_PER_FILE * 1_000_000
            times = begin + np.sort(random.integers(0, SECONDS_PER_FILE * 10**6, rows))
            chosen = np.split(every, load)[number] if number < load else random.integers(0, keys, rows)
            columns = {
                "ts": pa.array(times - random.integers(0, 1_000_000, rows), pa.timestamp("us", tz="UTC")),
                "key": chosen,
                "value": random.integers(0, 1000, rows),
            }
            path = directory / f"{number:05d}.parquet"
            # Several row groups: both sides can read one file with both cores.
            pq.write_table(pa.table(columns), path, row_group_size=-(-rows // 4))
            # The file source takes files in the order of their times.
            os.utime(path, (1_700_000_000 + number,) * 2)

    return Input(name=name, sizes=sizes, schema="ts timestamp, key long, value long", write=write, load=load)
