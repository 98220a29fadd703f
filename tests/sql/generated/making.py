"""Queries by chance over one stream, or a union: the same seed gives the same query."""

import random
from dataclasses import dataclass

from tests.sql.generated.aggregates import Aggregates
from tests.sql.generated.expressions import Columns, Expressions
from tests.sql.generated.queries import Item, Query, Select
from tests.sql.generated.texts import HOLE, NOTHING, Text, filled, joined, one_of, same

COLUMNS: Columns = {
    "number": ("c", "id", "`c`"),
    "double": ("d",),
    "text": ("k", "`two words`"),
    "boolean": ("b",),
    "time": ("ts",),
    "unique": ("c", "id", "k", "`two words`", "b", "ts"),
}
PAYMENTS_AS_ORDERS = "SELECT id, k, c, amount, ok, `select`, seen FROM payments"


@dataclass(frozen=True, slots=True)
class Source:
    """What FROM names: a table, or a query with a name."""

    text: Text
    before: str = ""
    prefix: Text = NOTHING


class Maker:
    """What all shapes of queries need."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.of = Expressions(self.chance, COLUMNS)
        self.aggregates = Aggregates(self.of)

    def query(self, shape: str, source: Source, *parts: Select, around: Text | None = None, **more: object) -> Query:
        return Query(
            seed=self.seed,
            shape=shape,
            parts=parts,
            before=source.before,
            prefix=source.prefix,
            around=around or same(HOLE),
            **more,  # type: ignore[arg-type]
        )

    # --- FROM and WHERE ---

    def source(self, *, named: bool = False) -> Source:
        """Rows with the columns of orders. A window function takes only what has a name of its own."""
        kinds = [self._table, self._table, self._view, self._cte, self._union_view]
        return self.chance.choice(kinds if named else [*kinds, self._subquery])()

    def _table(self) -> Source:
        return Source(same("orders"))

    def _inner(self) -> Text:
        columns = self.chance.choice(
            [
                "*",
                "id, k, c - 1 AS c, d, b, `two words`, ts",
                "id, upper(k) AS k, -c AS c, d, NOT b AS b, k AS `two words`, ts",
            ]
        )
        inner = same(f"SELECT {columns} FROM orders")
        return filled("§ WHERE §", inner, self.of.boolean(1)) if self.chance.random() < 0.6 else inner

    def _view(self) -> Source:
        return self.viewed(f"v{self.seed}", self._inner())

    def _union_view(self) -> Source:
        return self.viewed(f"u{self.seed}", filled(f"§ UNION ALL {PAYMENTS_AS_ORDERS}", self._inner()))

    @staticmethod
    def viewed(name: str, inner: Text, *, before: str = "") -> Source:
        """A view of the job; a subquery where there is none."""
        duck = None if inner.duck is None else f"({inner.duck}) AS {name}"
        text = Text(name, f"({inner.batch}) AS {name}", duck)
        return Source(text, before=f"{before}CREATE VIEW {name} AS {inner.stream};\n")

    def _cte(self) -> Source:
        return Source(same("cte"), prefix=filled("WITH cte AS (§) ", self._inner()))

    def _subquery(self) -> Source:
        return Source(filled("(§) AS sub", self._inner()))

    def where(self) -> tuple[Text, ...]:
        return tuple(self.of.boolean() for _ in range(self.chance.choice([0, 0, 1, 1, 2])))

    # --- GROUP BY ---

    def key(self) -> Text:
        """Something to group by."""
        made = one_of(
            self.chance,
            [
                lambda: self.of.column("text"),
                lambda: self.of.column("double"),
                lambda: self.of.column("boolean"),
                lambda: filled("-§", self.of.column("number")),
                lambda: filled("§ % 3", self.of.column("number")),
                lambda: self.of.number(1),
                lambda: self.of.text(1),
                lambda: self.of.boolean(1),
            ],
        )
        # GROUP BY 2 is the second item of the select list.
        return self.of.column("number") if made.batch.isdigit() else made

    def keys(self, *, most: int = 2, least: int = 0) -> tuple[Item, ...]:
        count = self.chance.randrange(least, most + 1)
        return tuple(Item(self.key(), f"k{number}", fixed=True) for number in range(count))

    def measures(self, *, least: int = 1) -> tuple[Item, ...]:
        found = self.aggregates.several(self.chance.randrange(least, 4))
        return tuple(Item(text, f"m{number}") for number, text in enumerate(found))

    def grouping(self, keys: tuple[Item, ...], *first: Text) -> Text:
        """GROUP BY, as one of the ways to write it: ``first`` come before the keys, in both lists."""
        style = self.chance.choice(["words", "words", "position", "alias"])
        if style == "position":
            named = [same(str(len(first) + number)) for number in range(1, len(keys) + 1)]
        else:
            named = [same(item.name) if style == "alias" else item.text for item in keys]
        listed = [*first, *named]
        return filled("GROUP BY §", joined(", ", listed)) if listed else same("")

    def having(self) -> tuple[Text, ...]:
        if self.chance.random() < 0.7:
            return ()
        condition = self.chance.choice(["count(*) > 1", "max(c) > min(c)", "count(*) % 2 = 1", "sum(c) IS NOT NULL"])
        return (same(condition),)
