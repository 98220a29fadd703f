"""State tables: lists of immutable runs.

A run is a DataFrame that Spark holds (in memory, spilled to disk): it never changes, so freezing a table for a
checkpoint is copying a list, and only runs that no epoch has yet are written. A run is released when neither its table
nor a checkpoint in the making needs it any more.
"""

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.protocol.documents import RunPart
from epochal.protocol.epochs import NO_EPOCH, Epoch
from epochal.protocol.paths import check_label
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.held import hold, unpersist
from epochal.runtime.spark.plan_metrics import PlanMetrics, micros
from epochal.runtime.state.stored_types import as_declared

MERGE_AT = 8
"""So many runs of one tier become one of the next: few runs to read, and each row is rewritten once a tier."""

TIER_FACTOR = 8

SMALL_BATCH = 20_000
"""So few rows are taken together by one task sooner than exchanged between several."""

REPLICAS = "spark.epochal.stateReplicas"
"""Setting: on how many executors each run is held. With one (the default), losing an executor ends the driver."""
_POSSIBLE_REPLICAS = ("1", "2", "3")

_sequence = itertools.count(1)


class Run:
    """One immutable batch of state rows. ``parts`` are its objects in the store, once it is persisted."""

    def __init__(
        self,
        frame: DataFrame,
        *,
        rows: int,
        min_time: int | None = None,
        max_time: int | None = None,
        parts: tuple[RunPart, ...] | None = None,
        persisted: Epoch = NO_EPOCH,
        held: DataFrame | None = None,
        of: "Run | None" = None,
        packed: int | None = None,
    ) -> None:
        """``held`` is what Spark holds, if ``frame`` is only a part or another view of it; ``of`` the run that holds
        it for this one; ``packed`` how many bytes the rows are as Parquet files, if they are that
        (:mod:`epochal.runtime.state.parquet_run`)."""
        self.number = next(_sequence)
        self.frame = frame
        self._held = frame if held is None else held
        self._of = None if of is None else of.hold()
        self.rows = rows
        self.min_time = min_time
        self.max_time = max_time
        self.parts = parts
        self.persisted = persisted
        self.packed = packed
        self._holders = 0
        self._lock = threading.Lock()

    @classmethod
    def materialise(cls, frame: DataFrame, metrics: PlanMetrics | None = None) -> "Run":
        """Compute the frame now, by one job, and cut its plan: runs built on runs would otherwise nest for ever.
        ``metrics`` are those of :func:`run_metrics`."""
        held, seen = materialise(frame, metrics or run_metrics())
        return cls(held, rows=seen["rows"], min_time=seen.get("min_time"), max_time=seen.get("max_time"))

    def arrive(self) -> None:
        """Wait until its rows are there."""

    def hold(self) -> "Run":
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            gone = self._holders == 0
        if gone:
            self._let_go()

    def _let_go(self) -> None:
        if self._of is not None:
            self._of.release()
        else:
            unpersist(self._held)

    def part(self, frame: DataFrame) -> "Run":
        """Some columns of this run's rows as a run of its own; both are held until neither is needed."""
        return Run(frame, rows=self.rows, min_time=self.min_time, max_time=self.max_time, of=self)


class ComingRun(Run):
    """A run whose rows are computed later. How many there are is known when they have arrived."""

    def __init__(self, frame: DataFrame, made: Callable[[DataFrame], Run]) -> None:
        """``made`` makes the run of the frame."""
        super().__init__(frame, rows=0)
        self._made = made
        self._arrived: Future[None] = Future()

    def compute(self) -> None:
        try:
            run = self._made(self.frame)
        except BaseException as error:
            self._arrived.set_exception(error)
            raise
        self.frame, self._held, self.rows, self.packed = run.frame, run.frame, run.rows, run.packed
        self._arrived.set_result(None)

    def arrive(self) -> None:
        self._arrived.result()

    def _let_go(self) -> None:
        if self._arrived.done() and self._arrived.exception() is None:
            super()._let_go()


def run_metrics(time: Column | None = None) -> PlanMetrics:
    """What is to be known of a run: its rows and, given the column, its smallest and largest event time."""
    metrics = {"rows": F.count(F.lit(1))}
    if time is not None:
        metrics |= {"min_time": F.min(micros(time)), "max_time": F.max(micros(time))}
    return PlanMetrics(metrics)


def materialise(
    frame: DataFrame, metrics: PlanMetrics, *, without: str | None = None
) -> tuple[DataFrame, dict[str, Any]]:
    """Compute the frame by one job, let Spark hold it, and learn the metrics on the way. ``without``: a column that
    only the metrics need."""
    return hold(frame, metrics, replicas=replicas(frame.sparkSession), without=without)


