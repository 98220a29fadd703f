"""PlanMetrics that a Spark job computes on the way: row counts and event times without a job of their own."""

import itertools
import json
import threading
import time
import weakref
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.runtime.spark.jvm import jvm, python_frame, scala_frame
from epochal.runtime.spark.jvm_columns import Prepared

LONGEST_WAIT = 5.0
"""PlanMetrics of an action that is not ours come on Spark's listener bus, a moment after the job. Past this they were
optimised away with the rows."""

_numbers = itertools.count(1)


class PlanMetrics:
    """Named aggregates, whole numbers all of them. Make them once and use them for every batch: each function of Spark
    that is called from here is a call to the JVM, and several for a list of columns."""

    def __init__(self, columns: dict[str, Column]) -> None:
        self.columns = [column.alias(name) for name, column in columns.items()]
        self._prepared = Prepared(self.columns)

    def on(self, frame: DataFrame, observation: Any) -> DataFrame:
        """The frame, with these metrics under a name of its own in every plan that it becomes part of."""
        observed = scala_frame(frame).observe(observation, self._prepared.first, self._prepared.others)
        return python_frame(observed, frame.sparkSession)

    def computed(self, frame: DataFrame) -> dict[str, Any]:
        """By a job of their own."""
        row = frame.agg(*self.columns).first()
        return row.asDict() if row else {}


class _Unread(threading.local):
    """What the batch of this thread has yet to learn."""

    def __init__(self) -> None:
        self.observed: weakref.WeakSet[Observed] = weakref.WeakSet()


_unread = _Unread()


class Observed:
    """A frame whose metrics are known once any action on it, or on what is made of it, has run."""

    def __init__(self, frame: DataFrame, metrics: PlanMetrics) -> None:
        self._name = f"epochal-{next(_numbers)}"
        self._observation = _observation(self._name)
        self._metrics = metrics
        self._plain = frame
        self._seen: dict[str, Any] | None = None
        self.frame = metrics.on(frame, self._observation)
        _unread.observed.add(self)

    def get(self, default: dict[str, Any] | None = None) -> dict[str, Any]:
        """The metrics. If no action reached them (Spark drops branches that turn out empty), the default; without one
        they are computed now, so call it only while all that the frame is made of is still held."""
        _unread.observed.discard(self)
        deadline = time.monotonic() + LONGEST_WAIT
        while self._seen is None and time.monotonic() < deadline:
            if self._observation.future().isCompleted():
                row = self._observation.getRow()
                if row.length() == 0:  # the action's plan had them no more
                    break
                self._seen = json.loads(row.json())
            else:
                time.sleep(0.001)
        if self._seen is not None:
            return self._seen
        return self._metrics.computed(self._plain) if default is None else default

    def take(self, found: Any) -> None:
        """Look for the metrics among those that a plan has collected."""
        if found.contains(self._name):
            self._seen = json.loads(found.apply(self._name).json())


def executed_metrics(frame: DataFrame) -> Any:
    """All metrics, by name, that the plan of a frame has collected: it has just been executed. They are there at once;
    the listener bus would bring them some moments later. What this thread's batch waits for is taken from them."""
    found = scala_frame(frame).queryExecution().observedMetrics()
    for one in list(_unread.observed):
        one.take(found)
    return found


def micros(column: Column) -> Column:
    """An event time as microseconds since 1970."""
    return F.unix_micros(column.cast("timestamp"))


def _observation(name: str) -> Any:
    return jvm().org.apache.spark.sql.Observation(name)
