"""Expressions as they were written: pieces of the text, in which only what needs another name is replaced.

The parser says where each expression begins and ends, and what is inside it. The text itself goes to Spark, whose own
parser reads it: nothing is written out anew from a tree, so nothing of it can get lost on the way.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.sql.errors import RefusedError

PIECE = "piece"
"""Where a node of the tree remembers its piece."""


@dataclass(frozen=True, slots=True)
class Edit:
    """``new`` instead of what stands from ``start`` to before ``end``."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Source:
    """A whole text, and the strings in it that hold parameters."""

    text: str
    fills: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def with_(self, other: "Piece | None") -> "Piece":
        """From the beginning of the first to the end of the last."""
        if other is None:
            return self
        return Piece(self.source, min(self.start, other.start), max(self.end, other.end))

    def edited(self, edits: list[Edit]) -> str:
        fills = [
            fill
            for fill in self.source.fills
            if self.start <= fill.start < self.end and not any(edit.start <= fill.start < edit.end for edit in edits)
        ]
        parts, at = [], self.start
        for edit in sorted((*edits, *fills), key=lambda edit: edit.start):
            assert at <= edit.start <= edit.end <= self.end, f"{edit} in {self}"
            parts += [self.source.text[at : edit.start], edit.new]
            at = edit.end
        return "".join((*parts, self.source.text[at : self.end]))


def piece_of(node: exp.Expr) -> Piece:
    """Where an expression stands, with all that is inside it."""
    found = _piece(node)
    if found is None:
        raise RefusedError(node, "it cannot be said where this expression begins and ends: write it in another way")
    return found


def _piece(node: exp.Expr) -> Piece | None:
    found: Piece | None = node.meta.get(PIECE)
    for child in node.iter_expressions():
        inner = _piece(child)
        found = inner if found is None else found.with_(inner)
    return found


def is_written(node: exp.Expr) -> bool:
    """Whether it is known where a part of the tree stands: a unit of an interval has no place of its own."""
    return _piece(node) is not None


def word_of(name: exp.Expr) -> tuple[int, int]:
    """From where to where a name stands, which is one word."""
    if "start" in name.meta:
        return name.meta["start"], name.meta["end"] + 1
    piece = piece_of(name)
    return piece.start, piece.end


def written(node: exp.Expr) -> str:
    """An expression as it was written, with its parameters."""
    return piece_of(node).edited([])


def span(node: exp.Expr) -> tuple[int, int]:
    """From where to where in the text a part of the tree stands, for a message: (0, 0) if nothing of it remembers."""
    # What the parser adds by itself, such as the * of FROM t, is said to be at 0.
    placed = [part.meta for part in node.walk() if part.meta.get("end")]
    if placed:
        return min(meta["start"] for meta in placed), max(meta["end"] for meta in placed) + 1
    found = _piece(node)
    return (0, 0) if found is None else (found.start, found.end)


Change = Callable[[exp.Expr], list[Edit] | None]
"""What to replace in a part of an expression; None to look at the parts of that part."""


def rewritten(node: exp.Expr, change: Change) -> str:
    """An expression as it was written, but for what ``change`` replaces."""
    edits: list[Edit] = []

    def visit(part: exp.Expr, bound: frozenset[str]) -> None:
        if is_bound(part, bound):
            return
        if (found := change(part)) is not None:
            edits.extend(found)
            return
        for child in children(part):
            visit(child, bound | variables(part))

    visit(node, frozenset())
    return piece_of(node).edited(edits)


# --- what is inside an expression -------------------------------------------------------------------------------------

_UNITS = {
    "year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond", "microsecond",
}  # fmt: skip
_OF_UNITS = {"timestampadd", "dateadd", "date_add", "timestampdiff", "datediff", "date_diff"}
_WITHOUT_PARENTHESES = {"current_date", "current_timestamp", "current_time", "current_user", "session_user", "user"}


def is_call_without_parentheses(column: exp.Column) -> bool:
    """``user`` and its like, where no column is called so."""
    return len(column.parts) == 1 and column.name.lower() in _WITHOUT_PARENTHESES


def function_name(node: exp.Expr) -> str:
    """What a call calls, in small letters; empty for anything else."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


def children(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of an expression, without words that only look like columns: ``timestampadd(HOUR, 1, ts)``."""
    parts = list(node.iter_expressions())
    if function_name(node) in _OF_UNITS and len(parts) == 3:
        first = parts[0]
        if isinstance(first, exp.Column) and len(first.parts) == 1 and first.name.lower() in _UNITS:
            parts = parts[1:]
    yield from parts


def variables(node: exp.Expr) -> frozenset[str]:
    """The variables of a lambda; nothing for anything else."""
    return frozenset(one.name.lower() for one in node.expressions) if isinstance(node, exp.Lambda) else frozenset()


def is_bound(node: exp.Expr, bound: frozenset[str]) -> bool:
    return isinstance(node, exp.Column) and node.parts[0].name.lower() in bound


def columns_in(node: exp.Expr, bound: frozenset[str] = frozenset()) -> Iterator[exp.Column]:
    """The columns that an expression reads; the variables of lambdas are none."""
    if isinstance(node, exp.Column):
        if not is_bound(node, bound) and not isinstance(node.this, exp.Star):
            yield node
        return
    for child in children(node):
        yield from columns_in(child, bound | variables(node))


def replaced_by(column: str, node: exp.Expr) -> str:
    """A column instead of an expression. In a struct that is made of it, the field is called as Spark would call it."""
    around = node.parent
    row = isinstance(around, exp.Tuple) and not isinstance(around.parent, exp.In)
    if around is None or not (row or function_name(around) == "struct"):
        return quoted(column)
    number = next(place for place, one in enumerate(around.expressions, 1) if one is node)
    field = node.name if isinstance(node, exp.Column) else f"col{number}"
    return quoted(column) if field == column else f"{quoted(column)} AS {quoted(field)}"


_OWN = re.compile(
    r"__(all|count|number|start|(order|partition|key)_\d+|(left|right)_window_(start|end))", re.IGNORECASE
)


def is_own(name: str) -> bool:
    """Columns that the planner adds, and that no star brings."""
    return _OWN.fullmatch(name) is not None


def check_name(name: str, at: exp.Expr) -> str:
    if is_own(name):
        raise RefusedError(at, f"the planner has a column {name} of its own: choose another name")
    return name


# --- comparing --------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)|(?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<quoted>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<sign>.)""",
    re.DOTALL,
)


def form(text: str) -> tuple[str, ...]:
    """What two texts have in common that Spark reads alike: spaces, comments and the case of words do not count."""
    found = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "string":
            found.append(match[0])
        elif match.lastgroup == "quoted":
            found.append(match[0][1:-1].lower())
        elif match.lastgroup != "skip":
            found.append(match[0].lower())
    return tuple(found)


def tidy(text: str) -> str:
    """The same text in one line, without comments: state goes by what is computed, not by how it is laid out."""
    tokens = [(match.lastgroup, match[0]) for match in _TOKEN.finditer(text)]
    kept: list[str] = []
    for number, (kind, token) in enumerate(tokens):
        if kind != "skip":
            kept.append(token)
        elif number and tokens[number - 1][0] != "skip":
            kept.append(" ")
    return "".join(kept).strip()
