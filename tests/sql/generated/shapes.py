"""The shapes of queries over one stream."""

from collections.abc import Callable

from tests.sql.generated.making import Maker, Source
from tests.sql.generated.queries import Item, Query, Select
from tests.sql.generated.texts import HOLE, Text, filled, joined, same, spark

START, END = Item(same("window_start"), "ws", fixed=True), Item(same("window_end"), "we", fixed=True)
BOUNDS = (same("window_start"), same("window_end"))
SIZES, HOPS, GAPS = (5, 10, 30), ((4, 10), (5, 10), (3, 9), (7, 10)), (2, 3, 5)
MICROS = 10**6
OF_SPARK = "w.start AS window_start, w.end AS window_end"


def seconds(count: int) -> str:
    return f"INTERVAL '{count}' SECOND"


def tumbling(source: Text, size: int) -> Text:
    """The rows with the bounds of their windows."""
    micros = size * MICROS
    begin = f"epoch_us(ts) // {micros} * {micros}"
    bounds = f"make_timestamp({begin}) AS window_start, make_timestamp({begin} + {micros}) AS window_end"
    return filled(
        Text(
            f"TABLE(TUMBLE(TABLE §, DESCRIPTOR(ts), {seconds(size)}))",
            f"(SELECT *, {OF_SPARK} FROM (SELECT *, window(ts, '{size} seconds') AS w FROM §))",
            f"(SELECT *, {bounds} FROM §)",
        ),
        source,
    )


def hopping(source: Text, slide: int, size: int) -> Text:
    step, micros = slide * MICROS, size * MICROS
    starts = f"unnest(range(epoch_us(ts) // {step} * {step}, epoch_us(ts) - {micros}, -{step})) AS s"
    bounds = f"make_timestamp(s) AS window_start, make_timestamp(s + {micros}) AS window_end"
    window = f"window(ts, '{size} seconds', '{slide} seconds') AS w"
    return filled(
        Text(
            f"TABLE(HOP(TABLE §, DESCRIPTOR(ts), {seconds(slide)}, {seconds(size)}))",
            f"(SELECT *, {OF_SPARK} FROM (SELECT *, {window} FROM §))",
            f"(SELECT *, {bounds} FROM (SELECT *, {starts} FROM §))",
        ),
        source,
    )


def windows(maker: Maker, source: Text) -> Text:
    chance = maker.chance
    if chance.random() < 0.5:
        return tumbling(source, chance.choice(SIZES))
    return hopping(source, *chance.choice(HOPS))


def projection(maker: Maker) -> Query:
    source = maker.source()
    items = [Item(maker.of.any(3), f"c{number}") for number in range(maker.chance.randrange(1, 6))]
    return maker.query("projection", source, Select(tuple(items), source.text, maker.where()))


def union(maker: Maker) -> Query:
    """Parts with the same types, in the same order."""
    kinds = [maker.chance.choice([maker.of.text, maker.of.boolean]) for _ in range(maker.chance.randrange(1, 4))]

    def part() -> Select:
        items = tuple(Item(make(2), f"c{number}") for number, make in enumerate(kinds))
        return Select(items, same("orders"), maker.where())

    return maker.query("union", Source(same("orders")), *(part() for _ in range(maker.chance.choice([2, 2, 3]))))


def updating(maker: Maker) -> Query:
    source, keys = maker.source(), maker.keys(most=3)
    select = Select((*keys, *maker.measures()), source.text, maker.where(), maker.grouping(keys))
    return maker.query("updating", source, select, keys=tuple(key.name for key in keys))


