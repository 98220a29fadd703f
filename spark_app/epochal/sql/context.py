"""What all parts of the planner share: the plan in the making, and the names of its operators."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.protocol.errors import InvalidNameError
from epochal.protocol.paths import check_label
from epochal.sql.errors import RefusedError
from epochal.sql.plan import Plan, PlanNode, SelectStep, TransformNode
from epochal.sql.relations import Relation, identity

Path = tuple[str, ...]
"""Where in the text a query stands: the view or sink it is for, then the names of subqueries."""


@dataclass(slots=True)
class Context:
    parameters: Mapping[str, str]
    plan: Plan = field(default_factory=Plan)

    def name(self, path: Path, kind: str, at: exp.Expr) -> str:
        """A name that stays the same while the text around it changes: where the query stands, what the operator does,
        and a number from the second on."""
        base = "-".join((*path, kind) if kind else path).lower()
        number = 1
        while (name := base if number == 1 else f"{base}-{number}") in self.plan.nodes:
            number += 1
        try:
            return check_label("operator", name)
        except InvalidNameError as error:
            raise RefusedError(at, f"{error} (operators are named after views, tables and aliases)") from error

    def add(self, node: PlanNode) -> str:
        self.plan.nodes[node.name] = node
        return node.name

    def transformed(self, relation: Relation, path: Path, kind: str, step: SelectStep, at: exp.Expr) -> Relation:
        """The relation after a stateless step; the same one if the step changes nothing."""
        columns = tuple(name for name, _ in step.columns)
        if step == identity(relation.columns):
            return relation
        names = {quoted(name): name for name in relation.columns}
        kept: dict[str, list[str]] = {}
        for name, sql in step.columns:
            if (old := names.get(sql)) is not None:
                kept.setdefault(old, []).append(name)
        times = tuple(name for time in relation.times for name in kept.get(time, ()))
        event_time = next(iter(kept.get(relation.event_time or "", times)), None)
        windowed = relation.windowed
        if windowed is not None:
            starts, ends = kept.get(windowed.start), kept.get(windowed.end or "", [])
            windowed = replace(windowed, start=starts[0], end=next(iter(ends), None)) if starts else None
        node = self.add(
            TransformNode(name=self.name(path, kind, at), inputs=(relation.node,), event_time=event_time, steps=(step,))
        )
        return replace(
            relation, node=node, columns=columns, times=times, event_time=event_time, windowed=windowed, ranking=None
        )

    def timed(self, relation: Relation, column: str, path: Path, at: exp.Expr) -> Relation:
        """The relation with ``column`` as its event time."""
        if relation.event_time == column:
            return relation
        node = TransformNode(name=self.name(path, "time", at), inputs=(relation.node,), event_time=column)
        return replace(relation, node=self.add(node), event_time=column)


def folded(plan: Plan) -> Plan:
    """Stateless operators that follow each other as one: the last one's name, all their steps."""
    readers: dict[str, int] = {}
    for node in plan.nodes.values():
        for name in node.inputs:
            readers[name] = readers.get(name, 0) + 1
    nodes: dict[str, PlanNode] = {}
    for node in plan.nodes.values():
        before = nodes.get(node.inputs[0]) if node.inputs else None
        if isinstance(node, TransformNode) and isinstance(before, TransformNode) and readers[before.name] == 1:
            del nodes[before.name]
            node = replace(
                node,
                inputs=before.inputs,
                steps=before.steps + node.steps,
                event_time=node.event_time or before.event_time,
            )
        nodes[node.name] = node
    return Plan(nodes=nodes, functions=plan.functions)
