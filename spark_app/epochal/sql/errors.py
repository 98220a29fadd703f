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


def span(node: exp.Expr) -> tuple[int, int]:
    """From where to where in the text a part of the tree stands: (0, 0) if nothing of it remembers."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
    return (min(starts), max(ends) + 1) if starts else (0, 0)
