"""Metrics that a Spark job computes on the way: row counts and event times without a job of their own."""

import time
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

LONGEST_WAIT = 5.0
"""Metrics arrive on Spark's listener bus, a moment after the job. Past this they were optimised away with the rows."""


class Observed:
    """A frame whose metrics are known once any action on it, or on what is made of it, has run."""

    def __init__(self, frame: DataFrame, metrics: dict[str, Column]) -> None:
        self._observation = Observation()
        self._metrics = metrics
        self._plain = frame
        self.frame = frame.observe(self._observation, *(metric.alias(name) for name, metric in metrics.items()))

    def get(self, default: dict[str, Any] | None = None) -> dict[str, Any]:
        """The metrics. If no action reached them (Spark drops branches that turn out empty), the default; without one
        they are computed now, so call it only while all that the frame is made of is still held."""
        java: Any = self._observation._jo
        deadline = time.monotonic() + LONGEST_WAIT
        while not java.future().isCompleted():
            if time.monotonic() > deadline:
                return self._computed() if default is None else default
            time.sleep(0.001)
        if java.getRow().length() == 0:  # the action's plan had them no more
            return self._computed() if default is None else default
        return self._observation.get

    def _computed(self) -> dict[str, Any]:
        row = self._plain.agg(*(metric.alias(name) for name, metric in self._metrics.items())).first()
        return row.asDict() if row else {}


def micros(column: Column) -> Column:
    """An event time as microseconds since 1970."""
    return F.unix_micros(column.cast("timestamp"))
