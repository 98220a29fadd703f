"""A table of the latest row of each key: what a batch touches is looked up, and the rest stays where it is.

A batch's rows meet what is known of their keys, and the new rows of these keys become a run. The newest run that has a
key counts, so runs are merged by leaving rows out, and never by computing. Runs are sorted files on the executors
(:mod:`~.latest_files`). Each executor has those of some partitions of the keys, and tasks run where their
files are (:mod:`~.homes`).
"""

import functools
import itertools
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import Row, StructField, StructType

from epochal.protocol.documents import LATEST_KEY as KEY
from epochal.runtime.errors import lost_state
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import PlanMetrics
from epochal.runtime.state.homes import Homes, find_homes
from epochal.runtime.state.latest_files import (
    HASH,
    OLDER,
    PARTITION,
    Keep,
    Place,
    Sum,
    TaskStep,
    adding,
    filing,
    finding,
    keeping_new,
    merging,
    reading,
    writing,
)
from epochal.runtime.state.stored_types import as_declared
from epochal.runtime.state.tables import MERGE_AT, Run, TableBase, earliest, latest, replicas, run_metrics, tier

STATE_DIR = "spark.epochal.stateDir"
"""Setting: where executors keep their files. By default in their own of Spark's local directories."""

_PARTITIONS = "spark.sql.shuffle.partitions"

Result = TypeVar("Result")


class LatestRun(Run):
    """A run whose rows are in files of executors. ``copy``: the same rows held by Spark on several of them, if the job
    asks for replicas."""

    def __init__(self, table: "LatestTable", number: int, *, rows: int, copy: Run | None) -> None:
        super().__init__(table.homes.alone, rows=rows)
        self.number = number
        self.copy = None if copy is None else copy.hold()
        self._table = table

    def _let_go(self) -> None:
        self._table.forget(self.number)
        if self.copy is not None:
            self.copy.release()


