"""GROUP BY: windows, windows of windows, and updating aggregates."""

from dataclasses import dataclass, replace

from sqlglot import exp

from epochal.sql.calls import aggregates_in, call_of, is_aggregate, name_of, words_of
from epochal.sql.changes import take_back
from epochal.sql.context import Context, Path
from epochal.sql.dialect import WindowCall, spark_sql
from epochal.sql.errors import RefusedError
from epochal.sql.plan import AggregateCall, AggregateNode, SessionNode, Step, WindowNode
from epochal.sql.relations import (
    END,
    START,
    TIME,
    WINDOW_COLUMNS,
    Relation,
    Scope,
    Windowed,
    WindowSpec,
    all_of,
    check_stateless,
    quoted,
)
from epochal.sql.windows import group_window

ALL = "__all"
"""The one key of an aggregate over everything."""


@dataclass(slots=True)
class _Grouping:
    """A GROUP BY taken apart: the window, and the keys by the names that they get."""

    window: WindowSpec | None
    again: Windowed | None
    keys: dict[str, exp.Expr]


def aggregated(
    ctx: Context, select: exp.Select, relation: Relation, scope: Scope, path: Path, where: list[exp.Expr]
) -> Relation:
    """The relation after GROUP BY, HAVING and the select list."""
    grouping = _grouping(select, relation, scope)
    calls: dict[str, AggregateCall] = {}
    found: dict[str, str] = {}
    having = select.args.get("having")
    for item in [*select.expressions, *([having] if having is not None else [])]:
        for call in aggregates_in(item):
            made = call_of(call, scope)
            name = name_of(made)
            calls[name], found[spark_sql(call)] = made, name
    if relation.updating:
        take_back(ctx, relation, calls, select.args.get("group") or select.expressions[0])
    prepared = _prepared(ctx, relation, scope, path, grouping, where, select)
    result = _grouped(ctx, prepared, grouping, calls, path, select)
    return _finished(ctx, select, result, grouping, found, scope, path)


# --- GROUP BY ---------------------------------------------------------------------------------------------------------


def _grouping(select: exp.Select, relation: Relation, scope: Scope) -> _Grouping:
    group = select.args.get("group")
    for name in ("rollup", "cube", "grouping_sets", "totals"):
        if group is not None and group.args.get(name):
            raise _several_groupings(group, name)
    window, again = relation.window, None
    keys: dict[str, exp.Expr] = {}
    window_named = False
    for item in _groups(group, select):
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise _several_groupings(item, type(item).__name__)
        tree = _meant(item, select)
        if isinstance(tree, WindowCall):
            if window is not None:
                raise RefusedError(tree, "these rows are in windows already: group by window_start, window_end")
            window = group_window(tree, relation, scope)
            window_named = True
        elif relation.window is not None and _is_window_column(tree):
            window_named = True
        elif (
            relation.windowed is not None
            and isinstance(tree, exp.Column)
            and _resolved(tree, scope) == relation.windowed.start
        ):
            again = relation.windowed
        else:
            keys[_key_name(tree, scope, keys)] = tree
    if window is not None and not window_named:
        raise RefusedError(
            group or select.expressions[0],
            "rows of a window function are grouped by their windows: GROUP BY window_start, window_end, …",
        )
    if again is not None:
        keys = {name: tree for name, tree in keys.items() if name not in (again.end, TIME)}
    if window is not None and window.partition_by and set(window.partition_by) != set(keys):
        raise RefusedError(
            group or select,
            f"SESSION is partitioned by {', '.join(window.partition_by)}: group by the same, and window_start, "
            "window_end",
        )
    return _Grouping(window, again, keys)


def _groups(group: exp.Group | None, select: exp.Select) -> list[exp.Expr]:
    """What is grouped by; ALL is every item of the select list that holds no aggregate."""
    if group is None:
        return []
    if group.args.get("all"):
        return [item.unalias() for item in select.expressions if not aggregates_in(item)]
    return list(group.expressions)


def _several_groupings(at: exp.Expr, name: str) -> RefusedError:
    return RefusedError(at, f"GROUP BY with {name.upper()} cannot be streamed: write one INSERT for each grouping")


def _meant(item: exp.Expr, select: exp.Select) -> exp.Expr:
    """GROUP BY 1 and GROUP BY alias are the item of the select list."""
    if isinstance(item, exp.Literal) and item.is_int:
        position = int(item.name)
        if not 1 <= position <= len(select.expressions):
            raise RefusedError(item, f"GROUP BY {position}: the select list has {len(select.expressions)} items")
        chosen: exp.Expr = select.expressions[position - 1].unalias()
        return chosen
    if isinstance(item, exp.Column) and not item.table:
        for one in select.expressions:
            if isinstance(one, exp.Alias) and one.alias.lower() == item.name.lower() and not aggregates_in(one):
                named: exp.Expr = one.this
                return named
    return item


def _is_window_column(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column) and tree.name.lower() in WINDOW_COLUMNS


def _resolved(column: exp.Column, scope: Scope) -> str:
    return scope.resolve(column).name


def _key_name(tree: exp.Expr, scope: Scope, taken: dict[str, exp.Expr]) -> str:
    check_stateless(tree)
    if isinstance(tree, exp.Anonymous) and tree.name.lower() in ("window", "session_window"):
        raise RefusedError(
            tree,
            f"{tree.name}(…) would be a key that is kept for ever: write TUMBLE(ts, INTERVAL '1' MINUTE), "
            "HOP(ts, slide, size) or SESSION(ts, gap)",
        )
    if aggregates_in(tree):
        raise RefusedError(tree, "GROUP BY holds an aggregate: group by columns, and filter aggregates with HAVING")
    if isinstance(tree, exp.Column) and not isinstance(scope.resolve(tree), exp.Dot):
        return _resolved(tree, scope)
    name = words_of(spark_sql(tree))
    return name if name not in taken else f"{name}_{len(taken)}"


