"""Frames whose rows Spark holds, in memory or on disk."""

import functools
import json
from typing import Any

from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame, SparkSession

from epochal.runtime.spark.jvm import class_name, iterate, python_frame, scala_context, scala_frame
from epochal.runtime.spark.plan_metrics import PlanMetrics, executed_metrics

_METRICS = "epochal"
"""The name of the metrics in a plan. A frame that is held is no part of another plan, so there is one of that name."""


def hold(
    frame: DataFrame, metrics: PlanMetrics, *, replicas: int, without: str | None = None
) -> tuple[DataFrame, dict[str, Any]]:
    """Compute the frame by one job, let Spark hold it on so many executors, and learn the metrics on the way.
    ``without``: a column that only the metrics need."""
    observed = metrics.on(frame, _METRICS)
    if without is not None:
        observed = observed.drop(without)
    session = frame.sparkSession
    level = _java_level(session.sparkContext, replicas)
    held = python_frame(scala_frame(observed).localCheckpoint(True, level), session)
    found = executed_metrics(observed)
    if not found.contains(_METRICS):  # what is empty by its plan is not computed
        return held, metrics.computed(frame)
    return held, json.loads(found.apply(_METRICS).json())


@functools.lru_cache(maxsize=4)
def _java_level(context: SparkContext, replicas: int) -> Any:
    """Memory, then disk."""
    level = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True, replication=replicas)
    return context._getJavaStorageLevel(level)


def unpersist(frame: DataFrame) -> None:
    """Free the blocks of a frame that is held. Spark would do so when both garbage collectors got to it."""
    plan = scala_frame(frame).queryExecution().logical()
    if class_name(plan) == "LogicalRDD":
        plan.rdd().unpersist(False)


def unpersist_all(spark: SparkSession) -> None:
    """Free all blocks of all frames: of those that are held, and of those that users keep."""
    spark.catalog.clearCache()
    for held in list(iterate(scala_context(spark).getPersistentRDDs().valuesIterator())):
        held.unpersist(False)


def only_columns(frame: DataFrame) -> bool:
    """Whether a frame is columns of what Spark holds, and nothing else: there is nothing to compute."""
    plan = scala_frame(frame).queryExecution().analyzed()
    while class_name(plan) == "Project":
        columns = plan.projectList()
        if not all(_is_column(columns.apply(place)) for place in range(columns.size())):
            return False
        plan = plan.child()
    return class_name(plan) == "LogicalRDD"


def _is_column(expression: Any) -> bool:
    while class_name(expression) in ("Alias", "GetStructField"):
        expression = expression.child()
    return class_name(expression) == "AttributeReference"


def tasks_of(frame: DataFrame) -> int | None:
    """By how many tasks the rows of a source's batch are read, if Spark tells; None if it does not."""
    plan = scala_frame(frame).queryExecution().logical()
    return int(plan.rdd().getNumPartitions()) if class_name(plan) == "LogicalRDD" else None
