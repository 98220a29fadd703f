"""What a person who wrote SQL is told: where in the text, why it cannot be done, and what to do instead."""

from sqlglot import exp

from epochal.runtime.errors import PipelineError


class SqlError(PipelineError):
    """Something in the text cannot be run. ``reason`` without the place is for tables of messages."""

    def __init__(self, reason: str, *, text: str, start: int, end: int) -> None:
        self.reason = reason
        before = text[:start]
        self.line = before.count("\n") + 1
        self.column = start - (before.rfind("\n") + 1) + 1
        shown = text.split("\n")[self.line - 1].replace("\t", " ")
        width = max(1, min(end, start + len(shown)) - start)
        self.excerpt = f"  {shown}\n  {' ' * (self.column - 1)}{'^' * min(width, len(shown) - self.column + 2)}"
        super().__init__(f"line {self.line}, column {self.column}: {reason}\n{self.excerpt}")


class RefusedError(Exception):
    """Raised while planning, where the whole text is not at hand; ``at`` is the part of the tree that it is about."""

    def __init__(self, at: exp.Expr, reason: str) -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason


_CLAUSES = {
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "windows": "WINDOW",
    "by_name": "BY NAME",
    "version": "AS OF",
    "spec": "ROWS",
}


def only(node: exp.Expr, *known: str) -> None:
    """Refuse a part of a statement that the planner does not know: whatever it would leave out means something."""
    for name, value in node.args.items():
        found = value[0] if isinstance(value, list) and value else value
        if name not in known and found:
            word = _CLAUSES.get(name, name.rstrip("_").upper())
            raise RefusedError(found if isinstance(found, exp.Expr) else node, f"{word} is not there: leave it out")
