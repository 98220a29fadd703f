"""Results of Nexmark queries beside those of their oracles."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.nexmark.oracles import ORACLES

Rows = list[tuple[Any, ...]]


def found_and_expected(
    spark: SparkSession, results: Path, name: str, updates: dict[str, tuple[list[str], str]]
) -> tuple[Rows, Rows]:
    """What a query wrote and what its oracle gives; of a result that changes, what it came to in the end."""
    found = spark.read.parquet(str(results / name))
    expected = spark.sql(ORACLES[name])
    if name in updates:
        found = newest(found, *updates[name])
    if name == "q12":
        found = found.groupBy("bidder").agg(F.sum("bids").alias("bids"))
    return rows_of(found, expected.columns), rows_of(expected, expected.columns)


def newest(frame: DataFrame, keys: list[str], grows: str) -> DataFrame:
    """The last result of each key."""
    last = F.max_by(F.struct(*frame.columns), F.expr(grows)).alias("last")
    return frame.groupBy(*keys).agg(last).select("last.*")


def rows_of(frame: DataFrame, columns: list[str]) -> Rows:
    rows = frame.select(*columns).collect()
    return sorted((tuple(_rounded(value) for value in row) for row in rows), key=repr)


def _rounded(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value
