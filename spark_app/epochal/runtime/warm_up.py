"""Python workers that are up before the first checkpoint needs them."""

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import epochal.runtime.state.persistence  # noqa: F401  a worker imports this module, and by it all that writing state takes

logger = logging.getLogger(__name__)


def warm_up(spark: SparkSession) -> threading.Thread:
    """Let each core's Python worker start and import what writing state takes, while the job itself is built.

    Otherwise the first checkpoint does so, on all cores at once, and the batches beside it wait for seconds."""
    thread = threading.Thread(target=_warm_up, args=(spark,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _warm_up(spark: SparkSession) -> None:
    cores = spark.sparkContext.defaultParallelism
    try:
        spark.range(0, cores, 1, cores).mapInArrow(_ready, "id long").collect()
    except Exception:
        # Whoever needs the workers says so in words of its own.
        logger.debug("Python workers could not be started ahead", exc_info=True)


def _ready(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
