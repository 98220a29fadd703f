"""GROUP BY: windows, windows of windows, and updating aggregates."""

from dataclasses import dataclass, replace
from itertools import chain, count

from sqlglot import exp

from epochal.runtime.operator import ROW_KIND
from epochal.sql.calls import aggregates_in, call_of, is_aggregate, named_apart, words_of
from epochal.sql.changes import take_back
from epochal.sql.context import Context, Path
from epochal.sql.dialect import WindowCall
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
)
from epochal.sql.slices import (
    Edit,
    check_name,
    columns_in,
    form,
    function_name,
    is_call_without_parentheses,
    piece_of,
    quoted,
    rewritten,
    written,
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
    _check_windows(where, relation)
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


# --- GROUP BY ---------------------------------------------------------------------------------------------------------


def _grouping(select: exp.Select, relation: Relation, scope: Scope) -> _Grouping:
    group = select.args.get("group")
    for name in ("rollup", "cube", "grouping_sets", "totals"):
        if group is not None and group.args.get(name):
            raise _several_groupings(group, name)
    window, again = relation.window, None
    groups: list[exp.Expr] = []
    window_named = False
    for item in _groups(group, select):
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise _several_groupings(item, type(item).__name__)
        tree = _meant(item, select, scope)
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
            groups.append(tree)
    if window is not None and not window_named:
        raise RefusedError(
            group or select.expressions[0],
            "rows of a window function are grouped by their windows: GROUP BY window_start, window_end, …",
        )
    keys = _keys(groups, relation, scope)
    if again is not None:
        keys = {name: tree for name, tree in keys.items() if name not in (again.end, TIME)}
    _check_window_keys(window, again, keys, group or select)
    return _Grouping(window, again, keys)


def _check_window_keys(
    window: WindowSpec | None, again: Windowed | None, keys: dict[str, exp.Expr], at: exp.Expr
) -> None:
    if window is None and again is None:
        return
    for name, tree in keys.items():
        if name in (START, END):
            raise RefusedError(
                tree, f"a column that is called {name} stands beside the window's: give it another name in a view"
            )
    if window is not None and window.partition_by and set(window.partition_by) != set(keys):
        raise RefusedError(
            at,
            f"SESSION is partitioned by {', '.join(window.partition_by)}: group by the same, and window_start, "
            "window_end",
        )


def _keys(groups: list[exp.Expr], relation: Relation, scope: Scope) -> dict[str, exp.Expr]:
    """What is grouped by, by the names that it gets: a column's own, or one that nothing else here has."""
    for tree in groups:
        _check_key(tree)
    plain = [_plain_name(tree, scope) for tree in groups]
    computed = {id(tree): scope.sql(tree) for tree, name in zip(groups, plain, strict=True) if name is None}
    names = named_apart(computed, (*relation.columns, *WINDOW_COLUMNS, ROW_KIND))
    keys: dict[str, exp.Expr] = {}
    for tree, name in zip(groups, plain, strict=True):
        keys.setdefault(names[id(tree)] if name is None else name, tree)
    return keys


def _check_windows(where: list[exp.Expr], relation: Relation) -> None:
    for condition in where if relation.window is not None else ():
        for column in columns_in(condition):
            if _is_window_column(column) and column.name.lower() not in {name.lower() for name in relation.columns}:
                raise RefusedError(column, "windows are filtered when they are there: write this condition in HAVING")


def _groups(group: exp.Group | None, select: exp.Select) -> list[exp.Expr]:
    """What is grouped by; ALL is every item of the select list that holds no aggregate."""
    if group is None:
        return []
    if group.args.get("all"):
        return [item.unalias() for item in select.expressions if not aggregates_in(item)]
    return list(group.expressions)


def _several_groupings(at: exp.Expr, name: str) -> RefusedError:
    return RefusedError(at, f"GROUP BY with {name.upper()} cannot be streamed: write one INSERT for each grouping")


def _meant(item: exp.Expr, select: exp.Select, scope: Scope) -> exp.Expr:
    """GROUP BY 1 and GROUP BY alias are the item of the select list; a column of the input comes before an alias."""
    if isinstance(item, exp.Literal) and item.is_int:
        position = int(item.name)
        if not 1 <= position <= len(select.expressions):
            raise RefusedError(item, f"GROUP BY {position}: the select list has {len(select.expressions)} items")
        chosen: exp.Expr = select.expressions[position - 1].unalias()
        return chosen
    if isinstance(item, exp.Column) and not item.table and not scope.knows(item):
        for one in select.expressions:
            if isinstance(one, exp.Alias) and one.alias.lower() == item.name.lower() and not aggregates_in(one):
                named: exp.Expr = one.this
                return named
    return item


def _is_window_column(tree: exp.Expr) -> bool:
    """A field of a struct may be called so, too: ``item.window_start`` is taken for one of an input ``item``."""
    return isinstance(tree, exp.Column) and len(tree.parts) <= 2 and tree.name.lower() in WINDOW_COLUMNS


def _resolved(column: exp.Column, scope: Scope) -> str:
    return scope.resolve(column).name


def _check_key(tree: exp.Expr) -> None:
    check_stateless(tree)
    if function_name(tree) in ("window", "session_window"):
        raise RefusedError(
            tree,
            f"{tree.name}(…) would be a key that is kept for ever: write TUMBLE(ts, INTERVAL '1' MINUTE), "
            "HOP(ts, slide, size) or SESSION(ts, gap)",
        )
    if aggregates_in(tree):
        raise RefusedError(tree, "GROUP BY holds an aggregate: group by columns, and filter aggregates with HAVING")


def _plain_name(tree: exp.Expr, scope: Scope) -> str | None:
    """The name of a key that is a column of the input; None if it is computed."""
    if not isinstance(tree, exp.Column) or (is_call_without_parentheses(tree) and not scope.knows(tree)):
        return None
    found = scope.resolve(tree)
    return None if found.fields else found.name


# --- the operators ----------------------------------------------------------------------------------------------------


def _prepared(
    ctx: Context, relation: Relation, scope: Scope, path: Path, grouping: _Grouping, where: list[exp.Expr], at: exp.Expr
) -> Relation:
    """Filtered, and with the keys as columns."""
    columns = [(name, quoted(name)) for name in relation.columns]
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
    grouping: _Grouping,
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
    outer = _Outer(grouping, found, scope, relation)
    columns: list[tuple[str, str]] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or item.is_star:
            raise RefusedError(item, "SELECT * with GROUP BY: name the keys and aggregates")
        name = check_name(output_name(item, [name for name, _ in columns]), item)
        columns.append((name, outer.sql(item.unalias())))
    step = Step(columns=tuple(columns), where=all_of([outer.sql(having.this)]) if having is not None else None)
    if grouping.again is not None:
        end = f"timestamp_micros(unix_micros(`{START}`) + {result.windowed.size if result.windowed else 0})"
        whole = Step(columns=tuple((name, end if name == END else quoted(name)) for name in result.columns))
        result = ctx.transformed(result, path, "window-end", whole, select)
        result = replace(
            result, times=(START, END), windowed=replace(result.windowed, end=END) if result.windowed else None
        )
    return ctx.transformed(result, path, "select", step, select)


@dataclass(slots=True)
class _Outer:
    """Expressions over the result of grouping: aggregates and keys are its columns, and nothing else is there."""

    grouping: _Grouping
    found: dict[int, str]
    scope: Scope
    relation: Relation

    def sql(self, tree: exp.Expr) -> str:
        check_stateless_outside_aggregates(tree)
        keys = {form(self.scope.sql(group)): name for name, group in self.grouping.keys.items()}

        def change(node: exp.Expr) -> list[Edit] | None:
            if (new := self._column_for(node, tree, keys)) is not None:
                piece = piece_of(node)
                return [Edit(piece.start, piece.end, new)]
            if node.is_star:
                raise RefusedError(node, "name the keys and aggregates here, instead of *")
            return self._column(node) if isinstance(node, exp.Column) else None

        return rewritten(tree, change)

    def _column_for(self, node: exp.Expr, root: exp.Expr, keys: dict[tuple[str, ...], str]) -> str | None:
        """The column of the result that a part of an expression is; None if it is none."""
        if (name := self.found.get(id(node))) is not None:
            return quoted(name)
        if (window := self._window_column(node)) is not None:
            return window
        if isinstance(node, exp.Column) and (plain := _plain_name(node, self.scope)) in self.grouping.keys:
            return quoted(plain or "")
        if not _stands_alone(node, root) or any(not self.scope.knows(column) for column in columns_in(node)):
            return None
        name = keys.get(form(rewritten(node, self.scope.renamed)))
        return None if name is None else quoted(name)

    def _column(self, column: exp.Column) -> list[Edit] | None:
        """A field of a key, which is all that a column can be that is no key."""
        if is_call_without_parentheses(column) and not self.scope.knows(column):
            return []
        if self.scope.resolve(column).name in self.grouping.keys:
            return self.scope.renamed(column)
        raise RefusedError(
            column,
            f"column {column.name} is neither in GROUP BY nor inside an aggregate: add it to GROUP BY, or write "
            f"for example max({column.name})",
        )

    def _window_column(self, tree: exp.Expr) -> str | None:
        spec, again = self.grouping.window, self.grouping.again
        if spec is None and again is None:
            return None
        asked = ""
        if function_name(tree).upper() in _BOUNDS:
            asked = _BOUNDS[function_name(tree).upper()]
            self._check_bound(tree)
        elif isinstance(tree, exp.Column):
            if spec is not None:
                asked = tree.name.lower() if _is_window_column(tree) else ""
            elif again is not None:
                asked = {again.start: START, again.end: END}.get(_resolved(tree, self.scope), "")
        if not asked:
            return None
        if asked == TIME:
            return f"({quoted(END)} - INTERVAL '1' MILLISECOND)"
        return quoted(asked)

    def _check_bound(self, call: exp.Expr) -> None:
        """``TUMBLE_START(ts, size)`` is of the window that is grouped by, or it is none."""
        spec = self.grouping.window
        kind = function_name(call).upper().partition("_")[0]
        if call.expressions and spec is not None:
            asked = group_window(WindowCall(this=kind, expressions=call.expressions), self.relation, self.scope)
            if asked.shape != spec.shape or asked.time != spec.time:
                raise RefusedError(
                    call, f"{call.name} is of another window than GROUP BY: write the same {kind} in both"
                )


_IN_ORDER = (
    exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod | exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.And
    | exp.Or | exp.Alias
)  # fmt: skip
"""Operators that bind as Spark has them bind."""


def _stands_alone(node: exp.Expr, root: exp.Expr) -> bool:
    """Whether a part of an expression is one for Spark, too: in ``a || b + c`` there is no ``b + c``. What is inside a
    lambda may be about its variables."""
    if isinstance(node, exp.Identifier) or node.find_ancestor(exp.Lambda) is not None:
        return False
    operator = isinstance(node, exp.Binary | exp.Unary | exp.Predicate | exp.Interval)
    if not operator or isinstance(node, exp.Paren | exp.Dot):
        return True
    within = node
    while within is not root and not isinstance(within.parent, exp.Paren | exp.Anonymous | exp.Case | exp.If):
        if not isinstance(within, _IN_ORDER) or within.parent is None:
            return False
        within = within.parent
    return within is node or isinstance(within, _IN_ORDER)


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
    if isinstance(item, exp.Aliases):
        raise RefusedError(item, "several columns of one expression: write LATERAL VIEW explode(items) t AS item")
    name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else ""
    if not name:
        name = _BOUNDS.get(function_name(item).upper(), "")
    if not name and isinstance(item, exp.Dot):
        name = item.name
    others = {one.lower() for one in taken}
    if not name:
        words = words_of(written(item)) or "value"
        return next(one for one in chain((words,), (f"{words}_{number}" for number in count(2))) if one not in others)
    if name.lower() in others:
        raise RefusedError(item, f"two columns of the result are called {name}: give one another name with AS")
    return name
