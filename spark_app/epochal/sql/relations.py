"""Relations while a query is planned: which operator gives the rows, which columns they have, what is known of time."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.sql.dialect import WindowCall
from epochal.sql.errors import RefusedError
from epochal.sql.plan import SelectStep
from epochal.sql.slices import (
    Edit,
    function_name,
    is_call_without_parentheses,
    is_own,
    piece_of,
    replaced_by,
    rewritten,
    word_of,
)

START, END, TIME = "window_start", "window_end", "window_time"
WINDOW_COLUMNS = (START, END, TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """A windowing table function whose rows have not been grouped yet. Times in microseconds; ``size`` is a session's
    gap."""

    kind: str
    time: str
    size: int
    slide: int | None = None
    partition_by: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[str, int, int | None]:
        return self.kind, self.size, self.slide


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """The columns that hold the windows of rows that came out of windows: begins are multiples of ``slide``."""

    start: str
    end: str | None
    size: int
    slide: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowNumber:
    """A ``ROW_NUMBER()`` that waits for its ``<= n``. Columns are those of the relation; order is (column, descending,
    nulls first)."""

    name: str
    partition_by: tuple[str, ...]
    order_by: tuple[tuple[str, bool, bool], ...]
    at: exp.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Rows of the operator ``node``. ``times`` are the columns that may serve as event time, ``updating`` says what
    makes it a stream of changed values, if it is one, and ``changes_of`` is the operator that could take them back."""

    node: str
    columns: tuple[str, ...]
    times: tuple[str, ...] = ()
    event_time: str | None = None
    updating: str = ""
    changes_of: str | None = None
    window: WindowSpec | None = None
    windowed: Windowed | None = None
    ranking: RowNumber | None = None

    @property
    def visible(self) -> tuple[str, ...]:
        """With what a window function adds and a ranking is called."""
        added = WINDOW_COLUMNS if self.window is not None else ()
        return (*self.columns, *added, *((self.ranking.name,) if self.ranking else ()))


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of the input, the part of what was written that names it, and the fields that are asked for of it."""

    name: str
    part: exp.Expr
    fields: tuple[str, ...]


@dataclass(slots=True)
class Scope:
    """What column names mean in one query: by alias, a name as written (in small letters) to a column of the input."""

    sources: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, alias: str, columns: Mapping[str, str], at: exp.Expr) -> None:
        if alias.lower() in self.sources:
            raise RefusedError(at, f"two inputs are called {alias} here: give one of them another name with AS")
        self.sources[alias.lower()] = {name.lower(): actual for name, actual in columns.items()}

    def resolve(self, column: exp.Column) -> FoundColumn:
        """The column of the input that is meant, with the fields of a struct that are asked for."""
        parts = column.parts
        names = [part.name for part in parts]
        if len(names) > 1 and names[0].lower() in self.sources:
            found = self.sources[names[0].lower()].get(names[1].lower())
            if found is None:
                raise _unknown(column, names[1], self.sources[names[0].lower()], f" in {names[0]}")
            return FoundColumn(found, parts[1], tuple(names[2:]))
        owners = [alias for alias, columns in self.sources.items() if names[0].lower() in columns]
        meant = {self.sources[alias][names[0].lower()] for alias in owners}
        if len(meant) > 1:
            both = " or ".join(f"{alias}.{names[0]}" for alias in owners)
            raise RefusedError(column, f"column {names[0]} is in more than one input: write {both}")
        if not meant:
            if len(names) > 1:
                known = ", ".join(self.sources)
                raise RefusedError(
                    column, f"there is no input {names[0]} here, and no column of that name; there is {known}"
                )
            everything = {name for columns in self.sources.values() for name in columns}
            raise _unknown(column, names[0], everything, "")
        return FoundColumn(meant.pop(), parts[0], tuple(names[1:]))

    def knows(self, column: exp.Column) -> bool:
        try:
            self.resolve(column)
        except RefusedError:
            return False
        return True

    def sql(self, tree: exp.Expr) -> str:
        """The same expression over the columns of the input. What Spark SQL can do with a batch, it may do."""
        check_stateless(tree)
        if isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star) and self.knows(tree):
            found = self.resolve(tree)
            if not found.fields:
                return quoted(found.name)
        return rewritten(tree, self.renamed)

    def renamed(self, node: exp.Expr) -> list[Edit] | None:
        """What a column is called in the input, where its name stands; None for what is no column."""
        if node.is_star and not isinstance(node, exp.Query):
            return self._everything(node)
        if not isinstance(node, exp.Column):
            return None
        if is_call_without_parentheses(node) and not self.knows(node):
            return []
        found = self.resolve(node)
        begin, named = word_of(node.parts[0]), word_of(found.part)
        # As written where that is its name: what it is called in a struct that is made of it goes by that.
        same = found.part.name.lower() == found.name.lower()
        name = found.part.name if same else found.name
        return [Edit(begin[0], named[1], quoted(name) if found.fields else replaced_by(name, node))]

    def _everything(self, star: exp.Expr) -> list[Edit]:
        """The columns that a star inside a call stands for."""
        if (
            star.parent is not None
            and function_name(star.parent) == "count"
            and isinstance(star, exp.Star)
            and not any(star.args.values())
        ):
            return []
        if len(self.sources) != 1 or any(star.args.get(word) for word in ("except_", "replace", "rename")):
            raise RefusedError(star, "name the columns here, instead of *")
        columns = next(iter(self.sources.values()))
        piece = piece_of(star)
        shown = [quoted(actual) for actual in columns.values() if not is_own(actual)]
        return [Edit(piece.start, piece.end, ", ".join(shown))]


def _unknown(column: exp.Expr, name: str, known: Iterable[str], where: str) -> RefusedError:
    known = [one for one in known if not is_own(one)]
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f": did you mean {close[0]}?" if close else f"; there is {', '.join(known)}"
    return RefusedError(column, f"there is no column {name}{where}{hint}")


def check_stateless(tree: exp.Expr) -> None:
    """Refuse what needs more than the rows of one micro-batch."""
    for node in tree.walk():
        if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
            raise RefusedError(
                node,
                "a subquery inside an expression cannot be streamed: join with it (with a bound on time, or "
                "FOR SYSTEM_TIME AS OF for a table that is looked up)",
            )
        if isinstance(node, exp.Window):
            raise RefusedError(
                node,
                "OVER (…) would need all rows at once: use TUMBLE, HOP or SESSION with GROUP BY; of window functions "
                "only ROW_NUMBER() with a filter such as <= 3 around it can be streamed",
            )
        if isinstance(node, WindowCall):
            raise RefusedError(
                node,
                f"{node.name} belongs into GROUP BY, or into FROM as TABLE({node.name}(TABLE t, DESCRIPTOR(ts), …))",
            )


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that all must hold."""
    if tree is None:
        return []
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.this), *conjuncts(tree.expression)]
    return conjuncts(tree.this) if isinstance(tree, exp.Paren) else [tree]


def all_of(conditions: Iterable[str]) -> str | None:
    listed = [f"({condition})" for condition in conditions]
    return " AND ".join(listed) or None


def identity(columns: Iterable[str], *, where: str | None = None) -> SelectStep:
    return SelectStep(columns=tuple((name, quoted(name)) for name in columns), where=where)
