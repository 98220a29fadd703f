"""From a plan to a pipeline: each node becomes a call of :class:`epochal.api.pipeline.Pipeline`."""

import importlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal.api.pipeline import Pipeline, Stream
from epochal.connectors.declared_table import DeclaredTable, quoted
from epochal.connectors.registry import CONNECTORS
from epochal.runtime.errors import PipelineError
from epochal.sql.plan import (
    AggregateCall,
    AggregateNode,
    Aggregates,
    DeduplicateNode,
    JoinNode,
    LookupNode,
    OrderBy,
    Plan,
    PlanNode,
    RunningTopNode,
    SelectStep,
    SessionNode,
    SinkNode,
    SourceNode,
    TopNode,
    TransformNode,
    UnionNode,
    WindowJoinNode,
    WindowNode,
)
from epochal.sql.script import plan_text
from epochal.sql.tables import PythonFunction


def build_sql(p: Pipeline, text: str) -> None:
    """Describe the pipeline that a text stands for."""
    build_plan(p, plan_text(text, p.parameters))


def build_plan(p: Pipeline, plan: Plan) -> None:
    for function in plan.functions:
        _register(p, function)
    streams: dict[str, Stream] = {}
    for node in plan.nodes.values():
        made = _made(p, node, [streams[name] for name in node.inputs])
        if made is not None:
            streams[node.name] = made


def _made(p: Pipeline, node: PlanNode, inputs: list[Stream]) -> Stream | None:
    match node:
        case SourceNode():
            return _source(p, node)
        case TransformNode():
            return inputs[0].transform(node.name, _function(node.steps), event_time=node.event_time)
        case UnionNode():
            return inputs[0].union(node.name, *inputs[1:])
        case SinkNode():
            writes = CONNECTORS[node.table.connector_name].writes
            assert writes is not None
            assert writes.table is not None
            writes.table(inputs[0], node.name, node.table)
            return None
        case JoinNode() | WindowJoinNode() | LookupNode():
            return _joined(node, inputs)
        case _:
            return _grouped(node, inputs[0])


def _joined(node: JoinNode | WindowJoinNode | LookupNode, inputs: list[Stream]) -> Stream:
    match node:
        case JoinNode():
            within = _duration(node.lower), _duration(node.upper)
            return inputs[0].join(node.name, inputs[1], keys=node.keys, within=within, how=node.how)
        case WindowJoinNode():
            slide = None if node.slide is None else _duration(node.slide)
            return inputs[0].window_join(
                node.name, inputs[1], size=_duration(node.size), slide=slide, keys=node.keys, how=node.how
            )
        case LookupNode():
            refresh = node.table.options.get("refresh")
            return inputs[0].lookup(node.name, _looked_up(node), keys=node.keys, how=node.how, refresh=refresh)


def _grouped(node: PlanNode, stream: Stream) -> Stream:
    match node:
        case WindowNode():
            slide = None if node.slide is None else _duration(node.slide)
            aggregates = _columns(node.aggregates)
            return stream.window(
                node.name, size=_duration(node.size), slide=slide, keys=node.keys, aggregates=aggregates
            )
        case SessionNode():
            aggregates = _columns(node.aggregates)
            return stream.session_window(node.name, gap=_duration(node.gap), keys=node.keys, aggregates=aggregates)
        case AggregateNode():
            return stream.aggregate(
                node.name,
                keys=node.keys,
                aggregates=_columns(node.aggregates),
                changelog=node.changelog,
                retractions=node.retractions,
            )
        case TopNode():
            return stream.top_n(node.name, n=node.n, order_by=_order(node.order_by), per=node.per)
        case RunningTopNode():
            return stream.running_top_n(node.name, n=node.n, order_by=_order(node.order_by), keys=node.keys)
        case DeduplicateNode():
            return stream.deduplicate(node.name, keys=node.keys)
        case _:
            raise AssertionError(f"there is no operator for {node}")


def _duration(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def _looked_up(node: LookupNode) -> Callable[[SparkSession], DataFrame]:
    reads = CONNECTORS[node.table.connector_name].reads
    assert reads is not None
    assert reads.lookup is not None
    read = reads.lookup
    return lambda spark: _applied(_computed(read(spark, node.table), node.table), node.step)


def _computed(frame: DataFrame, table: DeclaredTable) -> DataFrame:
    for name, sql in table.computed:
        frame = frame.withColumn(name, F.expr(sql))
    return frame.select(*(F.col(quoted(name)) for name in table.all_columns)) if table.all_columns else frame


def _order(order_by: OrderBy) -> list[Column]:
    return [
        getattr(F.col(name), f"{'desc' if descending else 'asc'}_nulls_{'first' if nulls_first else 'last'}")()
        for name, descending, nulls_first in order_by
    ]


def _source(p: Pipeline, node: SourceNode) -> Stream:
    table = node.table
    reads = CONNECTORS[table.connector_name].reads
    assert reads is not None
    frame = _computed(reads.table(p.spark, table), table)
    options: dict[str, Any] = {}
    if table.watermark is not None:
        options = {"event_time": table.watermark.column, "delay": _duration(table.watermark.delay)}
    if "idle-after" in table.options:
        options["idle_after"] = table.options["idle-after"]
    if "max-ahead" in table.options:
        options["max_ahead"] = table.options["max-ahead"]
    if "trigger" in table.options:
        options["trigger"] = table.options["trigger"]
    return p.source(node.name, frame, bounded=table.option("bounded") == "true", **options)


def _function(steps: tuple[SelectStep, ...]) -> Callable[[DataFrame], DataFrame]:
    def run(frame: DataFrame) -> DataFrame:
        for step in steps:
            frame = _applied(frame, step)
        return frame

    return run


def _applied(frame: DataFrame, step: SelectStep) -> DataFrame:
    if step.lateral:
        # Braces of the text itself are none of what is filled in.
        text = step.sql("\0").replace("{", "{{").replace("}", "}}").replace("\0", "{input}")
        return frame.sparkSession.sql(text, input=frame)
    # The same as the text, without a temporary view for every batch.
    if step.where is not None:
        frame = frame.where(step.where)
    return frame.select(*(F.expr(sql).alias(name) for name, sql in step.columns))


def _columns(aggregates: Aggregates) -> Mapping[str, Column]:
    return {name: _column(call) for name, call in aggregates.items()}


def _column(call: AggregateCall) -> Column:
    """A function call that the operators can take apart; text would be kept as a whole, and with it all rows."""
    if call.expression:
        return F.expr(call.expression)
    arguments = [F.lit(1) if argument == "*" else F.expr(argument) for argument in call.arguments]
    if call.distinct:
        if call.function == "count":
            return F.count_distinct(*arguments)
        return F.expr(str(call))
    return F.call_function(call.function, *arguments)


def _register(p: Pipeline, function: PythonFunction) -> None:
    where = f"{function.module}:{function.function}"
    try:
        module = importlib.import_module(function.module)
    except Exception as error:
        raise PipelineError(f"function {function.name}: {function.module} cannot be imported: {error}") from error
    found = getattr(module, function.function, None)
    if not callable(found):
        raise PipelineError(f"function {function.name}: there is no function {where}")
    # Workers need not be able to import the module: the function goes to them as a whole.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    if hasattr(found, "returnType"):
        p.spark.udf.register(function.name, found)
    elif function.returns is None:
        raise PipelineError(
            f"function {function.name}: say what {where} gives: CREATE FUNCTION {function.name} AS '{where}' RETURNS "
            "DOUBLE"
        )
    else:
        p.spark.udf.register(function.name, found, function.returns)
