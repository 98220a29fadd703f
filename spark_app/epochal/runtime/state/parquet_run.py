"""Runs whose rows are packed as Parquet files, for rows that only wait to be written: they take a fraction of the
memory, and a checkpoint has nothing to compute."""

import functools
from collections.abc import Iterator

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from epochal.runtime.spark.one_row import one_row
from epochal.runtime.spark.plan_metrics import PlanMetrics
from epochal.runtime.state.parquet import parquet_files
from epochal.runtime.state.tables import Run, materialise

MANY = 50_000
"""Fewer rows are one object, and several batches of them, too: a request costs more than the parallelism brings."""

FILE_BYTES = 16 * 1024 * 1024
"""A file is a value of a row to Spark: large ones are hard to find room for."""

_FILES = "file binary, rows long"


def packed_run(frame: DataFrame) -> Run:
    """Compute the frame now, by one job, into at least one file a task that has rows, and as many tasks as there are
    cores."""
    context = frame.sparkSession.sparkContext
    files = frame.coalesce(context.defaultParallelism).mapInArrow(_pack, _FILES)
    held, seen = materialise(files, _metrics(context))
    return Run(held, rows=seen["rows"] or 0, packed=seen["bytes"] or 0)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for data, rows in parquet_files(batches, enough=FILE_BYTES):
        yield one_row(file=data, rows=rows)


def unpacked(batch: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
    """The files of some rows of such a run, each with how many rows it has."""
    for data, rows in zip(batch.column(0), batch.column(1), strict=True):
        yield data.as_py(), rows.as_py()


@functools.lru_cache(maxsize=4)
def _metrics(context: SparkContext) -> PlanMetrics:
    """Made once for each Spark."""
    return PlanMetrics({"rows": F.sum("rows"), "bytes": F.sum(F.length("file"))})
