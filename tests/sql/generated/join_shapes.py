"""The shapes of queries that join streams."""

import random
from collections.abc import Callable

from tests.sql.generated.aggregates import Aggregates
from tests.sql.generated.expressions import Columns, Expressions
from tests.sql.generated.making import Maker, Source
from tests.sql.generated.queries import Item, Query, Select
from tests.sql.generated.shapes import BOUNDS, END, START, seconds, windows
from tests.sql.generated.texts import Text, filled, joined, same

LEFT: Columns = {
    "number": ("o.c", "o.id"), "double": ("o.d",), "text": ("o.k", "o.`two words`"), "boolean": ("o.b", "b"),
    "time": ("o.ts", "ts"), "unique": ("o.id", "o.ts"),
}  # fmt: skip
RIGHT: Columns = {
    "number": ("p.c", "p.id"), "double": ("p.amount", "amount"), "text": ("p.k", "p.`select`"), "boolean": ("p.ok",),
    "time": ("p.seen", "seen"), "unique": ("p.id", "p.seen"),
}  # fmt: skip
THIRD: Columns = {
    "number": ("q.v", "q.id"), "double": ("q.weight",), "text": ("q.k", "note"), "boolean": ("q.sent",),
    "time": ("q.t",), "unique": ("q.id", "q.t"),
}  # fmt: skip


def both(*sides: Columns) -> Columns:
    return {kind: tuple(name for side in sides for name in side[kind]) for kind in LEFT}


def bound(maker: Maker, one: str, other: str) -> list[Text]:
    """The other's time not far from this one's: one way to write it, or two that must both hold."""
    chance = maker.chance
    low, high = chance.randrange(0, 6), chance.randrange(1, 9)
    ways = [
        [f"{other} BETWEEN {one} - {seconds(low)} AND {one} + {seconds(high)}"],
        [f"{one} BETWEEN {other} - {seconds(high)} AND {other} + {seconds(low)}"],
        [f"{other} >= {one} - {seconds(low)}", f"{other} < {one} + {seconds(high)}"],
        [f"{one} <= {other} + {seconds(low)}", f"{one} + {seconds(high)} > {other}"],
        [f"{one} - {seconds(low)} < {other}", f"{other} - {seconds(high)} <= {one}"],
        [f"{other} BETWEEN {one} AND {one} + {seconds(high)}"],
        [f"{one} = {other}"],
    ]
    chosen = chance.sample(ways[:-1] if chance.random() < 0.9 else ways, chance.choice([1, 1, 2]))
    return [same(condition) for way in chosen for condition in way]


def equality(maker: Maker, one: Columns, other: Columns) -> Text:
    pairs = [
        (one["number"][1], other["number"][1]),
        (one["text"][0], other["text"][0]),
        (f"upper({one['text'][0]})", f"upper({other['text'][0]})"),
        (f"{one['number'][0]} + 1", other["number"][0]),
        (f"-{one['number'][0]}", f"- {other['number'][0]}"),
        (f"coalesce({one['text'][0]}, 'none''s')", f"coalesce({other['text'][0]}, 'none''s')"),
    ]
    mine, theirs = maker.chance.choice(pairs)
    return same(f"{mine} = {theirs}" if maker.chance.random() < 0.5 else f"{theirs} = {mine}")


def conditions(maker: Maker, how: str, one: Columns, other: Columns, times: tuple[str, str]) -> Text:
    """ON, in any order."""
    chance = maker.chance
    found = bound(maker, *times)
    found += [equality(maker, one, other) for _ in range(chance.choice([0, 1, 1, 2]))]
    if how == "INNER" and chance.random() < 0.5:
        found.append(Expressions(chance, both(one, other)).boolean())
    if how == "LEFT" and chance.random() < 0.4:
        found.append(Expressions(chance, other).boolean(1))
    if how == "RIGHT" and chance.random() < 0.4:
        found.append(Expressions(chance, one).boolean(1))
    chance.shuffle(found)
    return joined(" AND ", [_closed(text, chance) for text in found])


def _closed(text: Text, chance: random.Random) -> Text:
    """In parentheses: of a bound on time now and then, of what AND around it would break always."""
    plain = " BETWEEN " in text.stream and "INTERVAL" in text.stream
    needed = not plain and any(word in text.stream for word in (" AND ", " OR ", "NOT ", "--"))
    return filled("(§)", text) if needed or chance.random() < 0.1 else text


def two(maker: Maker) -> tuple[Text, Columns]:
    how = maker.chance.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL"])
    on = conditions(maker, how, LEFT, RIGHT, ("o.ts", "p.seen"))
    word = {"INNER": maker.chance.choice(["JOIN", "INNER JOIN"])}.get(how, f"{how} JOIN")
    return filled(f"orders o {word} payments AS p ON §", on), both(LEFT, RIGHT)


def join(maker: Maker) -> Query:
    from_, columns = two(maker)
    return _selected(maker, "join", from_, columns)


def comma_join(maker: Maker) -> Query:
    """``FROM a, b WHERE …``."""
    columns = both(LEFT, RIGHT)
    on = conditions(maker, "INNER", LEFT, RIGHT, ("o.ts", "p.seen"))
    items = tuple(Item(Expressions(maker.chance, columns).any(), f"c{number}") for number in range(3))
    return maker.query(
        "comma join", Source(same("")), Select(items, same("orders AS o, payments p"), tail=filled("WHERE §", on))
    )


