"""What the plan of a stream says of where its rows come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from epochal.runtime.spark.jvm import class_name, iterate, jvm, python_frame, scala_frame, scala_object, scala_seq

_PROJECT = "Project"
_PASSING = (
    _PROJECT,
    "Filter",
    "SubqueryAlias",
    "Generate",
    "EventTimeWatermark",
    "Repartition",
    "RepartitionByExpression",
)
"""Nodes of a plan above which a row is still of one record, and which let further columns through."""


@dataclass(frozen=True, slots=True)
class HiddenKafka:
    """A stream reads from Kafka, and a node of its plan hides which record a row is of."""

    by: str


def with_kafka_columns(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame | HiddenKafka | None:
    """A frame with further columns of Kafka's records, by the names that they shall have; None if it does not read from
    Kafka. What a job reads has usually lost them, so they are carried up through the plan."""
    java = scala_frame(frame)
    plan = java.queryExecution().analyzed()
    above = []
    while (kind := class_name(plan)) in _PASSING:
        above.append(plan)
        plan = plan.children().head()
    if kind != "StreamingRelationV2" or plan.sourceName() != "kafka":
        return HiddenKafka(kind) if "StreamingRelationV2" in (text := plan.toString()) and "kafka" in text else None
    dataset, session = scala_object("org.apache.spark.sql.classic.Dataset"), java.sparkSession()
    records = python_frame(dataset.ofRows(session, plan), frame.sparkSession)
    marked = records.withColumns({name: F.col(column) for name, column in columns.items()})
    plan = scala_frame(marked).queryExecution().analyzed()
    carried = plan.output().takeRight(len(columns))
    for node in reversed(above):
        if class_name(node) == _PROJECT:
            project = jvm().org.apache.spark.sql.catalyst.plans.logical.Project
            plan = project(node.projectList().concat(carried), plan)
        else:
            plan = node.withNewChildren(scala_seq([plan]))
    return python_frame(dataset.ofRows(session, plan), frame.sparkSession)


def file_source_options(frame: DataFrame) -> list[dict[str, str]]:
    """The options of each source of files that a stream reads from, in small letters."""
    leaves = scala_frame(frame).queryExecution().analyzed().collectLeaves()
    found = (leaves.apply(number) for number in range(leaves.size()))
    return [
        {str(pair._1()).lower(): str(pair._2()) for pair in iterate(leaf.dataSource().options().iterator())}
        for leaf in found
        if class_name(leaf) == "StreamingRelation"
    ]
