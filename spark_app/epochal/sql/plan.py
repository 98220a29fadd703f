"""What a text is planned onto: the pipeline's operators, as plain data. Making and drawing a plan needs no Spark."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from epochal.connectors.declared_table import DeclaredTable, quoted
from epochal.sql.tables import PythonFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectStep:
    """Stateless work on one micro-batch: filter, then project. Columns are (name, Spark SQL)."""

    columns: tuple[tuple[str, str], ...]
    where: str | None = None
    lateral: str = ""

    def sql(self, input_: str) -> str:
        """The step as one query of ``input_``."""
        chosen = ", ".join(sql if sql == quoted(name) else f"{sql} AS {quoted(name)}" for name, sql in self.columns)
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {chosen} FROM {input_}{self.lateral}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """One aggregate. ``expression`` stands for all of it where it is more than a function of its arguments."""

    function: str = ""
    arguments: tuple[str, ...] = ()
    distinct: bool = False
    expression: str = ""

    def __str__(self) -> str:
        inside = ", ".join(self.arguments)
        return self.expression or f"{self.function}({'DISTINCT ' if self.distinct else ''}{inside})"


Aggregates = Mapping[str, AggregateCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """One operator. ``inputs`` are names of operators before it."""

    name: str
    inputs: tuple[str, ...] = ()
    event_time: str | None = None

    @property
    def kind(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__.removesuffix("Node")).lower()

    @property
    def details(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode(PlanNode):
    table: DeclaredTable

    @property
    def details(self) -> tuple[str, ...]:
        watermark = self.table.watermark
        told = () if watermark is None else (f"event time {watermark.column}, {seconds(watermark.delay)} late at most",)
        return (self.table.connector_name, *told)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformNode(PlanNode):
    steps: tuple[SelectStep, ...] = ()

    @property
    def details(self) -> tuple[str, ...]:
        return tuple(_shown(step.sql("input")) for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionNode(PlanNode):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNode(PlanNode):
    """Tumbling, or sliding with a ``slide``. Times in microseconds."""

    size: int
    slide: int | None
    keys: tuple[str, ...]
    aggregates: Aggregates

    @property
    def details(self) -> tuple[str, ...]:
        every = f" every {seconds(self.slide)}" if self.slide else ""
        return (f"{seconds(self.size)}{every}{_by(self.keys)}", _told(self.aggregates))


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateNode(PlanNode):
    """``changelog``: the input's rows may take back earlier ones; ``retractions``: those of the result do."""

    keys: tuple[str, ...]
    aggregates: Aggregates
    changelog: bool = False
    retractions: bool = False

    @property
    def details(self) -> tuple[str, ...]:
        back = " that take back what was said before" if self.retractions else ""
        return (f"updates{back}{_by(self.keys)}", _told(self.aggregates))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinNode(PlanNode):
    """The right event time less the left one is between ``lower`` and ``upper``."""

    keys: tuple[str, ...]
    lower: int
    upper: int
    how: str

    @property
    def details(self) -> tuple[str, ...]:
        return (f"{self.how}{_by(self.keys)}, from {seconds(self.lower)} to {seconds(self.upper)}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNode(PlanNode):
    gap: int
    keys: tuple[str, ...]
    aggregates: Aggregates

    @property
    def details(self) -> tuple[str, ...]:
        return (f"gap of {seconds(self.gap)}{_by(self.keys)}", _told(self.aggregates))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowJoinNode(PlanNode):
    size: int
    slide: int | None
    keys: tuple[str, ...]
    how: str

    @property
    def details(self) -> tuple[str, ...]:
        every = f" every {seconds(self.slide)}" if self.slide else ""
        return (f"{self.how}{_by(self.keys)}, in windows of {seconds(self.size)}{every}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupNode(PlanNode):
    """``step`` is done to the table's rows."""

    table: DeclaredTable
    step: SelectStep
    keys: tuple[str, ...]
    how: str

    @property
    def details(self) -> tuple[str, ...]:
        return (f"{self.how}{_by(self.keys)}, in {self.table.name} ({self.table.connector_name})",)


OrderBy = tuple[tuple[str, bool, bool], ...]
"""Columns, whether descending, and whether nulls come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopNode(PlanNode):
    """Of each event time."""

    n: int
    order_by: OrderBy
    per: tuple[str, ...]

    @property
    def details(self) -> tuple[str, ...]:
        return (f"first {self.n} of each {self.event_time}{_by(self.per)}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTopNode(PlanNode):
    n: int
    order_by: OrderBy
    keys: tuple[str, ...]

    @property
    def details(self) -> tuple[str, ...]:
        return (f"updates of the first {self.n}{_by(self.keys)}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateNode(PlanNode):
    keys: tuple[str, ...]

    @property
    def details(self) -> tuple[str, ...]:
        return (_by(self.keys).strip(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode(PlanNode):
    table: DeclaredTable

    @property
    def details(self) -> tuple[str, ...]:
        return (self.table.connector_name,)


@dataclass(slots=True)
class Plan:
    """Nodes in an order in which inputs come first."""

    nodes: dict[str, PlanNode] = field(default_factory=dict)
    functions: list[PythonFunction] = field(default_factory=list)


def seconds(micros: int) -> str:
    if micros == 0:
        return "0 s"
    for unit, name in ((3600 * 10**6, "h"), (60 * 10**6, "min"), (10**6, "s"), (1000, "ms")):
        if micros % unit == 0:
            return f"{micros // unit} {name}"
    return f"{micros} µs"


def _by(keys: tuple[str, ...]) -> str:
    return f" by {', '.join(keys)}" if keys else ""


def _told(aggregates: Aggregates) -> str:
    return _shown(", ".join(f"{name} = {call}" for name, call in aggregates.items()))


def _shown(sql: str) -> str:
    """In one line, and easier to read."""
    return " ".join(sql.replace("`", "").split())
