"""Spark's progress logs are plain files, and writing them starts no processes."""

import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from epochal.runtime.local_files import local_uri


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
