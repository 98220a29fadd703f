"""What a micro-batch costs, in Spark's own units: jobs and their stages."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.runtime.dataflow import source
from tests.runtime.streaming import FedJob, at

ROWS = "key long, at timestamp"


def windows(p: Pipeline, job: FedJob) -> None:
    rows = job.source(p, "rows", ROWS, event_time="at")
    job.collect("out", rows.window("counts", size="10 seconds", keys=["key"], aggregates={"n": F.count("*")}))


def stages_of_jobs(spark: SparkSession, job: FedJob, batch: list[Any]) -> list[int]:
    """How many stages each job had that the batch took."""
    context: Any = spark.sparkContext._jsc.sc()
    first = context.dagScheduler().numTotalJobs()
    job.feed("rows", batch)
    done = threading.Event()
    assert job.engine is not None
    job.engine._background.after(done.set)
    assert done.wait(60)
    context.listenerBus().waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getJobInfo(number) for number in range(first, context.dagScheduler().numTotalJobs())]
    return [len(info.stageIds) for info in found if info is not None]


def test_a_small_batch_of_windows_is_one_job_of_one_stage(spark: SparkSession, tmp_path: Path) -> None:
    job = FedJob(spark, windows, tmp_path)
    job.start()
    # Of the first batch nobody knows that it is small.
    assert stages_of_jobs(spark, job, [(1, at(1)), (2, at(2))]) == [2]
    assert stages_of_jobs(spark, job, [(1, at(3))]) == [1]
    # A window is over: one job more.
    assert stages_of_jobs(spark, job, [(2, at(11))]) == [1, 1]
    job.finish()
    assert job.rows("out") == [(at(0), at(10), 1, 2), (at(0), at(10), 2, 1), (at(10), at(20), 2, 1)]


def sessions(p: Pipeline, job: FedJob) -> None:
    rows = job.source(p, "rows", ROWS, event_time="at")
    job.collect("out", rows.session_window("sittings", gap="10 seconds", keys=["key"], aggregates={"n": F.count("*")}))


def test_a_small_batch_of_sessions_is_one_job_and_one_more_when_some_may_be_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = FedJob(spark, sessions, tmp_path)
    job.start()
    assert stages_of_jobs(spark, job, [(1, at(1)), (2, at(2))]) == [2]
    assert stages_of_jobs(spark, job, [(1, at(3))]) == [1]
    # All pieces become sessions, and what is over goes to the sink.
    assert stages_of_jobs(spark, job, [(2, at(20))]) == [1, 1, 1]
    # Not late by itself, and within the gap of a session that came out: that one is over.
    job.feed("rows", [(1, at(12))])
    job.finish()
    assert sorted(job.rows("out")) == [
        (at(1), at(13), 1, 2),
        (at(2), at(12), 2, 1),
        (at(12), at(22), 1, 1),
        (at(20), at(30), 2, 1),
    ]


def totals(p: Pipeline, job: FedJob) -> None:
    rows = job.source(p, "rows", ROWS, event_time="at")
    job.collect("out", rows.aggregate("totals", keys=["key"], aggregates={"n": F.count("*"), "last": F.max("at")}))


def test_a_batch_of_updates_is_one_job(spark: SparkSession, tmp_path: Path) -> None:
    job = FedJob(spark, totals, tmp_path)
    job.start()
    for second in (1, 2, 3):
        assert stages_of_jobs(spark, job, [(1, at(second)), (1, at(second)), (second, None)]) == [2]
    job.finish()
    assert job.rows("out") == [(1, 3, at(1)), (1, 5, at(2)), (1, 7, at(3)), (2, 1, None), (3, 1, None)]


def once(p: Pipeline, job: FedJob) -> None:
    rows = job.source(p, "rows", ROWS, event_time="at", delay="1 minute")
    job.collect("out", rows.deduplicate("once", keys=["key"], within="1 minute"))


def test_a_batch_without_duplicates_is_one_job(spark: SparkSession, tmp_path: Path) -> None:
    job = FedJob(spark, once, tmp_path)
    job.start()
    for second in (1, 2, 3):
        assert stages_of_jobs(spark, job, [(1, at(second)), (second, at(second))]) == [2]
    job.finish()
    assert job.rows("out") == [(1, at(1)), (2, at(2)), (3, at(3))]


@pytest.mark.parametrize(
    ("columns", "jobs", "expected"),
    [
        (lambda rows: rows.select("key"), [2], [(1,), (2,), (3,)]),
        (lambda rows: rows.select(F.col("key").alias("id"), "at").drop("at"), [2], [(1,), (2,), (3,)]),
        # These have something to compute, or leave rows out.
        (lambda rows: rows.select(-F.col("key")), [2, 1], [(-3,), (-2,), (-1,)]),
        (lambda rows: rows.select("key").where("key > 0"), [2, 1], [(1,), (2,), (3,)]),
    ],
    ids=["select", "rename and drop", "compute", "filter"],
)
def test_columns_of_what_came_out_take_no_job(
    spark: SparkSession, tmp_path: Path, columns: Any, jobs: list[int], expected: list[Any]
) -> None:
    def ids(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", ROWS, event_time="at", delay="1 minute")
        once = rows.deduplicate("once", keys=["key"], within="1 minute")
        job.collect("out", once.transform("columns", columns))

    job = FedJob(spark, ids, tmp_path)
    job.start()
    for second in (1, 2, 3):
        assert stages_of_jobs(spark, job, [(1, at(second)), (second, at(second))]) == jobs
    job.finish()
    assert sorted(job.rows("out")) == expected


@pytest.mark.parametrize("small", [1000, 0], ids=["small", "large"])
@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (windows, [(at(0), at(10), 1, 2), (at(0), at(10), None, 1)]),
        (sessions, [(at(1), at(12), 1, 2), (at(3), at(13), None, 1)]),
    ],
)
def test_rows_without_a_time_are_counted_and_left_out(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pipeline: Callable[[Pipeline, FedJob], None],
    expected: list[Any],
    small: int,
) -> None:
    monkeypatch.setattr(source, "SMALL_BATCH", small)
    job = FedJob(spark, pipeline, tmp_path)
    engine = job.start()
    for batch in ([(1, at(1)), (1, None), (2, None)], [(3, None)], [], [(1, at(2)), (None, at(3))]):
        job.feed("rows", batch)
    task = job._source_task("rows")
    assert task.report().rows == 6
    assert engine.status().late_rows == 0
    job.finish()
    assert job.rows("out") == expected
