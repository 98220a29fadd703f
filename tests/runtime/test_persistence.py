"""Runs in the store: how many jobs writing them takes, and that they come back as they were."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.batch import jobs_so_far
from epochal.protocol.control import StorageConfig
from epochal.protocol.documents import StoredRun
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.runtime.state.persistence import Persistence
from epochal.runtime.state.tables import Run


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    """With what is hard to bring back: nulls, structs, lists, times."""
    number = F.col("id")
    return spark.range(first, first + count, numPartitions=3).select(
        F.struct(number.alias("key"), F.when(number % 2 == 0, number.cast("string")).alias("name")).alias("__key"),
        F.timestamp_micros(number * 1_000_000).alias("at"),
        F.array(number, F.lit(None)).alias("list"),
    )


def test_small_runs_are_written_by_one_job_and_come_back_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    storage = StorageConfig(uri=(tmp_path / "store").as_uri())
    paths = JobPaths(namespace="test", job="job")
    persistence = Persistence(spark, storage, paths, Generation(3))
    frames = [rows(spark, 0, 10), rows(spark, 10, 1), rows(spark, 11, 500)]
    runs = [Run.materialise(frame) for frame in frames]
    before = jobs_so_far(spark)
    written = persistence.write_small(runs, operator="join", table="left", epoch=Epoch(7), numbers=[4, 5, 9])
    assert jobs_so_far(spark) == before + 1
    assert len({part.object for part in written}) == 3
    assert [part.bytes for part in written] == [(tmp_path / "store" / part.object).stat().st_size for part in written]
    assert [run.parts for run in runs] == [None] * 3, "whether it counts is for the epoch to say"
    for part, frame in zip(written, frames, strict=True):
        again = persistence.read(StoredRun(parts=(part,)), Epoch(7)).frame
        assert again.schema.simpleString() == frame.schema.simpleString()
        assert sorted(again.collect()) == sorted(frame.collect())
