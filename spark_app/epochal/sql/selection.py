"""The select list: what its columns are called, and expressions over the result of grouping."""

from dataclasses import dataclass
from itertools import chain, count

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.sql.calls import is_aggregate, words_of
from epochal.sql.dialect import WindowCall
from epochal.sql.errors import RefusedError
from epochal.sql.grouping import Grouping, is_window_column, plain_name, resolved
from epochal.sql.relations import END, START, TIME, Relation, Scope, check_stateless
from epochal.sql.slices import (
    Edit,
    columns_in,
    form,
    function_name,
    is_call_without_parentheses,
    is_written,
    piece_of,
    replaced_by,
    rewritten,
    written,
)
from epochal.sql.windows import group_window


@dataclass(slots=True)
class Selected:
    """Expressions over the result of grouping: aggregates and keys are its columns, and nothing else is there."""

    grouping: Grouping
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
            return replaced_by(name, node)
        if (window := self._window_column(node)) is not None:
            return window
        if isinstance(node, exp.Column) and (plain := plain_name(node, self.scope)) in self.grouping.keys:
            return replaced_by(plain or "", node)
        if not _stands_alone(node, root) or any(not self.scope.knows(column) for column in columns_in(node)):
            return None
        name = keys.get(form(rewritten(node, self.scope.renamed)))
        return None if name is None else replaced_by(name, node)

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
                asked = tree.name.lower() if is_window_column(tree) else ""
            elif again is not None:
                asked = {again.start: START, again.end: END}.get(resolved(tree, self.scope), "")
        if not asked:
            return None
        if asked == TIME:
            return f"({quoted(END)} - INTERVAL '1' MILLISECOND)"
        return replaced_by(asked, tree)

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


_SUMS = exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod
_COMPARISONS = exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE
_CONDITIONS = exp.And | exp.Or
"""Operators that bind as Spark has them bind, but for comparisons of comparisons."""


def _stands_alone(node: exp.Expr, root: exp.Expr) -> bool:
    """Whether a part of an expression is one for Spark, too: in ``a || b + c`` there is no ``b + c``. What is inside a
    lambda may be about its variables."""
    if not is_written(node) or node.find_ancestor(exp.Lambda) is not None:
        return False
    operator = isinstance(node, exp.Binary | exp.Unary | exp.Predicate | exp.Interval)
    if not operator or isinstance(node, exp.Paren | exp.Dot):
        return True
    allowed = _SUMS | _COMPARISONS | _CONDITIONS if isinstance(node, _SUMS) else _CONDITIONS
    within = node
    while within is not root and not isinstance(within.parent, exp.Paren | exp.Anonymous | exp.Case | exp.If):
        within_order = isinstance(within, allowed) or (within is node and isinstance(node, _COMPARISONS))
        if not within_order or within.parent is None:
            return False
        within = within.parent
    return within is node or isinstance(within, allowed)


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
