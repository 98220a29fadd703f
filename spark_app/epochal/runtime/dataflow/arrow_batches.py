"""How many rows go to Python together.

Spark gathers rows as one Arrow batch, up to a number of rows and, if it is told to look, up to a number of bytes. It
computes the bytes again with each row, so it is told to only where rows may be large: where some column has values of
any length.
"""

from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VariantType

from epochal.runtime.state.stored_types import contains

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
OFF = "2147483647"
"""What Spark takes for no limit."""

BATCH_BYTES = 64 * 1024 * 1024
"""A batch is in memory several times: in the JVM, in the Python worker, and in what is made of it there."""

ANY_LENGTH = (StringType, BinaryType, ArrayType, MapType, VariantType)


def bound_batches(spark: SparkSession, schemas: Iterable[StructType]) -> None:
    """Bound the bytes of batches of these rows, unless the job's own settings do."""
    if spark.conf.get(LIMIT) == OFF and any(contains(schema, ANY_LENGTH) for schema in schemas):
        spark.conf.set(LIMIT, str(BATCH_BYTES))
