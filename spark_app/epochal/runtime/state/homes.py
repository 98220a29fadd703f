"""Which executor has which partition of a table's files, and tasks that run there.

Partitions are dealt out to the executors that are there when a table is made. From then on Spark is asked for one
executor, by its id, for each task that needs a partition's files: two executors may be on one host. That is still a
preference: a task whose executor is busy for longer than ``spark.locality.wait`` is run elsewhere. So each task knows
the name of the executor that it belongs to (:class:`~.latest_files.Place`), fails on any other before it
has read or written anything, and the job is run again.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from epochal.runtime.errors import NOT_HERE, PipelineError, lost_state
from epochal.runtime.spark.held import unpersist
from epochal.runtime.spark.jvm import milliseconds
from epochal.runtime.spark.one_row import one_row
from epochal.runtime.spark.placement import executor_hosts, executor_ids, is_local, located, partition_owners
from epochal.runtime.state.latest_files import Place, deleting, ended, executor_name, partition

logger = logging.getLogger(__name__)

VOTES = 8
"""Spark runs a union's task where most of its inputs' locations are. So often each home is named: more often than there
can be locations of a batch's rows."""

PATIENCE = 900.0
"""Seconds for which a job is done again while its tasks run on other executors than those that have the files."""

PAUSE = 1.0

SHORTEST_WAIT = 3000
"""Milliseconds; Spark's own default."""

TRIES = 10
"""To find a home for each partition, while executors come and go."""

Result = TypeVar("Result")


class StateLostError(Exception):
    """Executors are gone, with the files that only they had."""

    def __init__(self, executors: Sequence[str]) -> None:
        super().__init__(f"{NOT_HERE}: executors {', '.join(executors)} are gone")


class MisplacedError(Exception):
    """The executors that have the files are there, but tasks are run on others, again and again."""


@dataclass(frozen=True, slots=True)
class Homes:
    """Where the partitions of one table are. Both are empty where all is done by one process."""

    executors: tuple[str, ...]
    """Of each partition: the id of the executor that has its files."""
    names: tuple[str, ...]
    """What that executor is called in its tasks."""
    alone: DataFrame
    """An empty frame with the table's partitioning: what is made of it runs where the files are."""
    beside: DataFrame
    """The same, for a union with rows that have that partitioning: then the whole union runs there."""

    def lost(self, spark: SparkSession) -> list[str]:
        """Executors that had files and are gone."""
        if not self.executors:
            return []
        return sorted(set(self.executors) - executor_ids(spark))

    def run(self, spark: SparkSession, job: Callable[[], Result]) -> Result:
        """Do a job whose tasks need the files. Those that ran elsewhere have changed nothing, and are run again."""
        deadline: float | None = None
        while True:
            if lost := self.lost(spark):
                raise StateLostError(lost)
            try:
                return job()
            except Exception as error:
                if not self.executors or not lost_state(error) or self.lost(spark):
                    raise
                deadline = deadline or time.monotonic() + PATIENCE
                if time.monotonic() > deadline:
                    raise MisplacedError(
                        f"for {PATIENCE:.0f} s tasks have run on executors that do not have their state, while those "
                        "that have it were busy: give executors more cores, or set a longer spark.locality.wait"
                    ) from None
                logger.warning("A task ran on an executor that does not have its state: running the job again")
                time.sleep(PAUSE)


def find_homes(spark: SparkSession, like: DataFrame, partitions: int) -> Homes:
    """Deal partitions out to the executors that are there. ``like`` is an empty frame with their partitioning."""
    if is_local(spark):
        alone = located(like, [[]] * partitions)
        return Homes((), (), alone, alone)
    check_settings(spark)
    for _ in range(TRIES):
        there = _executors(spark)
        ids = sorted(there)
        dealt = [ids[number % len(ids)] for number in range(partitions)]
        settled = _settled(located(like, [[_location(one, there)] for one in dealt]), partitions)
        there = _executors(spark)
        if settled is not None and there.keys() >= set(settled[0]):
            break
    else:
        raise StateLostError(["that were to keep it"])
    executors, names = settled
    locations = [_location(one, there) for one in executors]
    # A union asks its inputs for hosts. Of a location that begins like this Spark takes all the rest for the host, and
    # so the union hands on the executor.
    beside = [[f"hdfs_cache_{location}"] * VOTES for location in locations]
    return Homes(executors, names, located(like, [[one] for one in locations]), located(like, beside))


def delete_files(spark: SparkSession, places: Sequence[Place]) -> None:
    """Delete all files of tables that nobody needs any more, on each executor that is there."""
    if is_local(spark) or not places:
        return
    visited: set[str] = set()
    for _ in range(TRIES):
        there = executor_hosts(spark)
        if not there:
            return
        nothing = spark.range(0).repartition(len(there), "id")
        frame = located(nothing, [[_location(one, there)] for one in sorted(there)])
        visited |= {row["name"] for row in frame.mapInArrow(deleting(places), "name string").collect()}
        if len(visited) >= len(executor_hosts(spark)):
            return
    logger.warning("Not all executors have deleted the files of tables that are gone")


def check_settings(spark: SparkSession) -> None:
    """Refuse settings by which tasks would run on other executors than those that they need."""
    conf = spark.sparkContext.getConf()
    if spark.conf.get("spark.sql.adaptive.enabled") == "true":
        raise PipelineError(
            "spark.sql.adaptive.enabled is on: tasks would run on executors that do not have their state; remove it "
            "from sparkConf"
        )
    if conf.get("spark.speculation", "false") == "true":
        raise PipelineError(
            "spark.speculation is on: a second copy of a task would run on an executor that does not have its state; "
            "remove it from sparkConf"
        )
    wait = conf.get("spark.locality.wait.process") or conf.get("spark.locality.wait") or "3s"
    if milliseconds(wait) < SHORTEST_WAIT:
        raise PipelineError(
            f"spark.locality.wait is {wait}: a task must wait for the executor that has its state; remove it from "
            "sparkConf, or give 3s or more"
        )


def _executors(spark: SparkSession) -> dict[str, str]:
    """The hosts of executors by id. Waits for the first."""
    while not (there := executor_hosts(spark)):
        spark.range(1).count()
    return there


def _location(executor: str, hosts: dict[str, str]) -> str:
    return f"executor_{hosts[executor]}_{executor}"


def _settled(frame: DataFrame, partitions: int) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The executor of each partition: by its id, and by the name that it knows itself. Where a task ran is where Spark
    holds its result. None if that is not certain."""
    held = frame.mapInArrow(_naming, "partition long, name string").localCheckpoint()
    try:
        names = {row["partition"]: sys.intern(row["name"]) for row in held.collect()}
        executors = partition_owners(held, partitions)
        if executors is None or len(names) < partitions:
            return None
        return tuple(executors), tuple(names[partition] for partition in range(partitions))
    finally:
        unpersist(held)


def _naming(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ended(batches)
    yield one_row(partition=partition(), name=executor_name())