# --- the operators ----------------------------------------------------------------------------------------------------


def _prepared(
    ctx: Context, relation: Relation, scope: Scope, path: Path, grouping: _Grouping, where: list[exp.Expr], at: exp.Expr
) -> Relation:
    """Filtered, and with the keys as columns."""
    columns = [(name, f"`{name}`") for name in relation.columns]
    known = set(relation.columns)
    columns += [(name, scope.sql(tree)) for name, tree in grouping.keys.items() if name not in known]
    if grouping.window is None and grouping.again is None and not grouping.keys:
        columns.append((ALL, "1"))
    step = Step(columns=tuple(columns), where=all_of(scope.sql(condition) for condition in where))
    return ctx.transformed(relation, path, "input", step, at)


def _grouped(
    ctx: Context, relation: Relation, grouping: _Grouping, calls: dict[str, AggregateCall], path: Path, at: exp.Expr
) -> Relation:
    keys = tuple(grouping.keys)
    if not calls:
        calls = {"rows": AggregateCall(function="count", arguments=("1",))}
    if grouping.window is None and grouping.again is None:
        keys = keys or (ALL,)
        name = ctx.add(
            AggregateNode(
                name=ctx.name(path, "aggregate", at),
                inputs=(relation.node,),
                keys=keys,
                aggregates=calls,
                changelog=bool(relation.updating),
            )
        )
        return Relation(node=name, columns=(*keys, *calls), updating="GROUP BY without a window", changes_of=name)
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
    result: Relation,
    grouping: _Grouping,
    found: dict[str, str],
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
    outer = _Outer(grouping, found, scope, result)
    columns: list[tuple[str, str]] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or item.is_star:
            raise RefusedError(item, "SELECT * with GROUP BY: name the keys and aggregates")
        columns.append((output_name(item, [name for name, _ in columns]), outer.sql(item.unalias())))
    step = Step(columns=tuple(columns), where=all_of([outer.sql(having.this)]) if having is not None else None)
    if grouping.again is not None:
        end = f"timestamp_micros(unix_micros(`{START}`) + {result.windowed.size if result.windowed else 0})"
        whole = Step(columns=tuple((name, end if name == END else f"`{name}`") for name in result.columns))
        result = ctx.transformed(result, path, "window-end", whole, select)
        result = replace(
            result, times=(START, END), windowed=replace(result.windowed, end=END) if result.windowed else None
        )
    return ctx.transformed(result, path, "select", step, select)


@dataclass(slots=True)
class _Outer:
    """Expressions over the result of grouping: aggregates and keys are its columns, and nothing else is there."""

    grouping: _Grouping
    found: dict[str, str]
    scope: Scope
    result: Relation

    def sql(self, tree: exp.Expr) -> str:
        check_stateless_outside_aggregates(tree)
        return spark_sql(self._replaced(tree.copy()))

    def _replaced(self, tree: exp.Expr) -> exp.Expr:
        if (name := self.found.get(spark_sql(tree))) is not None:
            return quoted(name)
        for key, group in self.grouping.keys.items():
            if tree == group:
                return quoted(key)
        if (window := self._window_column(tree)) is not None:
            return window
        if isinstance(tree, exp.Column):
            resolved = _resolved(tree, self.scope)
            if resolved in self.grouping.keys:
                return self.scope.resolve(tree)
            raise RefusedError(
                tree,
                f"column {tree.name} is neither in GROUP BY nor inside an aggregate: add it to GROUP BY, or write "
                f"for example max({tree.name})",
            )
        for child in list(tree.iter_expressions()):
            new = self._replaced(child)
            if new is not child:
                child.replace(new)
        return tree

    def _window_column(self, tree: exp.Expr) -> exp.Expr | None:
        spec, again = self.grouping.window, self.grouping.again
        if spec is None and again is None:
            return None
        asked = ""
        if isinstance(tree, exp.Anonymous) and tree.name.upper() in _BOUNDS:
            asked = _BOUNDS[tree.name.upper()]
        elif isinstance(tree, exp.Column):
            if spec is not None:
                asked = tree.name.lower() if tree.name.lower() in WINDOW_COLUMNS else ""
            elif again is not None:
                asked = {again.start: START, again.end: END}.get(_resolved(tree, self.scope), "")
        if not asked:
            return None
        if asked == TIME:
            return exp.maybe_parse(f"`{END}` - INTERVAL '1' MILLISECOND", dialect="spark")
        return quoted(asked)


_BOUNDS = {
    f"{kind}_{what}": column
    for kind in ("TUMBLE", "HOP", "SESSION")
    for what, column in (("START", START), ("END", END), ("ROWTIME", TIME))
}


def check_stateless_outside_aggregates(tree: exp.Expr) -> None:
    if isinstance(tree, exp.Window | exp.Query):
        check_stateless(tree)
    if not is_aggregate(tree):
        for child in tree.iter_expressions():
            check_stateless_outside_aggregates(child)


def output_name(item: exp.Expr, taken: list[str]) -> str:
    """The name of a column of the select list: its alias, its column's name, or its words."""
    name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else ""
    if not name and isinstance(item, exp.Anonymous) and item.name.upper() in _BOUNDS:
        name = _BOUNDS[item.name.upper()]
    if not name and isinstance(item, exp.Dot):
        name = item.name
    name = name or words_of(spark_sql(item))
    if name.lower() in {one.lower() for one in taken}:
        raise RefusedError(item, f"two columns of the result are called {name}: give one another name with AS")
    return name
