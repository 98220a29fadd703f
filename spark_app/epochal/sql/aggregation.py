"""GROUP BY: windows, windows of windows, and updating aggregates."""

from dataclasses import replace

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.runtime.dataflow.row_kind import ROW_KIND
from epochal.sql.calls import aggregates_in, call_of, named_apart
from epochal.sql.changes import take_back
from epochal.sql.context import Context, Path
from epochal.sql.errors import RefusedError
from epochal.sql.grouping import Grouping, check_windows, grouping_of
from epochal.sql.plan import AggregateCall, AggregateNode, SelectStep, SessionNode, WindowNode
from epochal.sql.relations import (
    END,
    START,
    WINDOW_COLUMNS,
    Relation,
    Scope,
    Windowed,
    WindowSpec,
    all_of,
)
from epochal.sql.selection import Selected, output_name
from epochal.sql.slices import (
    check_name,
)

ALL = "__all"
"""The one key of an aggregate over everything."""


def aggregated(
    ctx: Context, select: exp.Select, relation: Relation, scope: Scope, path: Path, where: list[exp.Expr]
) -> Relation:
    """The relation after GROUP BY, HAVING and the select list."""
    grouping = grouping_of(select, relation, scope)
    check_windows(where, relation)
    having = select.args.get("having")
    made: dict[int, AggregateCall] = {}
    for item in [*select.expressions, *([having] if having is not None else [])]:
        made |= {id(call): call_of(call, scope) for call in aggregates_in(item)}
    taken = (*grouping.keys, *WINDOW_COLUMNS, ROW_KIND)
    found = named_apart({place: str(call) for place, call in made.items()}, taken)
    calls = {found[place]: call for place, call in made.items()}
    if relation.updating:
        take_back(ctx, relation, calls, select.args.get("group") or select.expressions[0])
    prepared = _prepared(ctx, relation, scope, path, grouping, where, select)
    result = _grouped(ctx, prepared, grouping, calls, path, select)
    return _finished(ctx, select, relation, result, grouping, found, scope, path)


# --- the operators ----------------------------------------------------------------------------------------------------


def _prepared(
    ctx: Context, relation: Relation, scope: Scope, path: Path, grouping: Grouping, where: list[exp.Expr], at: exp.Expr
) -> Relation:
    """Filtered, and with the keys as columns."""
    columns = [(name, quoted(name)) for name in relation.columns]
    known = set(relation.columns)
    columns += [(name, scope.sql(tree)) for name, tree in grouping.keys.items() if name not in known]
    if grouping.window is None and grouping.again is None and not grouping.keys:
        columns.append((ALL, "1"))
    step = SelectStep(columns=tuple(columns), where=all_of(scope.sql(condition) for condition in where))
    return ctx.transformed(relation, path, "input", step, at)


def _grouped(
    ctx: Context, relation: Relation, grouping: Grouping, calls: dict[str, AggregateCall], path: Path, at: exp.Expr
) -> Relation:
    keys = tuple(grouping.keys)
    if not calls:
        name = "rows" if "rows" not in grouping.keys else "__count"
        calls = {name: AggregateCall(function="count", arguments=("1",))}
    if grouping.window is None and grouping.again is None:
        keys = keys or (ALL,)
        node = ctx.add(
            AggregateNode(
                name=ctx.name(path, "aggregate", at),
                inputs=(relation.node,),
                keys=keys,
                aggregates=calls,
                changelog=bool(relation.updating),
            )
        )
        return Relation(node=node, columns=(*keys, *calls), updating="GROUP BY without a window", changes_of=node)
    spec = grouping.window
    if spec is None:
        assert grouping.again is not None
        again = grouping.again
        # Windows begin at multiples of the slide: a tumbling window of that length holds the rows of one window.
        spec = WindowSpec(kind="TUMBLE", time=again.start, size=again.slide)
    timed = ctx.timed(relation, spec.time, path, at)
    if spec.kind == "SESSION":
        session = SessionNode(
            name=ctx.name(path, "session", at),
            inputs=(timed.node,),
            event_time=spec.time,
            gap=spec.size,
            keys=keys,
            aggregates=calls,
        )
        return Relation(node=ctx.add(session), columns=(START, END, *keys, *calls), times=(END,), event_time=END)
    node_ = WindowNode(
        name=ctx.name(path, "window", at),
        inputs=(timed.node,),
        event_time=spec.time,
        size=spec.size,
        slide=spec.slide,
        keys=keys,
        aggregates=calls,
    )
    size = grouping.again.size if grouping.again else spec.size
    slide = grouping.again.slide if grouping.again else spec.slide or spec.size
    return Relation(
        node=ctx.add(node_),
        columns=(START, END, *keys, *calls),
        times=(START,) if grouping.again else (START, END),
        event_time=START,
        windowed=Windowed(start=START, end=None if grouping.again else END, size=size, slide=slide),
    )


# --- the select list --------------------------------------------------------------------------------------------------


def _finished(
    ctx: Context,
    select: exp.Select,
    relation: Relation,
    result: Relation,
    grouping: Grouping,
    found: dict[int, str],
    scope: Scope,
    path: Path,
) -> Relation:
    having = select.args.get("having")
    if having is not None and result.updating:
        raise RefusedError(
            having,
            "HAVING on a result that changes: a row that no longer holds could not be taken back. Group in a window, "
            "or "
            "filter where the result is read",
        )
    outer = Selected(grouping, found, scope, relation)
    columns: list[tuple[str, str]] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or item.is_star:
            raise RefusedError(item, "SELECT * with GROUP BY: name the keys and aggregates")
        name = check_name(output_name(item, [name for name, _ in columns]), item)
        columns.append((name, outer.sql(item.unalias())))
    step = SelectStep(columns=tuple(columns), where=all_of([outer.sql(having.this)]) if having is not None else None)
    if grouping.again is not None:
        end = f"timestamp_micros(unix_micros(`{START}`) + {result.windowed.size if result.windowed else 0})"
        whole = SelectStep(columns=tuple((name, end if name == END else quoted(name)) for name in result.columns))
        result = ctx.transformed(result, path, "window-end", whole, select)
        result = replace(
            result, times=(START, END), windowed=replace(result.windowed, end=END) if result.windowed else None
        )
    return ctx.transformed(result, path, "select", step, select)