def aggregate_of_changes(maker: Maker) -> Query:
    """Groups of groups: what a key said before is taken back."""
    chance, inner = maker.chance, maker.source()
    key = maker.key()
    below = filled(
        "SELECT § AS g, count(*) AS n, max(c) AS most, sum(c) AS total FROM § GROUP BY §",
        key, inner.text, key,
    )  # fmt: skip
    below = filled("§§", inner.prefix, below)
    source = maker.viewed(f"w{maker.seed}", below, before=inner.before)
    keys = tuple(
        Item(same(text), f"k{number}", fixed=True)
        for number, text in enumerate(chance.sample(["n % 3", "most", "n > 5", "-most"], chance.randrange(3)))
    )
    measures = chance.sample(["sum(n)", "count(most)", "avg(total)", "sum(most + 1)", "sum(most - 1)", "count(g)"], 2)
    where = (same("n > 2"),) if chance.random() < 0.5 else ()
    items = (*keys, *(Item(same(text), f"m{n}") for n, text in enumerate(measures)), Item(same("count(*)"), "nn", True))
    select = Select(items, source.text, where, maker.grouping(keys))
    return maker.query("changes", source, select, keys=tuple(key.name for key in keys), nobody="nn")


def windowed(maker: Maker) -> Query:
    source, keys = maker.source(named=True), maker.keys()
    items = (START, END, *keys, *maker.measures())
    tail = maker.grouping(keys, *BOUNDS)
    select = Select(items, windows(maker, source.text), maker.where(), tail, maker.having())
    return maker.query("windowed", source, select)


def group_window(maker: Maker) -> Query:
    """``GROUP BY TUMBLE(at, …)``."""
    source, keys, size = maker.source(), maker.keys(), maker.chance.choice(SIZES)
    plain = tumbling(source.text, size)
    call = f"TUMBLE(ts, {seconds(size)})"
    grouped = Text(call, "window_start, window_end", "window_start, window_end")
    start = Text(f"TUMBLE_START(ts, {seconds(size)})", "window_start", "window_start")
    end = Text(f"TUMBLE_END(ts, {seconds(size)})", "window_end", "window_end")
    items = (Item(start, "ws", True), Item(end, "we", True), *keys, *maker.measures())
    tail = filled("GROUP BY §", joined(", ", [grouped, *(item.text for item in keys)]))
    from_ = Text(source.text.stream, plain.batch, plain.duck)
    return maker.query("group window", source, Select(items, from_, maker.where(), tail, maker.having()))


def session(maker: Maker) -> Query:
    source, gap = maker.source(named=True), maker.chance.choice(GAPS)
    by_key = maker.chance.random() < 0.7
    key = Item(same("k"), "k0", fixed=True)
    partition = " PARTITION BY k" if by_key else ""
    micros = gap * MICROS
    over = "PARTITION BY k ORDER BY ts" if by_key else "ORDER BY ts"

    def islands(micros_of: str) -> str:
        """Rows numbered by their session. Spark's own session_window() is wrong with DISTINCT aggregates."""
        distance = f"{micros_of}(ts) - {micros_of}(lag(ts) OVER ({over}))"
        begins = f"SELECT *, CASE WHEN {distance} <= {micros} THEN 0 ELSE 1 END AS _b FROM §"
        # Not by ROWS: of equal times the first one's begin counts for all.
        return f"(SELECT *, sum(_b) OVER ({over}) AS _n FROM ({begins}))"

    call = f"TABLE(SESSION(TABLE §{partition}, DESCRIPTOR(ts), {seconds(gap)}))"
    from_ = filled(Text(call, islands("unix_micros"), islands("epoch_us")), source.text)
    start = Text("window_start", "min(ts)", "min(ts)")
    end = Text("window_end", *[f"max(ts) + {seconds(gap)}"] * 2)
    keys = (key,) if by_key else ()
    groups = Text("window_start, window_end", "_n", "_n")
    tail = filled("GROUP BY §", joined(", ", [groups, *(item.text for item in keys)]))
    items = (Item(start, "ws", True), Item(end, "we", True), *keys, *maker.measures())
    return maker.query("session", source, Select(items, from_, (), tail))


def rows_of_windows(maker: Maker) -> Query:
    """A window function that nobody groups."""
    source = maker.source(named=True)
    items = (START, END, *(Item(maker.of.any(), f"c{number}") for number in range(2)))
    return maker.query("window rows", source, Select(items, windows(maker, source.text), maker.where()))


