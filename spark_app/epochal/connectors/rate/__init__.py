"""Numbered rows at a steady rate, by Spark's own source: to try things out."""

from typing import TYPE_CHECKING

from epochal.connectors.connector import Connector, Option, Promise, Reads, whole_number
from epochal.connectors.declared_table import SPARK, DeclaredTable
from epochal.connectors.stream_end import StreamEnd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _read(spark: "SparkSession", table: DeclaredTable) -> "DataFrame":
    reader = spark.readStream.format("rate").option("rowsPerSecond", table.option("rows-per-second", "1"))
    return reader.options(**table.options_of(SPARK)).load()


class Rate(StreamEnd):
    _connector = Connector(
        name="rate",
        title="Rows at a steady rate",
        reads=Reads(
            table=_read,
            columns=("timestamp", "value"),
            promise=Promise(guarantee="for trials", how="Spark's rate source"),
        ),
        options={"rows-per-second": Option("rows in a second; default 1", whole_number)},
    )
