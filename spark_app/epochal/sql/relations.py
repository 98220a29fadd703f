"""Relations while a query is planned: which operator gives the rows, which columns they have, what is known of time."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from epochal.sql.dialect import WindowCall, spark_sql
from epochal.sql.errors import RefusedError
from epochal.sql.plan import Step

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
class Ranking:
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
    ranking: Ranking | None = None

    @property
    def visible(self) -> tuple[str, ...]:
        """With what a window function adds and a ranking is called."""
        added = WINDOW_COLUMNS if self.window is not None else ()
        return (*self.columns, *added, *((self.ranking.name,) if self.ranking else ()))


@dataclass(slots=True)
class Scope:
    """What column names mean in one query: by alias, a name as written (in small letters) to a column of the input."""

    sources: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, alias: str, columns: Mapping[str, str], at: exp.Expr) -> None:
        if alias.lower() in self.sources:
            raise RefusedError(at, f"two inputs are called {alias} here: give one of them another name with AS")
        self.sources[alias.lower()] = {name.lower(): actual for name, actual in columns.items()}

    def resolve(self, column: exp.Column) -> exp.Expr:
        """The column of the input, with the fields of a struct that are asked for."""
        names = [part.name for part in column.parts]
        if len(names) > 1 and names[0].lower() in self.sources:
            found = self.sources[names[0].lower()].get(names[1].lower())
            if found is None:
                raise _unknown(column, names[1], self.sources[names[0].lower()], f" in {names[0]}")
            fields = names[2:]
        else:
            owners = [alias for alias, columns in self.sources.items() if names[0].lower() in columns]
            meant = {self.sources[alias][names[0].lower()] for alias in owners}
            if len(meant) > 1:
                both = " or ".join(f"{alias}.{names[0]}" for alias in owners)
                raise RefusedError(column, f"column {names[0]} is in more than one input: write {both}")
            if not meant:
                if len(names) > 1 and not any(names[0].lower() in columns for columns in self.sources.values()):
                    known = ", ".join(self.sources)
                    raise RefusedError(
                        column, f"there is no input {names[0]} here, and no column of that name; there is {known}"
                    )
                everything = {name for columns in self.sources.values() for name in columns}
                raise _unknown(column, names[0], everything, "")
            found, fields = meant.pop(), names[1:]
        result: exp.Expr = quoted(found)
        for name in fields:
            result = exp.Dot(this=result, expression=exp.to_identifier(name, quoted=True))
        result.meta.update({key: value for part in column.parts for key, value in part.meta.items()})
        return result

    def side_of(self, column: exp.Column) -> str:
        """Which input a column belongs to."""
        names = [part.name.lower() for part in column.parts]
        if len(names) > 1 and names[0] in self.sources:
            return names[0]
        self.resolve(column)
        return next(alias for alias, columns in self.sources.items() if names[0] in columns)

    def rewritten(self, tree: exp.Expr) -> exp.Expr:
        """The same expression over the columns of the input. What Spark SQL can do with a batch, it may do."""
        check_stateless(tree)
        return tree.copy().transform(lambda node: self.resolve(node) if isinstance(node, exp.Column) else node)

    def sql(self, tree: exp.Expr) -> str:
        return spark_sql(self.rewritten(tree))


def _unknown(column: exp.Expr, name: str, known: Iterable[str], where: str) -> RefusedError:
    known = [one for one in known if not one.startswith("__")]
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f": did you mean {close[0]}?" if close else f"; there is {', '.join(known)}"
    return RefusedError(column, f"there is no column {name}{where}{hint}")


def quoted(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


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
    return conjuncts(tree.this) if isinstance(tree, exp.Paren) and isinstance(tree.this, exp.And) else [tree]


def all_of(conditions: Iterable[str]) -> str | None:
    listed = [f"({condition})" for condition in conditions]
    return " AND ".join(listed) or None


def identity(columns: Iterable[str], *, where: str | None = None) -> Step:
    return Step(columns=tuple((name, f"`{name}`") for name in columns), where=where)
