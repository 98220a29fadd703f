"""Columns that every batch uses, handed to the JVM once: from here each column of a list is a call of its own."""

from collections.abc import Iterable
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


class Prepared:
    """A list of columns, of any frame that has what they name."""

    def __init__(self, columns: Iterable[Column]) -> None:
        java: list[Any] = [column._jc for column in columns]
        context = active_context()
        self._all = _to_seq(context, java)
        self.first = java[0] if java else None
        self.others = _to_seq(context, java[1:])

    def select(self, frame: DataFrame) -> DataFrame:
        java: Any = frame._jdf
        return ClassicDataFrame(java.select(self._all), frame.sparkSession)

    def aggregate(self, frame: DataFrame, groups: "Prepared") -> DataFrame:
        """These as aggregates of each group."""
        java: Any = frame._jdf
        return ClassicDataFrame(java.groupBy(groups._all).agg(self.first, self.others), frame.sparkSession)


def active_context() -> Any:
    context = SparkContext._active_spark_context
    assert context is not None
    return context