def windows_of_windows(maker: Maker) -> Query:
    inner, keys = maker.source(named=True), maker.keys(least=1)
    items = (Item(same("window_start"), "window_start"), Item(same("window_end"), "window_end"), *keys)
    below = Select(
        (*items, Item(maker.aggregates.one(), "m"), Item(same("count(*)"), "n")),
        windows(maker, inner.text), maker.where(), maker.grouping(keys, *BOUNDS),
    ).text  # fmt: skip
    source = maker.viewed(f"w{maker.seed}", filled("§§", inner.prefix, below), before=inner.before)
    measures = [
        Item(same(text), f"m{number}") for number, text in enumerate(["max(n)", "sum(n + 1)", "sum(n - 1)", "count(m)"])
    ]
    items = (START, END, *maker.chance.sample(measures, 2))
    return maker.query(
        "windows of windows", source, Select(items, source.text, (), same("GROUP BY window_start, window_end"))
    )


def best_of_windows(maker: Maker) -> Query:
    """The first groups, or the first rows, of each window."""
    chance, source = maker.chance, maker.source(named=True)
    n = chance.choice([1, 2, 3])
    if chance.random() < 0.5:
        keys = maker.keys(least=1)
        order = [same("sum(c)"), *(same(key.name) for key in keys)]
        items = (START, END, *keys, Item(order[0], "total", fixed=True))
        select = Select(items, windows(maker, source.text), maker.where(), maker.grouping(keys, *BOUNDS))
        by = ["total", *(key.name for key in keys)]
    else:
        items = (START, END, *(Item(same(name), f"c{number}", True) for number, name in enumerate(["c", "id", "k"])))
        select = Select(items, windows(maker, source.text), maker.where())
        by = ["c0", "c1", "c2"]
    return maker.query("top", source, select, around=first_rows(maker, ["ws", "we"], by, n))


def first_rows(maker: Maker, partition: list[str], by: list[str], n: int) -> Text:
    """The query that keeps the first rows of the one inside."""
    orders = [
        f"{name} {maker.chance.choice(['ASC NULLS FIRST', 'DESC NULLS LAST', 'ASC NULLS LAST', 'DESC NULLS FIRST'])}"
        for name in by
    ]
    over = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(partition)} ORDER BY {', '.join(orders)})"
    return same(f"SELECT * FROM (SELECT *, {over} AS place FROM ({HOLE}) AS ranked) WHERE place <= {n}")


def running_best(maker: Maker) -> Query:
    source, n = maker.source(), maker.chance.choice([1, 2, 3])
    key = Item(maker.key(), "k0", fixed=True)
    items = (key, *(Item(same(name), f"c{number}", True) for number, name in enumerate(["c", "id", "ts", "k"])))
    select = Select(items, source.text, maker.where())
    around = first_rows(maker, ["k0"], ["c0", "c1", "c2", "c3"], n)
    return maker.query("running top", source, select, around=around, keys=("k0",))


def distinct(maker: Maker) -> Query:
    source = maker.source()
    items = (Item(same("ts"), "ts", True), *(Item(maker.key(), f"c{number}") for number in range(2)))
    return maker.query("distinct", source, Select(items, source.text, maker.where(), distinct=True))


def exploded(maker: Maker) -> Query:
    source = Source(spark("orders LATERAL VIEW explode(split(k, '')) letters AS letter"))
    items = (Item(same("letter"), "c0"), *(Item(maker.of.any(), f"c{number}") for number in range(1, 3)))
    return maker.query("lateral", source, Select(items, source.text, maker.where()))


SHAPES: tuple[Callable[[Maker], Query], ...] = (
    projection, projection, union, updating, updating, updating, aggregate_of_changes, windowed, windowed, windowed,
    group_window, session, rows_of_windows, windows_of_windows, best_of_windows, running_best, distinct, exploded,
)  # fmt: skip
