"""What comes in, and what the sinks meet: bad rows, lateness, idleness, and stores that are away."""

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.protocol.control import EXIT_FAILED, CheckpointState
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from tests.runtime.bad_data import Files, ids, moment
from tests.support.local_job import LocalJob
from tests.support.s3 import S3Server


def test_malformed_rows_are_nulls_and_windows_pass_over_them(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    files.add(1)
    files.add_text('no json at all\n{"id": 3, "at": "never"}\n{"id": "x"}\n')
    files.add(5)

    def build(p: Pipeline) -> None:
        rows = files.read(p, bounded=True)
        rows.to_parquet("all", str(tmp_path / "all"))
        rows.window("counted", size="10 seconds", aggregates={"n": F.count("*")}).to_parquet(
            "windows", str(tmp_path / "windows")
        )

    LocalJob(spark, build, tmp_path).run_to_the_end()
    assert spark.read.parquet(str(tmp_path / "all")).count() == 5
    assert [row.n for row in spark.read.parquet(str(tmp_path / "windows")).collect()] == [2]


def test_rows_without_event_time_do_not_move_the_watermark(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    files.add_text('{"id": 1}\n{"id": 2}\n')
    job = LocalJob(spark, lambda p: files.read(p).to_parquet("out", str(tmp_path / "out")), tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 2, "the rows")
    assert engine.status().sources[0].watermark is None
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert ids(spark, tmp_path / "out") == [1, 2]


def test_another_schema_in_the_source_gives_nulls(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    files.add(1)
    added = {"id": 2, "at": moment(2), "new": 7}
    changed = {"id": {"nested": 1}, "at": moment(3)}
    files.add_text(f"{json.dumps(added)}\n{json.dumps(changed)}\n")
    build = lambda p: files.read(p, bounded=True).to_parquet("out", str(tmp_path / "out"))  # noqa: E731
    LocalJob(spark, build, tmp_path).run_to_the_end()
    got = spark.read.parquet(str(tmp_path / "out"))
    assert got.columns == ["id", "at"]
    assert sorted((row.id is None, row.id) for row in got.collect()) == [(False, 1), (False, 2), (True, None)]


def test_late_rows_are_counted_and_on_late(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    files.add(1, 100)
    files.add(2, 101)

    def build(p: Pipeline) -> None:
        windows = files.read(p, bounded=True).window("counted", size="10 seconds", aggregates={"n": F.count("*")})
        windows.to_parquet("windows", str(tmp_path / "windows"))
        windows.late.to_parquet("late", str(tmp_path / "late"))

    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    job.finish()
    assert engine.status().late_rows == 1
    assert ids(spark, tmp_path / "late") == [3]
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "windows")).collect()) == [1, 2]


@pytest.mark.parametrize("through", ["directly", "through a transformation"])
def test_an_idle_source_does_not_hold_the_watermark(
    spark: SparkSession, files: Files, tmp_path: Path, through: str
) -> None:
    quiet = Files(tmp_path / "quiet")

    def build(p: Pipeline) -> None:
        rows = files.read(p)
        silent = quiet.read(p, "silent", idle_after="1 second")
        if through != "directly":
            silent = silent.transform("same", lambda frame: frame)
        rows.union("both", silent).window("counted", size="10 seconds", aggregates={"n": F.count("*")}).to_parquet(
            "out", str(tmp_path / "out")
        )

    files.add(1, 2)
    files.add(50)
    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 3, "the rows")
    job.wait(lambda: engine.status().sources[1].idle, "the other source to be idle")
    time.sleep(0.5)
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert list((tmp_path / "out").glob("*.parquet")), "the window of the first rows never closed"
    assert [row.n for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [2]


def test_a_sink_that_raises_ends_the_driver_and_the_next_one_commits(
    spark: SparkSession, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SinkOperator, "commit_patience", 0.0)
    away, got = [True], dict[int, list[int]]()

    def write(rows: DataFrame, epoch: int) -> None:
        if away[0]:
            raise ConnectionError("the database is away")
        got[epoch] = sorted(row.id for row in rows.collect())

    files.add(1, 2)
    job = LocalJob(spark, lambda p: files.read(p).for_each_epoch("database", write), tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 2, "the rows")
    job.checkpoint()
    assert engine.exit_code == EXIT_FAILED
    assert "operator 'database' failed: the database is away" in engine.status().message
    job.completed = job.issued  # the epoch is published: only its commit is missing
    job.start()
    assert job.engine is not None
    assert job.engine.exit_code == EXIT_FAILED, "it is still away"
    away[0] = False
    job.start()
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert list(got.values()) == [[1, 2]]


def test_a_store_that_is_away_fails_epochs_and_loses_nothing(
    spark: SparkSession, files: Files, tmp_path: Path, s3_server: S3Server, s3_job: LocalJob
) -> None:
    job = s3_job
    files.add(1, 2)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 2, "the rows")
    assert job.checkpoint().state is CheckpointState.READY
    s3_server.stop()
    try:
        files.add(3)
        job.wait(lambda: engine.status().sources[0].rows == 3, "rows while the store is away")
        epoch = job.checkpoint(wait=False).epoch
        time.sleep(3)
    finally:
        s3_server.start()
    first = job.wait_for_epoch(epoch)
    assert engine.exit_code is None, engine.status().message
    assert first.state in (CheckpointState.READY, CheckpointState.FAILED)
    files.add(4)
    job.wait(lambda: engine.status().sources[0].rows == 4, "more rows")
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert ids(spark, tmp_path / "out") == [1, 2, 3, 4]
