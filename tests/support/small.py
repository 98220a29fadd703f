"""Settings of Spark for a few rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_DELTA = {
    # Delta reads a table's log by a job of so many tasks, 50 by default: for a few lines.
    "spark.databricks.delta.snapshotPartitions": "1",
}

WITHOUT_COMPILING = {
    # A plan of a test runs a few times on a few rows: generating code for it takes longer than what it speeds up.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def compiling(spark: "SparkSession") -> Iterator[None]:
    """Let Spark generate code, as in a job."""
    before = {key: spark.conf.get(key) for key in WITHOUT_COMPILING}
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))
