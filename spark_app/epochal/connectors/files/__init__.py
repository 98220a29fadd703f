"""Files in a directory, read by Spark's own readers. To write files, see the connector ``parquet``."""

from typing import TYPE_CHECKING

from epochal.connectors.connector import (
    EXACTLY_ONCE,
    Connector,
    Option,
    Promise,
    Reads,
    duration,
    one_of,
    whole_number,
)
from epochal.connectors.declared_table import SPARK, DeclaredTable
from epochal.connectors.stream_end import StreamEnd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("json", "csv", "parquet", "text", "orc", "avro")


def _read(spark: "SparkSession", table: DeclaredTable) -> "DataFrame":
    reader = spark.readStream.format(table.option("format", "json")).schema(table.schema)
    if "files-per-batch" in table.options:
        reader = reader.option("maxFilesPerTrigger", table.options["files-per-batch"])
    return reader.options(**table.options_of(SPARK)).load(table.options["path"])


def _look_up(spark: "SparkSession", table: DeclaredTable) -> "DataFrame":
    reader = spark.read.format(table.option("format", "json")).schema(table.schema)
    return reader.options(**table.options_of(SPARK)).load(table.options["path"])


class Files(StreamEnd):
    _connector = Connector(
        name="files",
        title="Files: JSON, CSV, Parquet, text",
        reads=Reads(
            table=_read,
            lookup=_look_up,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="Spark's file source; its position is in the epoch",
                tests=("connectors/test_cookbook.py", "exactly_once/test_kill_and_compare.py"),
            ),
        ),
        options={
            "path": Option("a directory, or a pattern", required=True),
            "format": Option(f"{', '.join(FORMATS)}; default json", one_of("is no format", *FORMATS)),
            "files-per-batch": Option("the most new files in a micro-batch", whole_number),
            "refresh": Option("for a lookup: time between two reads, such as 10 minutes; default never", duration),
        },
    )