def check_replicas(spark: SparkSession) -> None:
    """Before the start: so that a setting that cannot be is told there, and not by the first batch."""
    replicas(spark)


def replicas(spark: SparkSession) -> int:
    given = spark.conf.get(REPLICAS, "1") or "1"
    if given not in _POSSIBLE_REPLICAS:
        raise PipelineError(f"{REPLICAS} is {given!r}: give a number from 1 to {len(_POSSIBLE_REPLICAS)}")
    return int(given)


def together(runs: list[Run]) -> DataFrame | None:
    """All rows of runs that are to be grouped; of few rows in one partition, so that none has to move."""
    frame = union(run.frame for run in runs)
    return frame.coalesce(1) if frame is not None and sum(run.rows for run in runs) <= SMALL_BATCH else frame


def union(frames: Iterable[DataFrame]) -> DataFrame | None:
    result: DataFrame | None = None
    for frame in frames:
        result = frame if result is None else result.unionByName(frame)
    return result


class TableBase(ABC):
    """State of one operator, by name. The operator makes it; the runtime restores it before the first batch, freezes it
    at each barrier, and lets go of what it dropped when nothing lazy can read it any more."""

    def __init__(self, name: str, schema: StructType | None) -> None:
        """``schema`` is what it holds, for good: restored rows have these columns and types, or the job does not
        start. Without one they have the types that the store knows, which are fewer than Spark's."""
        check_label("table", name)
        self.name = name
        self.schema = schema
        self._dropped: list[Run] = []

    @abstractmethod
    def held(self) -> Sequence[Run]:
        """Its runs, as far as there are any now."""

    def take_dropped(self) -> list[Run]:
        """What was dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped


Declared = Callable[[DataFrame], DataFrame]
"""Makes restored rows what the table is declared to hold."""

RestoredAs = Callable[[DataFrame, str], DataFrame]
"""The same, given the operator's name for what is wrong with them."""


