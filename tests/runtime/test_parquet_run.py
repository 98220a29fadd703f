"""Rows that wait for their epoch as Parquet files: the same come out, each once, however batches and epochs fall."""

import itertools
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal.protocol.control import CheckpointState
from epochal.protocol.documents import Manifest
from epochal.protocol.resolve import read_epoch
from epochal.runtime.dataflow import two_phase_sink
from epochal.runtime.dataflow.two_phase_sink import BoundSink
from epochal.runtime.engine import Engine
from epochal.runtime.state.parquet_run import packed_run
from epochal.runtime.state.persistence import store_of
from epochal.runtime.state.tables import Run
from tests.runtime.bad_data import Files, ids
from tests.runtime.test_checkpoints import PATHS
from tests.support.local_job import LocalJob


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_phase_sink, "MANY", 3)


def waiting(engine: Engine) -> list[Run]:
    """What waits in the sink, oldest first."""
    sink = engine._tasks["out"].operator
    assert isinstance(sink, BoundSink)
    return sink.pending.runs


def feed(job: LocalJob, files: Files, *sizes: int, again: int = 0) -> None:
    """A batch of each size, after so many rows that come ``again``."""
    engine = job.engine
    assert engine is not None
    wanted = engine.status().sources[0].rows + sum(sizes) if not again else again + sum(sizes)
    for size in sizes:
        files.add(*range(size))
    job.wait(lambda: engine.status().sources[0].rows == wanted, "rows to be read")


def test_what_comes_out_does_not_depend_on_how_it_waited(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    job = LocalJob(spark, lambda p: files.read(p).to_parquet("out", str(tmp_path / "out")), tmp_path)
    engine = job.start()
    # Many are expected after many: so is what comes after the first three.
    feed(job, files, 3, 4, 1, 1, 5, 5)
    job.wait(lambda: len(waiting(engine)) == 6, "all batches")
    assert [run.packed is not None for run in waiting(engine)] == [False, True, True, False, False, True]
    report = job.checkpoint()
    assert report.state is CheckpointState.READY, report.message
    assert ids(spark, tmp_path / "out") == list(range(1, 20))
    epoch = read_epoch(store_of(job.storage), PATHS, job.completed)
    assert isinstance(epoch, Manifest)
    stored = epoch.operators["out"].tables["pending"].runs
    names = [part.object for run in stored for part in run.parts]
    assert len(set(names)) == len(names)
    assert sum(part.rows for run in stored for part in run.parts) == 19
    # What is lost with the driver comes again.
    feed(job, files, 4, 4)
    job.crash()
    job.start()
    feed(job, files, 6, again=8)
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert ids(spark, tmp_path / "out") == list(range(1, 34))


def test_windows_that_are_over_are_packed_too(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    job = LocalJob(
        spark,
        lambda p: (
            files.read(p, bounded=True)
            .window("counts", size="10 seconds", keys=["id"], aggregates={"n": F.count("*")})
            .to_parquet("out", str(tmp_path / "out"))
        ),
        tmp_path,
    )
    for begin in range(0, 60, 10):
        files.add(*(begin + second for second in range(5)))
    job.run_to_the_end()
    assert ids(spark, tmp_path / "out") == list(range(1, 31))


def test_a_sink_that_reads_a_frame_gets_rows(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    seen: list[int] = []

    def take(rows: DataFrame, epoch: int) -> None:
        seen.extend(row.id for row in rows.collect())

    job = LocalJob(spark, lambda p: files.read(p, bounded=True).for_each_epoch("out", take), tmp_path)
    for _ in range(3):
        files.add(*range(5))
    job.run_to_the_end()
    assert sorted(seen) == list(range(1, 16))


def test_a_run_without_rows_has_no_files(spark: SparkSession) -> None:
    empty = packed_run(spark.range(100).where("id < 0"))
    assert (empty.rows, empty.packed) == (0, 0)
    assert empty.frame.count() == 0
    some = packed_run(spark.range(0, 100, 1, 7))
    assert some.rows == 100
    assert some.frame.count() == spark.sparkContext.defaultParallelism
    assert some.packed == sum(itertools.chain.from_iterable(some.frame.select(F.length("file")).collect()))
