"""Joins that are not of two streams over time: a table that is looked up, and rows in the same window."""

from dataclasses import replace

from sqlglot import exp

from epochal.connectors.declared_table import DeclaredTable, quoted
from epochal.connectors.registry import CONNECTORS
from epochal.sql.context import Context, Path
from epochal.sql.errors import RefusedError
from epochal.sql.joins import Side, condition_of, how_of, keys_of, names_of, prepared, scope_of
from epochal.sql.plan import LookupNode, SelectStep, WindowJoinNode
from epochal.sql.relations import END, START, Relation, Scope, Windowed, all_of


def looked_up(
    ctx: Context, left: Side, table: DeclaredTable, join: exp.Join, alias: str, path: Path, where: list[exp.Expr]
) -> tuple[Relation, Scope, list[exp.Expr]]:
    """``JOIN t FOR SYSTEM_TIME AS OF …``: the table's rows as they are now."""
    how = how_of(join)
    if how not in ("inner", "left"):
        raise RefusedError(
            join.this, f"a table is looked up for rows of the stream: INNER or LEFT JOIN, not {how.upper()}"
        )
    able = [name for name, known in CONNECTORS.items() if known.reads is not None and known.reads.lookup is not None]
    if table.connector_name not in able:
        can = ", ".join(sorted(able))
        raise RefusedError(join.this, f"connector {table.connector_name!r} cannot be looked up: {can} can")
    scope = Scope()
    scope.add(alias, {name: name for name in table.all_columns}, join.this)
    right = Side(Relation(node=alias, columns=table.all_columns), scope, [])
    condition, where = condition_of(join, left, right, how, where)
    if not condition.keys or condition.bounds:
        raise RefusedError(join.args.get("on") or join.this, f"a lookup needs equal keys: ON {alias}.id = …")
    names = names_of(left, right, alias, join)
    keys = keys_of(condition, left, right, names, shared=how == "inner")
    rows = prepared(ctx, left, names[0], keys[0], left.relation.event_time, (*path, "lookup", "input"), join)
    given = {name for name, _ in keys[1]}
    columns = (*keys[1], *((new, quoted(name)) for name, new in names[1].items() if new not in given))
    node = LookupNode(
        name=ctx.name(path, "lookup", join.this),
        inputs=(rows.node,),
        event_time=rows.event_time,
        table=table,
        step=SelectStep(columns=columns, where=all_of(scope.sql(tree) for tree in right.own)),
        keys=tuple(name for name, _ in keys[0]),
        how=how,
    )
    result = replace(rows, node=ctx.add(node), columns=tuple(dict.fromkeys((*names[0].values(), *names[1].values()))))
    return result, scope_of(left, right, names), [*condition.rest, *where]


def window_joined(
    ctx: Context, left: Side, right: Side, join: exp.Join, alias: str, path: Path, where: list[exp.Expr]
) -> tuple[Relation, Scope, list[exp.Expr]]:
    """Rows of two window functions in the same window."""
    one, other = left.relation.window, right.relation.window
    if one is None or other is None or one.shape != other.shape or one.kind == "SESSION":
        raise RefusedError(
            join.this, "a join of windows needs the same TUMBLE or HOP on both sides, with the same intervals"
        )
    how = how_of(join)
    condition, where = condition_of(join, left, right, how, where)
    if condition.bounds:
        raise RefusedError(join.args.get("on") or join.this, "a join of windows takes no other bound on time")
    if not condition.same_window:
        raise RefusedError(
            join.args.get("on") or join.this,
            "a join of windows needs ON a.window_start = b.window_start AND a.window_end = b.window_end",
        )
    names = names_of(left, right, alias, join)
    keys = keys_of(condition, left, right, names, shared=how == "inner")
    inputs = [
        prepared(ctx, side, names[number], keys[number], spec.time, (*path, "join", where_), join)
        for number, (side, spec, where_) in enumerate(zip((left, right), (one, other), ("left", "right"), strict=True))
    ]
    node = WindowJoinNode(
        name=ctx.name(path, "join", join.this),
        inputs=tuple(side.node for side in inputs),
        event_time=START,
        size=one.size,
        slide=one.slide,
        keys=tuple(name for name, _ in keys[0]),
        how=how,
    )
    columns = tuple(dict.fromkeys((START, END, *names[0].values(), *names[1].values())))
    relation = Relation(
        node=ctx.add(node),
        columns=columns,
        times=(START, END),
        event_time=START,
        windowed=Windowed(start=START, end=END, size=one.size, slide=one.slide or one.size),
    )
    scope = scope_of(left, right, names)
    times = names[0][one.time], names[1][other.time]
    for number, side in enumerate((left, right)):
        bounds = {START: START, END: END}
        if how == "full" or how == ("right", "left")[number]:
            relation, bounds = _bounds_if_there(ctx, relation, times[number], ("left", "right")[number], path, join)
        for name in side.scope.sources:
            scope.sources[name].update(bounds)
    return relation, scope, [*condition.rest, *where]


def _bounds_if_there(
    ctx: Context, relation: Relation, time: str, side: str, path: Path, join: exp.Join
) -> tuple[Relation, dict[str, str]]:
    """The window of one side's row, which is null where that side has none. A row in a window has a time."""
    bounds = {name: f"__{side}_{name}" for name in (START, END)}
    added = ((new, f"CASE WHEN {quoted(time)} IS NOT NULL THEN {quoted(name)} END") for name, new in bounds.items())
    step = SelectStep(columns=(*((name, quoted(name)) for name in relation.columns), *added))
    return ctx.transformed(relation, (*path, "join"), f"{side}-window", step, join), bounds