def join_of_three(maker: Maker) -> Query:
    chance = maker.chance
    first, _ = two(maker) if chance.random() < 0.3 else (_inner_pair(maker), None)
    how = chance.choice(["INNER", "LEFT"])
    left = chance.choice([LEFT, RIGHT]) if chance.random() < 0.3 else LEFT
    time = "o.ts" if left is LEFT else "p.seen"
    on = conditions(maker, how, left, THIRD, (time, "q.t"))
    from_ = filled(f"§ {how} JOIN parcels q ON §", first, on)
    return _selected(maker, "three", from_, both(LEFT, RIGHT, THIRD))


def _inner_pair(maker: Maker) -> Text:
    return filled("orders o JOIN payments p ON §", conditions(maker, "INNER", LEFT, RIGHT, ("o.ts", "p.seen")))


def _selected(maker: Maker, shape: str, from_: Text, columns: Columns) -> Query:
    of = Expressions(maker.chance, columns)
    items = tuple(Item(of.any(), f"c{number}") for number in range(maker.chance.randrange(2, 6)))
    where = (of.boolean(),) if maker.chance.random() < 0.4 else ()
    return maker.query(shape, Source(same("")), Select(items, from_, where))


def aggregate_of_join(maker: Maker) -> Query:
    """Grouped without a window, in the query that joins."""
    on = conditions(maker, "INNER", LEFT, RIGHT, ("o.ts", "p.seen"))
    of = Expressions(maker.chance, both(LEFT, RIGHT))
    key = Item(of.chance.choice([of.text, of.boolean])(1), "k0", fixed=True)
    measures = [Item(text, f"m{number}") for number, text in enumerate(Aggregates(of).several(2))]
    select = Select((key, *measures), filled("orders o JOIN payments p ON §", on), tail=filled("GROUP BY §", key.text))
    return maker.query("join, updating", Source(same("")), select, keys=("k0",))


def window_of_join(maker: Maker) -> Query:
    """A view that joins, in windows."""
    on = conditions(maker, "INNER", LEFT, RIGHT, ("o.ts", "p.seen"))
    columns = "o.id, o.k, p.c AS c, amount AS d, b, p.`select` AS `two words`, o.ts"
    inner = filled(f"SELECT {columns} FROM orders o JOIN payments p ON §", on)
    source, keys = maker.viewed(f"j{maker.seed}", inner), maker.keys()
    items = (START, END, *keys, *maker.measures())
    select = Select(items, windows(maker, source.text), maker.where(), maker.grouping(keys, *BOUNDS), maker.having())
    return maker.query("window of join", source, select)


def join_in_windows(maker: Maker) -> Query:
    """Rows of the same window."""
    chance = maker.chance
    how = chance.choice(["INNER", "LEFT", "RIGHT", "FULL"])
    state = chance.getstate()
    left = windows(maker, same("orders"))
    chance.setstate(state)
    right = windows(maker, same("payments"))
    right = Text(*(None if text is None else _seen(text) for text in (right.stream, right.batch, right.duck)))  # type: ignore[arg-type]
    on = [same("o.window_start = p.window_start"), same("o.window_end = p.window_end"), equality(maker, LEFT, RIGHT)]
    of = Expressions(chance, both(LEFT, RIGHT))
    if how == "INNER" and chance.random() < 0.5:
        on.append(filled("(§)", of.boolean(1)))
    bounds = chance.sample(["o.window_start", "p.window_start", "o.window_end", "p.window_end"], 2)
    items = (*(Item(same(name), f"w{number}") for number, name in enumerate(bounds)),
             *(Item(of.any(1), f"c{number}") for number in range(2)))  # fmt: skip
    from_ = filled(f"§ o {how} JOIN § p ON §", left, right, joined(" AND ", on))
    return maker.query("window join", Source(same("")), Select(items, from_))


def _seen(text: str) -> str:
    """The same of payments, whose event time is ``seen``."""
    return text.replace("(ts)", "(seen)").replace("(ts,", "(seen,")


def join_of_windows(maker: Maker) -> Query:
    """Two results of windows, by their windows and a key."""
    chance, state = maker.chance, maker.chance.getstate()
    views = []
    for name, table in (("x", "orders"), ("y", "payments")):
        chance.setstate(state)
        from_ = windows(maker, same(table))
        if table == "payments":
            from_ = Text(_seen(from_.stream), _seen(from_.batch), _seen(from_.duck or ""))
        measure = f"count(*) AS n_{name}, sum(c) AS s_{name}"
        inner = filled(
            f"SELECT window_start, window_end, k, {measure} FROM § GROUP BY window_start, window_end, k", from_
        )
        views.append(maker.viewed(f"{name}{maker.seed}", inner))
    one, other = views
    how = chance.choice(["JOIN", "LEFT JOIN"])
    x, y = f"x{maker.seed}", f"y{maker.seed}"
    on = " AND ".join(f"{x}.{name} = {y}.{name}" for name in ("k", "window_start", "window_end"))
    selected = [f"{x}.window_start", f"{x}.k", "n_x", "n_y", "s_x - s_y"]
    items = tuple(Item(same(text), f"c{number}") for number, text in enumerate(selected))
    from_ = filled(f"§ {how} § ON {on}", one.text, other.text)
    return maker.query("join of windows", Source(same(""), before=one.before + other.before), Select(items, from_))


JOINS: tuple[Callable[[Maker], Query], ...] = (
    join, join, join, join, comma_join, join_of_three, join_of_three, aggregate_of_join, window_of_join,
    join_in_windows, join_of_windows,
)  # fmt: skip
