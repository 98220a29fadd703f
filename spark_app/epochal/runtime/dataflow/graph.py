"""The graph of a job as it was described, checked before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from epochal.protocol.paths import check_label
from epochal.runtime.dataflow.operator import MAIN, BindContext, BoundOperator, Operator
from epochal.runtime.dataflow.row_kind import ROW_KIND
from epochal.runtime.dataflow.sink_contract import check_sink
from epochal.runtime.dataflow.source import SourceSpec
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.errors import OperatorError, PipelineError, UnavailableError, summarize_error, undescribed
from epochal.runtime.state.stored_types import check_storable

SINK = "sink"
"""The kind of nodes that end a stream."""


@dataclass(frozen=True, slots=True)
class Input:
    """Where a node's rows come from: a node and one of its ports."""

    node: str
    port: str = MAIN


@dataclass(frozen=True, slots=True)
class Node:
    """One source or operator as described."""

    name: str
    kind: str
    inputs: tuple[Input, ...]
    operator: Operator
    keeps_time: bool = False
    """Whether the event time of what comes out is that of what goes in."""

    @property
    def source(self) -> SourceSpec | None:
        return self.operator if isinstance(self.operator, SourceSpec) else None


@dataclass(slots=True)
class Graph:
    """Nodes in the order in which they were described: inputs always come before what they feed."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        check_label("operator", node.name)
        if node.name in self.nodes:
            raise PipelineError(
                f"two operators are named {node.name!r}: state is stored by name, so names must be unique"
            )
        for source in node.inputs:
            if source.node not in self.nodes:
                raise PipelineError(
                    f"operator {node.name!r} reads from {source.node!r}, which is not in this pipeline: "
                    "streams cannot be shared between pipelines, and a graph has no cycles"
                )
            if isinstance(self.nodes[source.node].operator, SinkOperator):
                raise PipelineError(
                    f"operator {node.name!r} reads from {source.node!r}, which is a sink and has no output"
                )
        self._check_operator(node)
        self.nodes[node.name] = node

    def _check_operator(self, node: Node) -> None:
        """An operator's own state and a sink's rows belong to one node, and to the runtime."""
        for other in self.nodes.values():
            if other.operator is node.operator:
                raise PipelineError(
                    f"operators {other.name!r} and {node.name!r} are the same object: make one for each"
                )
        if node.kind == SINK or isinstance(node.operator, SinkOperator):
            try:
                check_sink(node.operator)
            except PipelineError as error:
                raise PipelineError(f"operator {node.name!r}: {error}") from error

    def bind(self, spark: SparkSession) -> dict[str, BoundOperator]:
        """See that the graph can work, and make what does. A wrong column shows here, long before the first row."""
        if not self.nodes:
            raise PipelineError("the pipeline is empty: add a source and a sink")
        self._check_ends()
        bound: dict[str, BoundOperator] = {}
        for node in self.nodes.values():
            bound[node.name] = self._bind_node(node, BindContext(name=node.name, spark=spark), bound)
        return bound

    def _check_ends(self) -> None:
        if not any(node.source for node in self.nodes.values()):
            raise PipelineError("the pipeline has no source")
        used = {source.node for node in self.nodes.values() for source in node.inputs}
        for node in self.nodes.values():
            if node.name not in used and not isinstance(node.operator, SinkOperator):
                raise PipelineError(
                    f"operator {node.name!r} leads nowhere: connect it to a sink (for example .to_parquet) or remove it"
                )

    def _bind_node(self, node: Node, ctx: BindContext, bound: Mapping[str, BoundOperator]) -> BoundOperator:
        try:
            inputs = [bound[source.node].outputs[source.port] for source in node.inputs]
            return _bind_operator(node.operator, inputs, ctx)
        except PipelineError as error:
            raise PipelineError(f"operator {node.name!r}: {error}") from error
        except UnavailableError as error:
            raise OperatorError(node.name, error) from error
        except Exception as error:
            raise undescribed(f"operator {node.name!r}: {summarize_error(error)}", error) from error

    def untimed_sources(self, node: str) -> list[str]:
        """The sources that a node's rows come from and that have no event time: with one of them there is never a
        watermark."""
        found = self.nodes[node]
        if found.source is not None:
            return [] if found.source.event_time is not None else [node]
        return sorted({name for source in found.inputs for name in self.untimed_sources(source.node)})

    def max_ahead(self, node: str) -> int | None:
        """How far ahead of the clock the event times of rows may be that a node reads: what the most generous of its
        sources allows. None if they are not the sources' own, like those of sessions, which end in the future."""
        found = self.nodes[node]
        if found.source is not None:
            return found.source.max_ahead
        before = [self.nodes[source.node] for source in found.inputs]
        allowed = [self.max_ahead(one.name) if one.source is not None or one.keeps_time else None for one in before]
        known = [ahead for ahead in allowed if ahead is not None]
        return max(known) if known and len(known) == len(allowed) else None

    def edges(self) -> list[tuple[str, str]]:
        return [(source.node, node.name) for node in self.nodes.values() for source in node.inputs]


def _bind_operator(operator: Operator, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
    if not operator.takes_changelog:
        _refuse_changelog(inputs)
    bound = operator.bind(inputs, ctx)
    if not isinstance(bound, BoundOperator):
        raise PipelineError(f"bind must return a BoundOperator, not {type(bound).__name__}")
    names = [table.name for table in bound.tables]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PipelineError(f"it has two tables named {twice[0]!r}: state is kept by name")
    # What cannot be stored is told now, and not by the first checkpoint.
    for table in bound.tables:
        if table.schema is not None:
            check_storable(table.schema)
    return bound


def _refuse_changelog(inputs: Sequence[StructType]) -> None:
    if any(ROW_KIND in rows.names for rows in inputs):
        raise PipelineError(
            f"the input is a changelog (it has a column {ROW_KIND!r}), and only aggregate can take rows back: "
            "aggregate it first, or rename that column if it means something else"
        )
