"""Columns that every batch uses, handed to the JVM once: from here each column of a list is a call of its own."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import Column, DataFrame

from epochal.runtime.spark.jvm import python_frame, scala_column, scala_frame, scala_seq


class Prepared:
    """A list of columns, of any frame that has what they name."""

    def __init__(self, columns: Iterable[Column]) -> None:
        java: list[Any] = [scala_column(column) for column in columns]
        self._all = scala_seq(java)
        self.first = java[0] if java else None
        self.others = scala_seq(java[1:])

    def select(self, frame: DataFrame) -> DataFrame:
        return python_frame(scala_frame(frame).select(self._all), frame.sparkSession)

    def aggregate(self, frame: DataFrame, groups: "Prepared") -> DataFrame:
        """These as aggregates of each group."""
        grouped = scala_frame(frame).groupBy(groups._all)
        return python_frame(grouped.agg(self.first, self.others), frame.sparkSession)