class LatestTable(TableBase):
    """The latest row of each key. ``schema`` is that of the key, a struct named ``__key``, and of the values."""

    def __init__(self, name: str, schema: StructType, *, operator: str, spark: SparkSession) -> None:
        super().__init__(name, schema)
        self.runs: list[LatestRun] = []
        self._label = f"{operator}-{name}"
        self._spark = spark
        self._schema = schema
        self._values = [field.name for field in schema if field.name != KEY]
        self._anywhere = Place(spark.conf.get(STATE_DIR, None), f"{self._label}-{uuid.uuid4().hex[:12]}")
        self._partitions = int(spark.conf.get(_PARTITIONS) or 1)
        self._numbers = itertools.count(1)
        self._gone: list[int] = []
        self._lock = threading.Lock()
        self._metrics = run_metrics()
        self._beside: dict[str, tuple[Prepared, DataFrame, StructType]] = {}
        self._nothing: DataFrame | None = None
        self._adaptive = spark.conf.get("spark.sql.adaptive.enabled") == "true"
        partition = F.pmod(F.hash(KEY), F.lit(self._partitions)).alias(PARTITION)
        self._addresses = [F.xxhash64(KEY).alias(HASH), partition]

    @functools.cached_property
    def homes(self) -> Homes:
        """Where its files are. Settled once there are executors, for as long as they live."""
        return self._find_homes()

    @property
    def place(self) -> Place:
        """Where its files are, on whichever executor."""
        return self._anywhere

    @property
    def _place(self) -> Place:
        return replace(self._anywhere, homes=self.homes.names)

    def open(self) -> None:
        """Find its homes while the job starts, and not by the first batch: what hinders that is told then."""
        self.homes = self._find_homes()

    def held(self) -> Sequence[Run]:
        return self.runs

    def lost(self) -> list[str]:
        """Executors that are gone, with files that only they had."""
        return self.homes.lost(self._spark) if any(run.copy is None for run in self.runs) else []

    # --- batches ---

    def add(self, rows: DataFrame, sums: Mapping[str, Sum]) -> Run:
        """Add rows' values to what is known of their keys, by the functions given for each, in one go. ``rows`` have a
        key each, no two the same, and come out of a grouping by it. Returns the new rows, held for this batch."""

        def added(number: int, gone: list[int]) -> Run:
            step = adding(self._place, self._newest_first(), number, KEY, sums, gone)
            return Run.materialise(self._at_home(rows, "add")[0].mapInArrow(step, self._schema), self._metrics)

        return self._changed(added)

    def update(self, rows: DataFrame, compute: Callable[[DataFrame], DataFrame], *, moves: bool = False) -> Run:
        """The same where Spark computes: ``compute`` gets the rows with what is known of their keys (columns ``OLDER +
        name``, null where there is nothing) and a column ``HASH``, and gives the table's columns and that one.
        ``moves``: it groups rows once more."""

        def updated(number: int, gone: list[int]) -> Run:
            home, schema = self._at_home(rows, "find")
            older = [StructField(OLDER + field.name, field.dataType) for field in self._schema if field.name != KEY]
            found = StructType([*(field for field in schema if field.name != PARTITION), *older])
            zone = self._spark.conf.get("spark.sql.session.timeZone")
            values = to_arrow_schema(StructType([field for field in self._schema if field.name != KEY]), timezone=zone)
            step = finding(self._place, self._newest_first(), KEY, values, gone)
            new = compute(home.mapInArrow(step, found))
            there = self._at_home(new, "write")[0] if moves else new
            step = writing(self._place, number, [KEY, *self._values])
            return Run.materialise(there.mapInArrow(step, self._schema), self._metrics)

        return self._changed(updated)

    def keep_new(
        self, rows: DataFrame, *, time: str, arrival: str, late: int | None, since: int | None, metrics: PlanMetrics
    ) -> Run:
        """Of each key the first row by ``time`` (the table's value) and ``arrival``, if the key is not known with a
        time of ``since`` or later; of these the times are kept. Rows without a time, or with one before ``late``, are
        left out. ``rows`` are partitioned by their key."""

        def kept(number: int, gone: list[int]) -> Run:
            step = keeping_new(
                self._place, self._newest_first(), number, KEY,
                time=time, arrival=arrival, late=late, since=since, gone=gone,
            )  # fmt: skip
            home, schema = self._at_home(rows, "keep")
            passed = StructType([field for field in schema if field.name not in (HASH, PARTITION, arrival)])
            return Run.materialise(home.mapInArrow(step, passed), metrics)

        return self._changed(kept)

    def _changed(self, change: Callable[[int, list[int]], Run]) -> Run:
        """Let Spark do what writes a run, and hold what comes out. ``change`` is given the run's number, and runs whose
        files are to be deleted."""

        def attempt() -> tuple[int, Run]:
            number, gone = next(self._numbers), self._take_gone()
            try:
                return number, change(number, gone)
            except Exception:
                for one in (number, *gone):
                    self.forget(one)
                raise

        number, held = self._surely(attempt)
        if held.rows:
            copy = held.part(held.frame.select(KEY, *self._values)) if replicas(self._spark) > 1 else None
            self._add(number, held, copy)
        else:
            self.forget(number)
        self._dropped.append(held.hold())
        return held

    def _surely(self, job: Callable[[], Result]) -> Result:
        """Do a job where the files are. With copies of what executors hold, losing one of them is no end."""
        try:
            return self.homes.run(self._spark, job)
        except Exception as error:
            if not lost_state(error) or any(run.copy is None for run in self.runs):
                raise
            self._rebuild()
            return self.homes.run(self._spark, job)

    def _newest_first(self) -> list[int]:
        return [run.number for run in reversed(self.runs)]

    def _take_gone(self) -> list[int]:
        with self._lock:
            gone, self._gone = self._gone, []
        return gone

    def _add(self, number: int, like: Run, copy: Run | None) -> LatestRun:
        run = LatestRun(self, number, rows=like.rows, copy=copy)
        run.min_time, run.max_time = like.min_time, like.max_time
        self.runs.append(run)
        run.hold()
        return run

    # --- where rows belong ---

    def to_be_grouped(self, rows: DataFrame) -> DataFrame:
        """Rows of a batch, such that a grouping by key exchanges them. What Spark knows to be in one partition it would
        group there, and not where state is; united with nothing, of no partition, it knows no more."""
        if self._nothing is None:
            self._nothing = self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), rows.schema)
        return rows.union(self._nothing)

    def _find_homes(self) -> Homes:
        nothing = self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), StructType([self._schema[KEY]]))
        homes = find_homes(self._spark, nothing.repartition(self._partitions, KEY), self._partitions)
        self._beside = {}
        return homes

    def _at_home(self, rows: DataFrame, use: str) -> tuple[DataFrame, StructType]:
        """Rows that are partitioned by key, each partition where its files are. ``use``: rows of the same one have the
        same columns, and the rest is made once."""
        if self._adaptive:
            rows = rows.repartition(self._partitions, KEY)
        elif self._partitions == 1:
            # To Spark one partition by a hash is not what one partition of everything is, as `homes` has it: united,
            # they would be two tasks, and the second one has no files.
            rows = rows.coalesce(1)
        if use not in self._beside:
            columns = Prepared([F.col("*"), *self._addresses[use == "write" :]])
            schema = columns.select(rows).schema
            others = [
                F.col(KEY) if field.name == KEY else F.lit(None).cast(field.dataType).alias(field.name)
                for field in schema
            ]
            self._beside[use] = columns, self.homes.beside.select(*others), schema
        columns, nothing, schema = self._beside[use]
        return columns.select(rows).union(nothing), schema

    def _rebuild(self) -> None:
        """An executor is gone: write its files anew, from the copies that others have."""
        runs, self.runs = self.runs, []
        self.homes = self._find_homes()
        for run in runs:
            assert run.copy is not None
            self._file(run.number, run.copy.frame)
            self.runs.append(run)

    def _file(self, number: int, frame: DataFrame) -> int:
        """Write a run's files, and tell how many rows it has. The hash comes last in the rows that are written here."""
        home, _ = self._at_home(frame.select(KEY, *self._values).repartition(self._partitions, KEY), "file")
        filed = home.mapInArrow(filing(self._place, number), "rows long")
        return int(sum(row["rows"] for row in self.homes.run(self._spark, filed.collect)))

    # --- the life of runs ---

    def load(self, frame: DataFrame) -> LatestRun:
        """Add a run that the store has. It stands after those that were added before."""
        number = next(self._numbers)
        rows = self._file(number, as_declared(frame, self._schema, table=self._label))
        return self._add(number, Run(self.homes.alone, rows=rows), self._copied(number))

    def expire(self, before: int) -> None:
        """Drop the runs all of whose rows are older."""
        self._keep([run for run in self.runs if run.max_time is None or run.max_time >= before])

    def merge_small(self, keep: Keep | None = None) -> None:
        """Merge the newest runs where many of about one size have come together. ``keep`` may leave rows out."""
        while small := self._full_tier():
            number = next(self._numbers)
            runs = [run.number for run in reversed(small)]
            rows = self._surely(functools.partial(self._merge, runs, number, keep))
            left = self.runs[: len(self.runs) - len(small)]
            self._keep(left)
            if not rows:
                self.forget(number)
                continue
            like = Run(self.homes.alone, rows=rows, min_time=earliest(small), max_time=latest(small))
            self._add(number, like, self._copied(number))

    def _merge(self, runs: list[int], number: int, keep: Keep | None) -> int:
        merged = self.homes.alone.mapInArrow(merging(self._place, runs, number, KEY, keep), "rows long")
        return int(sum(row["rows"] for row in merged.collect()))

    def _copied(self, number: int) -> Run | None:
        if replicas(self._spark) == 1:
            return None
        return self.homes.run(self._spark, lambda: Run.materialise(self.frame([number])))

    def _full_tier(self) -> list[LatestRun] | None:
        """The newest runs up to some size, if many are of that size: only neighbours in age can be merged."""
        for largest in range(max((tier(run.rows) for run in self.runs), default=-1) + 1):
            larger = [place for place, run in enumerate(self.runs) if tier(run.rows) > largest]
            newest = self.runs[larger[-1] + 1 if larger else 0 :]
            if sum(tier(run.rows) == largest for run in newest) >= MERGE_AT:
                return newest
        return None

    def _keep(self, runs: list[LatestRun]) -> None:
        kept = {run.number for run in runs}
        for run in self.runs:
            if run.number not in kept:
                self._dropped.append(run)
        self.runs = runs

    def forget(self, number: int) -> None:
        """Nobody needs this run any more: the next batch deletes its files."""
        with self._lock:
            self._gone.append(number)

    # --- reading ---

    def collect_by(self, runs: list[int], then: TaskStep, schema: str) -> list[Row]:
        """What a step makes of the rows of runs (oldest first), the latest of each key, where they are."""
        step = reading(self._place, runs[::-1], KEY, then)
        return self.homes.run(self._spark, self.homes.alone.mapInArrow(step, schema).collect)

    def frame(self, runs: list[int]) -> DataFrame:
        """The rows of runs (oldest first), the latest of each key."""
        return self.homes.alone.mapInArrow(reading(self._place, runs[::-1], KEY, lambda batches: batches), self._schema)