class KeyedTimeTable(TableBase):
    """Append-only runs with event times, expiring by watermark."""

    def __init__(
        self,
        name: str,
        schema: StructType | None = None,
        *,
        partitioned_by: Sequence[str] = (),
        restored: bool = True,
        restored_as: RestoredAs | None = None,
        dropped_together: bool = False,
    ) -> None:
        """If all that is appended comes out of a ``groupBy`` of the same columns, name them in ``partitioned_by``:
        restored rows are then laid out alike, and Spark can group runs together without moving a row.

        ``restored``: whether it begins with what the restored epoch has of it. ``restored_as``: makes stored rows those
        of the schema, where that is more than reading their types. ``dropped_together``: all runs that an epoch has
        leave the table together, and none is ever merged."""
        super().__init__(name, schema)
        self.runs: list[Run] = []
        self.partitioned_by = list(partitioned_by)
        self.restored = restored
        self.dropped_together = dropped_together
        self._restored_as = restored_as
        self._metrics: tuple[Column | None, PlanMetrics] | None = None
        self._united: list[tuple[DataFrame, DataFrame]] = []
        """Of what was read last: the frame of each run, and it with all before it."""

    def held(self) -> Sequence[Run]:
        return self.runs

    def declared(self, operator: str) -> Declared | None:
        """What makes stored rows those of this table; None if they are taken as they are."""
        schema, restored_as = self.schema, self._restored_as
        if restored_as is not None:
            return lambda frame: restored_as(frame, operator)
        if schema is not None:
            return lambda frame: as_declared(frame, schema, table=f"{operator}-{self.name}")
        return None

    def append(self, frame: DataFrame, time: Column | None = None) -> Run:
        """Add rows. ``time`` is their event time: it decides when they expire. Give the same object each time, and
        nothing has to be made anew for it."""
        return self.add(self.computed(frame, time))

    def computed(self, frame: DataFrame, time: Column | None = None) -> Run:
        """Rows that are to be added, or not, as a run. Uses no state."""
        return Run.materialise(frame, self._metrics_of(time))

    def _metrics_of(self, time: Column | None) -> PlanMetrics:
        if self._metrics is None or self._metrics[0] is not time:
            self._metrics = (time, run_metrics(time))
        return self._metrics[1]

    def add(self, run: Run) -> Run:
        """Add a run that was made elsewhere; one without rows is let go when the batch is done."""
        if run.rows:
            self.runs.append(run.hold())
        else:
            self._dropped.append(run.hold())
        return run

    def add_coming(self, run: ComingRun) -> None:
        """Add a run that is being computed. Only for a table that is never read: nothing is known of its rows yet."""
        self.runs.append(run.hold())

    def read(self, *, since: int | None = None, until: int | None = None) -> DataFrame | None:
        """All rows of runs that may have event times from ``since`` to ``until``; None if there are none. Runs are read
        whole: filter on the time if it matters."""
        frames = [run.frame for run in self.between(since, until)]
        # Spark analyses each union anew: those that the last batch read are not made again.
        pairs = zip(self._united, frames, strict=False)
        same = len(list(itertools.takewhile(lambda pair: pair[0][0] is pair[1], pairs)))
        del self._united[same:]
        for frame in frames[same:]:
            self._united.append((frame, self._united[-1][1].unionByName(frame) if self._united else frame))
        return self._united[-1][1] if self._united else None

    def between(self, since: int | None = None, until: int | None = None) -> list[Run]:
        return [
            run
            for run in self.runs
            if (since is None or run.max_time is None or run.max_time >= since)
            and (until is None or run.min_time is None or run.min_time <= until)
        ]

    def expire(self, before: int) -> None:
        """Drop the runs all of whose rows are older."""
        self._keep([run for run in self.runs if run.max_time is None or run.max_time >= before])

    def drop(self, runs: list[Run]) -> None:
        gone = {id(run) for run in runs}
        self._keep([run for run in self.runs if id(run) not in gone])

    def clear(self) -> None:
        self._keep([])

    def merge_small(
        self,
        merged: Callable[[DataFrame], DataFrame],
        time: Column | None = None,
        *,
        oldest: Callable[[DataFrame], DataFrame] | None = None,
        gather: bool = False,
    ) -> None:
        """Merge runs in tiers. ``merged`` may combine rows that belong together and drop expired ones. ``oldest`` is
        called instead where nothing older is left outside: what only hides older rows can go then. ``gather``: few rows
        may go to one partition, whatever the table is partitioned by."""
        while small := self._full_tier():
            frame = together(small) if gather else union(run.frame for run in small)
            assert frame is not None
            chosen = {id(one) for one in small}
            merging = oldest if oldest is not None and self._nothing_older(chosen) else merged
            run = Run.materialise(merging(frame), self._metrics_of(time))
            if time is None:
                run.min_time, run.max_time = earliest(small), latest(small)
            where = next(index for index, one in enumerate(self.runs) if id(one) in chosen)
            left = [one for one in self.runs if id(one) not in chosen]
            if run.rows:
                left.insert(where, run.hold())
            self._keep(left)

    def _nothing_older(self, chosen: set[int]) -> bool:
        newest = latest(run for run in self.runs if id(run) in chosen)
        left = [run.min_time for run in self.runs if id(run) not in chosen]
        return newest is not None and all(time is not None and time > newest for time in left)

    def _full_tier(self) -> list[Run] | None:
        tiers: dict[int, list[Run]] = {}
        for run in self.runs:
            tiers.setdefault(tier(run.rows), []).append(run)
        return next((tiers[one] for one in sorted(tiers) if len(tiers[one]) >= MERGE_AT), None)

    def _keep(self, runs: list[Run]) -> None:
        kept = {id(run) for run in runs}
        for run in self.runs:
            if id(run) not in kept:
                self._dropped.append(run)
        self.runs = runs


def earliest(runs: Iterable[Run]) -> int | None:
    return min((run.min_time for run in runs if run.min_time is not None), default=None)


def latest(runs: Iterable[Run]) -> int | None:
    return max((run.max_time for run in runs if run.max_time is not None), default=None)


def tier(rows: int) -> int:
    """Runs of up to 10,000 rows are one tier: below that a run costs the same whatever its size."""
    number, size = 0, 10_000
    while rows > size:
        number, size = number + 1, size * TIER_FACTOR
    return number


class GlobalTable(TableBase):
    """A small mapping on the driver: string keys, JSON values. Written whole, when it has changed."""

    def __init__(self, name: str) -> None:
        super().__init__(name, None)
        self._values: dict[str, Any] = {}
        self._run: Run | None = None

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        msgspec.json.encode(value)  # what cannot be stored is told here, not at the next checkpoint
        self._values[key] = value
        self._run = None

    def delete(self, key: str) -> None:
        self._values.pop(key, None)
        self._run = None

    def items(self) -> dict[str, Any]:
        return dict(self._values)

    def held(self) -> Sequence[Run]:
        return [] if self._run is None else [self._run]

    def frozen(self, spark: SparkSession) -> list[Run]:
        if not self._values:
            return []
        if self._run is None:
            rows = [(key, msgspec.json.encode(value).decode()) for key, value in sorted(self._values.items())]
            frame = spark.createDataFrame(rows, "key string, value string").coalesce(1)
            self._run = Run(frame, rows=len(rows))
        return [self._run]

    def restore(self, run: Run) -> None:
        for row in run.frame.collect():
            self._values[row["key"]] = msgspec.json.decode(row["value"])
        self._run = run
