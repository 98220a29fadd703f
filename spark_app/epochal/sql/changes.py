"""Aggregates of results that change: what an aggregate said before is taken back, so that each key counts once.

The aggregate below tells what it takes back in the column ``row_kind``, the steps between carry it, the one above reads
it. Whoever else reads that result gets the new values only, as without it.
"""

from dataclasses import replace

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.operators.aggregate_names import MERGED, TAKE_BACK
from epochal.runtime.dataflow.row_kind import ROW_KIND
from epochal.sql.context import Context
from epochal.sql.errors import RefusedError
from epochal.sql.plan import AggregateCall, AggregateNode, LookupNode, Plan, PlanNode, SelectStep, TransformNode
from epochal.sql.relations import Relation

CAN_BE_TAKEN_BACK = set(MERGED) - {"hll_sketch_agg"}
"""Aggregates whose old value is known when there is a new one, because it is kept whole. The bytes of a sketch depend
on the order in which its parts came."""


def take_back(ctx: Context, relation: Relation, calls: dict[str, AggregateCall], at: exp.Expr) -> None:
    """Let the aggregate that ``relation`` comes from tell what it takes back, for one that computes ``calls``."""
    below = ctx.plan.nodes.get(relation.changes_of or "")
    if not isinstance(below, AggregateNode):
        raise RefusedError(
            at,
            f"this would aggregate a result that changes ({relation.updating}): each change would count once more. "
            "Aggregate in windows, or group by all that is needed in one query",
        )
    for call in calls.values():
        if call.function not in TAKE_BACK or call.distinct:
            raise RefusedError(
                at,
                f"{_told(call)} of a result that changes ({relation.updating}): an old value could not be taken out of "
                f"it again; {', '.join(TAKE_BACK)} can",
            )
    for call in below.aggregates.values():
        if call.function not in CAN_BE_TAKEN_BACK or (call.distinct and call.function != "count"):
            raise RefusedError(
                at,
                f"this aggregates a result that changes ({relation.updating}), and {_told(call)} in that result does "
                f"not keep its old value: it can be {', '.join(sorted(CAN_BE_TAKEN_BACK))} or count(DISTINCT …)",
            )
    ctx.plan.nodes[below.name] = replace(below, retractions=True)


def _told(call: AggregateCall) -> str:
    return str(call).replace("`", "")


def carried(plan: Plan) -> Plan:
    """The plan with ``row_kind`` wherever it has to pass."""
    telling: dict[str, tuple[str, ...]] = {}  # operators whose rows have it, and their other columns
    nodes: dict[str, PlanNode] = {}
    for node in plan.nodes.values():
        made = node
        if isinstance(node, AggregateNode):
            if node.retractions:
                telling[node.name] = (*node.keys, *node.aggregates)
        elif isinstance(node, TransformNode | LookupNode) and node.inputs[0] in telling:
            columns = telling[node.inputs[0]]
            if isinstance(node, TransformNode):
                made = replace(node, steps=tuple(_with_kind(step) for step in node.steps))
                columns = tuple(name for name, _ in node.steps[-1].columns) if node.steps else columns
            else:
                columns = tuple(dict.fromkeys((*columns, *(name for name, _ in node.step.columns))))
            telling[node.name] = columns
        elif any(name in telling for name in node.inputs):
            made = replace(node, inputs=tuple(_new_only(name, telling, nodes) for name in node.inputs))
        nodes[made.name] = made
    return Plan(nodes=nodes, functions=plan.functions)


def _with_kind(step: SelectStep) -> SelectStep:
    return replace(step, columns=(*step.columns, (ROW_KIND, f"`{ROW_KIND}`")))


def _new_only(name: str, telling: dict[str, tuple[str, ...]], nodes: dict[str, PlanNode]) -> str:
    """The operator that gives the new values of operator ``name`` to those who cannot take anything back."""
    if name not in telling:
        return name
    step = SelectStep(columns=tuple((one, quoted(one)) for one in telling[name]), where=f"`{ROW_KIND}` IN ('+I', '+U')")
    new = f"{name}-new"
    nodes.setdefault(new, TransformNode(name=new, inputs=(name,), steps=(step,)))
    return new
