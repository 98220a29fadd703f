"""A query in parts, so that what it needs not to fail can be left out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.sql.generated.texts import NOTHING, WHOLE, Text, filled, joined


@dataclass(frozen=True, slots=True)
class Item:
    """A column of a result. What is ``fixed`` cannot be left out: something else in the query goes by it."""

    text: Text
    name: str
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    items: tuple[Item, ...]
    source: Text
    where: tuple[Text, ...] = ()
    tail: Text = NOTHING
    having: tuple[Text, ...] = ()
    distinct: bool = False

    @property
    def text(self) -> Text:
        items = joined(", ", [filled(f"§ AS {item.name}", item.text) for item in self.items])
        parts = [items, self.source]
        form = f"SELECT {'DISTINCT ' if self.distinct else ''}§ FROM §"
        if self.where:
            form, parts = f"{form} WHERE §", [*parts, joined(" AND ", [filled("(§)", one) for one in self.where])]
        form, parts = f"{form} §", [*parts, self.tail]
        if self.having:
            form, parts = f"{form} HAVING §", [*parts, joined(" AND ", [filled("(§)", one) for one in self.having])]
        return filled(form, *parts)


@dataclass(frozen=True, slots=True)
class Query:
    """``before`` are views that the job creates first, ``prefix`` is its WITH, ``around`` what stands around the
    query. A result that changes has ``keys``: the last rows of each count. ``nobody`` is a count that is 0 for a group
    without rows."""

    seed: int
    shape: str
    parts: tuple[Select, ...]
    before: str = ""
    prefix: Text = NOTHING
    around: Text = WHOLE
    keys: tuple[str, ...] | None = None
    nobody: str | None = None

    @property
    def text(self) -> Text:
        inner = joined(" UNION ALL ", [part.text for part in self.parts])
        return filled("§§", self.prefix, filled(self.around, inner))

    @property
    def name(self) -> str:
        return f"q{self.seed}"

    def statements(self, connector: str) -> str:
        """What a job needs for it."""
        sink = f"CREATE TABLE {self.name} WITH ({connector});"
        return f"{sink}\n{self.before}INSERT INTO {self.name} {self.text.stream};\n"

    def smaller(self) -> list["Query"]:
        """The query with one thing less."""
        found = []
        for number, item in enumerate(self.parts[0].items):
            if not item.fixed and len(self.parts[0].items) > 1:
                found.append(
                    self._each(lambda part, n=number: replace(part, items=part.items[:n] + part.items[n + 1 :]))
                )
        if any(part.where for part in self.parts):
            found.append(self._each(lambda part: replace(part, where=())))
        if any(part.having for part in self.parts):
            found.append(self._each(lambda part: replace(part, having=())))
        if len(self.parts) > 1:
            found.append(replace(self, parts=self.parts[:1]))
        return found

    def _each(self, change: Callable[..., Select]) -> "Query":
        return replace(self, parts=tuple(change(part) for part in self.parts))
