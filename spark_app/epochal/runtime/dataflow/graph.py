"""The graph of a job as it was described, checked before anything starts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from epochal.protocol.documents import PENDING
from epochal.protocol.paths import check_label
from epochal.runtime.dataflow.operator import MAIN, ROW_KIND, Operator, SinkOperator
from epochal.runtime.dataflow.sink_contract import check_sink
from epochal.runtime.dataflow.source import SourceSpec
from epochal.runtime.errors import OperatorError, PipelineError, UnavailableError, summarize_error, undescribed
from epochal.runtime.state.stored_types import check_storable

SINK = "sink"
"""The kind of nodes that end a stream."""

OutputSchemas = dict[str, StructType]
"""A node's output schema by port."""


@dataclass(frozen=True, slots=True)
class Input:
    """Where a node's rows come from: a node and one of its ports."""

    node: str
    port: str = MAIN


@dataclass(slots=True)
class Node:
    """One operator as described. ``schema_of`` says what comes out, given empty frames of what goes in; a wrong column
    shows there, long before the first row."""

    name: str
    kind: str
    inputs: tuple[Input, ...]
    operator: Operator | None = None
    source: SourceSpec | None = None
    keeps_time: bool = False
    """Whether the event time of what comes out is that of what goes in."""
    schema_of: Callable[[list[DataFrame]], dict[str, DataFrame]] = lambda frames: {MAIN: frames[0]}


@dataclass(slots=True)
class Graph:
    """Nodes in the order in which they were described: inputs always come before what they feed."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        check_label("operator", node.name)
        if node.name in self.nodes:
            raise PipelineError(
                f"two operators are named {node.name!r}: state is kept by name, so each needs a name of its own"
            )
        for source in node.inputs:
            if source.node not in self.nodes:
                raise PipelineError(
                    f"operator {node.name!r} reads from {source.node!r}, which is not in this pipeline: "
                    "streams cannot be shared between pipelines, and a graph has no cycles"
                )
            if isinstance(self.nodes[source.node].operator, SinkOperator):
                raise PipelineError(
                    f"operator {node.name!r} reads from {source.node!r}, which is a sink: nothing comes out of it"
                )
        self._check_operator(node)
        self.nodes[node.name] = node

    def _check_operator(self, node: Node) -> None:
        """An operator's own state and a sink's rows belong to one node, and to the runtime."""
        for other in self.nodes.values():
            if node.operator is not None and other.operator is node.operator:
                raise PipelineError(
                    f"operators {other.name!r} and {node.name!r} are the same object: make one for each"
                )
        if node.kind == SINK or isinstance(node.operator, SinkOperator):
            try:
                check_sink(node.operator)
            except PipelineError as error:
                raise PipelineError(f"operator {node.name!r}: {error}") from error

    def check(self, spark: SparkSession) -> dict[str, OutputSchemas]:
        """See that the graph can work. Returns each node's schemas."""
        if not self.nodes:
            raise PipelineError("the pipeline is empty: add a source and a sink")
        self._check_ends()
        schemas: dict[str, OutputSchemas] = {}
        for node in self.nodes.values():
            schemas[node.name] = self._check_node(spark, node, schemas)
        return schemas

    def _check_ends(self) -> None:
        if not any(node.source for node in self.nodes.values()):
            raise PipelineError("the pipeline has no source")
        used = {source.node for node in self.nodes.values() for source in node.inputs}
        for node in self.nodes.values():
            if node.name not in used and not isinstance(node.operator, SinkOperator):
                raise PipelineError(
                    f"operator {node.name!r} leads nowhere: connect it to a sink (for example .to_parquet) or remove it"
                )

    def _check_node(self, spark: SparkSession, node: Node, schemas: dict[str, OutputSchemas]) -> OutputSchemas:
        try:
            if node.source is not None:
                return {MAIN: node.source.read().schema}
            frames = [spark.createDataFrame([], schemas[source.node][source.port]) for source in node.inputs]
            if node.operator is not None and not node.operator.takes_changelog:
                _refuse_changelog(frames)
            outputs = {port: frame.schema for port, frame in node.schema_of(frames).items()}
            _check_tables(node, frames)
            return outputs
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


def _check_tables(node: Node, frames: list[DataFrame]) -> None:
    """What cannot be stored is told now, and not by the first checkpoint."""
    if isinstance(node.operator, SinkOperator):
        node.operator.tables = {PENDING: frames[0].schema}
    for schema in node.operator.tables.values() if node.operator is not None else ():
        check_storable(schema)


def _refuse_changelog(frames: list[DataFrame]) -> None:
    if any(ROW_KIND in frame.columns for frame in frames):
        raise PipelineError(
            f"the input is a changelog (it has a column {ROW_KIND!r}), and only aggregate can take rows back: "
            "aggregate it first, or rename that column if it means something else"
        )
