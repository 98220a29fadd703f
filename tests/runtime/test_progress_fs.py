"""Spark's progress logs are plain files, and writing them starts no processes; and local directories have an order."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.runtime.spark.progress_fs import list_by_name, local_uri
from tests.runtime.bad_data import SCHEMA, moment
from tests.support.local_job import LocalJob

FILES = 40
"""Above 32 directories Spark lists them by tasks."""


def test_a_stream_goes_on_where_its_log_ends(spark: SparkSession, tmp_path: Path) -> None:
    written, log = tmp_path / "in", tmp_path / "a log: 100% = all"
    umask = os.umask(0o077)
    os.umask(umask)
    for batch in range(3):
        spark.range(batch * 10, batch * 10 + 10).write.mode("append").parquet(str(written))
        assert read_on(spark, written, log) == list(range(batch * 10, batch * 10 + 10))
    files = sorted(str(path.relative_to(log)) for path in log.rglob("*") if path.is_file())
    # No checksums, and no file that was left half-written.
    assert files == sorted(
        ["metadata", *(f"{part}/{batch}" for part in ("offsets", "commits", "sources/0") for batch in range(3))]
    )
    assert {path.stat().st_mode & 0o777 for path in log.rglob("*") if path.is_file()} == {0o666 & ~umask}


def read_on(spark: SparkSession, written: Path, log: Path) -> list[int]:
    """What a stream reads that has its log there."""
    seen: list[int] = []
    query = (
        spark.readStream.schema("id long")
        .parquet(str(written))
        .writeStream.foreachBatch(lambda frame, _: seen.extend(row.id for row in frame.collect()))
        .option("checkpointLocation", local_uri(spark, log))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(seen)


def test_the_class_is_compiled_once(spark: SparkSession, tmp_path: Path) -> None:
    configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
    local_uri(spark, tmp_path)
    loader = configuration.getClassLoader()
    local_uri(spark, tmp_path)
    assert configuration.getClassLoader().equals(loader)


def add_files(directory: Path, texts: dict[str, str]) -> None:
    """Files of one time stamp, made in an order that says nothing."""
    for name in random.Random(19).sample(sorted(texts), len(texts)):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name])
        os.utime(path, (1_000_000_000, 1_000_000_000))


def test_no_row_of_files_of_one_time_stamp_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """Before the tests that let this process list by name themselves: here the driver has to."""

    def build(p: Pipeline) -> None:
        stream = p.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 8).json(str(tmp_path / "in"))
        rows = p.source("rows", stream, event_time="at", bounded=True)
        rows.window("counts", size=10, aggregates={"n": F.count("*")}).to_parquet("out", str(tmp_path / "out"))

    def row(number: int) -> str:
        return json.dumps({"id": number, "at": moment(number)})

    add_files(
        tmp_path / "in",
        {f"{file:02d}.json": "\n".join(row(10 * file + number) for number in range(10)) for file in range(FILES)},
    )
    job = LocalJob(spark, build, tmp_path)
    job.run_to_the_end()
    assert job.engine is not None
    assert job.engine.status().late_rows == 0
    assert [row.n for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [10] * FILES


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("{0:02d} 100%.txt", {}),
        ("{0:02d}.txt", {"latestFirst": "true"}),
        ("{0:02d}/{0:02d}.txt", {"recursiveFileLookup": "true"}),
        ("day={0:02d}/{0:02d}.txt", {}),
    ],
    ids=["directory", "latest-first", "directories", "partitions"],
)
def test_files_of_one_time_stamp_are_read_in_the_order_of_their_names(
    spark: SparkSession, tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    directory, batches = tmp_path / "in", list[list[int]]()
    add_files(directory, {name.format(number): str(number) for number in range(FILES)})
    list_by_name(spark)
    query = (
        spark.readStream.options(maxFilesPerTrigger="10", **options)
        .text(str(directory))
        .writeStream.foreachBatch(lambda frame, _: batches.append(sorted(int(row.value) for row in frame.collect())))
        .option("checkpointLocation", local_uri(spark, tmp_path / "log"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert batches == [list(range(first, first + 10)) for first in range(0, FILES, 10)]


def test_local_files_are_otherwise_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    list_by_name(spark)
    spark.range(10).coalesce(1).write.parquet(str(tmp_path / "out"))
    (tmp_path / "link").symlink_to(tmp_path / "out")
    jvm: Any = spark.sparkContext._jvm
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())

    def listed(path: Path) -> list[str]:
        return [status.getPath().getName() for status in local.listStatus(jvm.org.apache.hadoop.fs.Path(str(path)))]

    (part,) = (tmp_path / "out").glob("*.parquet")
    assert (tmp_path / "out" / f".{part.name}.crc").is_file(), "checksums are written"
    assert listed(tmp_path / "out") == listed(tmp_path / "link") == ["_SUCCESS", part.name], "and not listed"
    assert listed(part) == [part.name]
    with pytest.raises(Exception, match="FileNotFoundException"):
        listed(tmp_path / "none")
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(Exception, match="Checksum"):
        spark.read.parquet(str(tmp_path / "link")).collect()
