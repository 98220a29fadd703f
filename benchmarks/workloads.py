"""What is compared: one input, a pipeline, the same as a streaming query of plain Spark, and how results are compared.

Structured Streaming's side says what an experienced user would write, so that neither side does work for nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import nexmark
from benchmarks.inputs import Input, keyed_input, nexmark_input, nexmark_of
from epochal import Pipeline, Stream
from examples.nexmark.queries import QUERIES, UPDATES, Events

DELAY = "2 seconds"
ROWS, CPU, P50 = "rows per second", "CPU seconds per million rows", "p50 of a batch, seconds"
"""Metrics that have goals."""

STORES = ROCKSDB, HDFS = "rocksdb", "hdfs"
"""Structured Streaming's state stores."""

Delay = float | None
"""Milliseconds added to a round trip to S3; None where checkpoints and results are on local disk."""

BOTH: tuple[Delay, ...] = (0.0, 30.0)

MILLION: dict[tuple[str, Delay], float] = {(ROWS, 0.0): 4.0, (ROWS, 30.0): 6.0}
SMALL: dict[tuple[str, Delay], float] = {(P50, 30.0): 0.1, (P50, None): 0.5}
"""Goals for windows over large and over small batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``until``: Structured Streaming leaves what only the end of input would close; results are compared up to the
    newest value that it has in this column. ``updates``: the keys whose newest results are compared, and a column that
    grows with each of them; without, all rows are. ``goals``: at least so much (or at most, for what should be small)
    of Structured Streaming's figure, by metric and delay.

    ``stores``: Structured Streaming's state stores; one is enough where none takes part. ``pace``: a file comes every
    so many seconds, instead of all being there. ``alone``: in processes of its own, so that its memory is its own.
    ``warm_up``: so many of the first files only warm up the JVM, and fill no state that the others need."""

    name: str
    input: Input
    epochal: Callable[[Pipeline, DataFrame], Stream]
    structured: Callable[[DataFrame], DataFrame]
    until: str | None = None
    updates: tuple[list[str], str] | None = None
    goals: dict[tuple[str, Delay], float] = field(default_factory=dict)
    delays: tuple[Delay, ...] = BOTH
    partitions: int = 2
    stores: tuple[str, ...] = STORES
    pace: float | None = None
    alone: bool = False
    warm_up: int = 0

    def again(self) -> "Workload":
        """The same in a process that has run it before."""
        if not self.warm_up:
            return self
        given = self.input
        left = replace(given, sizes=given.sizes[self.warm_up :], load=given.load - self.warm_up)
        return replace(self, input=replace(left, name=f"{given.name}-again", after=self.warm_up))


def workloads(*, quick: bool, scale: float = 1.0) -> list[Workload]:
    """``quick``: what fits into five minutes, the most telling first. ``scale`` shrinks the rows of each file."""
    return _quick(_files(scale)) if quick else _full(_files(scale))


Files = Callable[[int, int], tuple[int, ...]]


def _files(scale: float) -> Files:
    return lambda count, rows: (max(int(rows * scale), 50),) * count


def _quick(files: Files) -> list[Workload]:
    """Batches to warm up are small, and many: the JVM compiles what is called often."""
    events = nexmark_input(files(8, 50_000) + files(3, 250_000), load=8)
    million = files(8, 100_000) + files(3, 1_000_000)
    return [
        windows("windows, 200k keys, 1M rows a batch", million, load=8, warm_up=7, goals=MILLION, stores=(HDFS,)),
        windows("windows, 5k rows a batch", files(32, 5_000), load=24, warm_up=23, goals=SMALL, delays=(None, 30.0)),
        paced(files(16, 5_000), load=3, delays=(0.0,)),
        updating(files(2, 100_000), files(12, 50_000), load=8, goal=2, delays=(0.0,)),
        *(nexmark_query(name, events, (0.0,)) for name in nexmark.QUICK),
        deduplicating(files(2, 100_000), files(12, 50_000), load=8, delays=(0.0,)),
    ]


def _full(files: Files) -> list[Workload]:
    events = nexmark_input(files(24, 250_000), load=8)
    return [
        windows("windows, 200k keys, 1M rows a batch", files(36, 1_000_000), load=12, goals=MILLION, alone=True),
        windows(
            "windows, 5k rows a batch", files(100, 5_000), load=60, warm_up=56, goals=SMALL, delays=(0.0, 30.0, None)
        ),
        *(nexmark_query(name, events, BOTH) for name in nexmark.STRUCTURED),
        paced(files(70, 5_000), load=10),
        updating(files(2, 1_000_000), files(25, 50_000), goal=2, alone=True),
        deduplicating(files(10, 1_000_000), files(20, 50_000), alone=True),
        windows("windows, 5M keys, 1M rows a batch", files(14, 1_000_000), load=2, keys=5_000_000, alone=True),
        updating(files(20, 1_000_000), files(12, 50_000), goal=1, alone=True),
    ]


# --- windows ---


