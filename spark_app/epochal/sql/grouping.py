"""GROUP BY taken apart: the window, and the keys with the names that they get."""

from dataclasses import dataclass

from sqlglot import exp

from epochal.runtime.dataflow.row_kind import ROW_KIND
from epochal.sql.calls import aggregates_in, named_apart
from epochal.sql.dialect import WindowCall
from epochal.sql.errors import RefusedError
from epochal.sql.relations import (
    END,
    START,
    TIME,
    WINDOW_COLUMNS,
    Relation,
    Scope,
    Windowed,
    WindowSpec,
    check_stateless,
)
from epochal.sql.slices import columns_in, function_name, is_call_without_parentheses, tidy
from epochal.sql.windows import group_window


@dataclass(slots=True)
class Grouping:
    """A GROUP BY taken apart: the window, and the keys by the names that they get."""

    window: WindowSpec | None
    again: Windowed | None
    keys: dict[str, exp.Expr]


def grouping_of(select: exp.Select, relation: Relation, scope: Scope) -> Grouping:
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
        elif relation.window is not None and is_window_column(tree):
            window_named = True
        elif (
            relation.windowed is not None
            and isinstance(tree, exp.Column)
            and resolved(tree, scope) == relation.windowed.start
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
    return Grouping(window, again, keys)


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
    plain = [plain_name(tree, scope) for tree in groups]
    computed = {id(tree): tidy(scope.sql(tree)) for tree, name in zip(groups, plain, strict=True) if name is None}
    names = named_apart(computed, (*relation.columns, *WINDOW_COLUMNS, ROW_KIND))
    keys: dict[str, exp.Expr] = {}
    for tree, name in zip(groups, plain, strict=True):
        keys.setdefault(names[id(tree)] if name is None else name, tree)
    return keys


def check_windows(where: list[exp.Expr], relation: Relation) -> None:
    for condition in where if relation.window is not None else ():
        for column in columns_in(condition):
            if is_window_column(column) and column.name.lower() not in {name.lower() for name in relation.columns}:
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


def is_window_column(tree: exp.Expr) -> bool:
    """A field of a struct may be called so, too: ``item.window_start`` is taken for one of an input ``item``."""
    return isinstance(tree, exp.Column) and len(tree.parts) <= 2 and tree.name.lower() in WINDOW_COLUMNS


def resolved(column: exp.Column, scope: Scope) -> str:
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


def plain_name(tree: exp.Expr, scope: Scope) -> str | None:
    """The name of a key that is a column of the input; None if it is computed."""
    if not isinstance(tree, exp.Column) or (is_call_without_parentheses(tree) and not scope.knows(tree)):
        return None
    found = scope.resolve(tree)
    return None if found.fields else found.name