def windows(
    name: str,
    sizes: tuple[int, ...],
    *,
    load: int,
    goals: dict[tuple[str, Delay], float] | None = None,
    delays: tuple[Delay, ...] = BOTH,
    keys: int = 200_000,
    pace: float | None = None,
    alone: bool = False,
    warm_up: int = 0,
    stores: tuple[str, ...] = STORES,
    partitions: int = 2,
) -> Workload:
    """Count and sum per key in tumbling windows of 10 s."""

    def epochal(p: Pipeline, frame: DataFrame) -> Stream:
        events = p.source("events", frame, event_time="ts", delay=DELAY, bounded=pace is None, trigger=pace)
        aggregates = {"n": F.count("*"), "total": F.sum("value")}
        return events.window("counts", size="10 seconds", keys=["key"], aggregates=aggregates)

    def structured(frame: DataFrame) -> DataFrame:
        counted = frame.withWatermark("ts", DELAY).groupBy(F.window("ts", "10 seconds"), "key")
        totals = counted.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        window = [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")]
        return totals.select(*window, "key", "n", "total")

    # A second of event time a second; otherwise so much a file that most keys are in each window.
    seconds = pace or (5.0 if keys <= 200_000 else 1.0)
    return Workload(
        name=name,
        input=keyed_input(
            f"windows-{len(sizes)}-{sizes[0]}-{keys}-{seconds:g}", sizes, keys=keys, load=load, seconds=seconds
        ),
        epochal=epochal,
        structured=structured,
        until="window_end",
        goals=goals or {},
        delays=delays,
        pace=pace,
        alone=alone,
        warm_up=warm_up,
        stores=stores,
        partitions=partitions,
    )


def paced(sizes: tuple[int, ...], *, load: int, delays: tuple[Delay, ...] = BOTH) -> Workload:
    """A file a second: what a job that runs all day asks of S3, and how long a row takes to its result."""
    return windows("windows, a file of 5k rows a second", sizes, load=load, delays=delays, pace=1.0)


# --- updating aggregates ---


def updating(
    first: tuple[int, ...],
    touched: tuple[int, ...],
    *,
    goal: float,
    load: int = 1,
    delays: tuple[Delay, ...] = BOTH,
    alone: bool = False,
) -> Workload:
    """Count and sum per key, so far: first every key once, then batches that touch some of them, of which the first
    ``load`` are not measured."""

    def epochal(p: Pipeline, frame: DataFrame) -> Stream:
        events = p.source("events", frame, event_time="ts", delay=DELAY, bounded=True)
        aggregates = {"n": F.count("*"), "total": F.sum("value")}
        return events.aggregate("totals", keys=["key"], aggregates=aggregates)

    def structured(frame: DataFrame) -> DataFrame:
        return frame.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))

    keys = sum(first)
    return Workload(
        name=f"updating aggregate, {keys:,} keys",
        input=keyed_input(f"updating-{keys}", first + touched, keys=keys, load=len(first) + load, every=len(first)),
        epochal=epochal,
        structured=structured,
        updates=(["key"], "n"),
        goals={(ROWS, 0.0): goal, (ROWS, 30.0): goal},
        delays=delays,
        alone=alone,
    )


# --- deduplication ---


def deduplicating(
    first: tuple[int, ...],
    later: tuple[int, ...],
    *,
    load: int = 1,
    delays: tuple[Delay, ...] = BOTH,
    alone: bool = False,
) -> Workload:
    """Each id once, for ever: first so many new ones, then batches of which half was seen, of which the first ``load``
    are not measured."""

    def epochal(p: Pipeline, frame: DataFrame) -> Stream:
        events = p.source("events", frame, event_time="ts", delay=DELAY, bounded=True)
        once = events.deduplicate("once", keys=["key"], within="36500 days")
        return once.transform("ids", lambda rows: rows.select("key"))

    def structured(frame: DataFrame) -> DataFrame:
        return frame.select("key").dropDuplicates(["key"])

    ids = sum(first)
    return Workload(
        name=f"deduplication, {ids:,} ids",
        input=keyed_input(f"ids-{ids}", first + later, keys=2 * ids, load=len(first) + load, every=len(first)),
        epochal=epochal,
        structured=structured,
        goals={(ROWS, 0.0): 1.5, (ROWS, 30.0): 1.5},
        delays=delays,
        alone=alone,
    )


# --- Nexmark ---


def nexmark_query(name: str, events: Input, delays: tuple[Delay, ...]) -> Workload:
    made, query = nexmark_of(events.sizes), nexmark.STRUCTURED[name]

    def epochal(p: Pipeline, frame: DataFrame) -> Stream:
        return QUERIES[name](Events(query=name, p=p, frame=frame, nexmark=made, bounded=True))

    return Workload(
        name=f"Nexmark {name}",
        input=events,
        epochal=epochal,
        structured=query.run,
        until=query.until,
        updates=UPDATES.get(name),
        goals={(ROWS, delay): 1 for delay in delays},
        delays=delays,
        stores=STORES[:1] if query.stateless else STORES,
        warm_up=max(events.load - 2, 0),
    )
