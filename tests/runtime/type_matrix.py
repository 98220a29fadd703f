"""All of Spark's types, aggregates over them, and what Spark batch says of both.

Rows come as ``id long, at timestamp``; all other columns are computed from these, by the same expressions in the stream
and in the batch query that it is compared with.
"""

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, VariantVal

from tests.runtime.streaming import Batch, FedJob, Rows, at
from tests.support.depth import DEEP

SOURCE = "id long, at timestamp"
KEY = "id % 3 AS k"

TYPES: dict[str, str] = {
    "boolean": "id % 2 = 0",
    "byte": "cast(id % 256 - 128 AS byte)",
    "short": "cast(id * 100 - 32768 AS short)",
    "int": "cast(-2147483648 + id AS int)",
    "long": "id * 1000000007 - 5",
    "float": "CASE id % 5 WHEN 0 THEN float('-0.0') WHEN 1 THEN float('0.0') ELSE cast(id / 7 AS float) END",
    "double": "CASE id % 5 WHEN 0 THEN -0.0D WHEN 1 THEN 0.0D ELSE id / 7 END",
    "nan": "CASE WHEN id % 4 = 0 THEN double('NaN') ELSE double(id) END",
    "decimal_5_0": "cast(id * 1111 % 99999 AS decimal(5,0))",
    "decimal_10_2": "cast(id * 1234567.89 AS decimal(10,2))",
    "decimal_18_2": "cast(id * 123456789.12 AS decimal(18,2))",
    "decimal_38_0": "cast(cast('123456789012345678901234567890123' AS decimal(33,0)) + id AS decimal(38,0))",
    "decimal_38_18": "cast(concat(1234567890 + id, '.123456789012345678') AS decimal(38,18))",
    "string": "cast(id % 7 AS string)",
    "char": "cast(id % 4 AS char(5))",
    "varchar": "cast(id % 4 AS varchar(5))",
    "collated": "CASE id % 4 WHEN 0 THEN '1e3' WHEN 1 THEN '1E3' ELSE cast(id AS string) END COLLATE UTF8_LCASE",
    "binary": "cast(concat('b', id % 5) AS binary)",
    "date": "date_add(date'1400-02-28', cast(id AS int))",
    "timestamp": "timestamp_seconds(id - 20000000000)",
    "timestamp_ntz": "timestamp_ntz'1582-10-04 12:00:00' + make_dt_interval(cast(id AS int))",
    "day_interval": "make_dt_interval(cast(id AS int), 1, 2, 3.5)",
    "hour_interval": "cast(make_dt_interval(0, cast(id AS int), 4) AS interval hour to minute)",
    "array": "array(cast(id AS int), null, 3)",
    "array_of_floats": "array(CASE WHEN id % 2 = 0 THEN -0.0D ELSE 0.0D END, double(id % 4))",
    "map": "map(concat('k', id % 2), id)",
    "struct": "named_struct('a', cast(id % 4 AS double), 'b', concat('s', id % 2), 'c', cast(id AS decimal(10,2)))",
    "variant": "parse_json(concat('{\"a\": ', id, '}'))",
}
"""Of each type some rows are null, too."""

REFUSED: dict[str, str] = {
    "months": "make_ym_interval(cast(id AS int), 3)",
    "calendar_interval": "make_interval(1, 2, 3, cast(id AS int))",
    "array_of_months": "array(make_ym_interval(1, 2))",
    "void": "null",
    "struct_of_void": "named_struct('a', null)",
    "struct_with_twins": "array(named_struct('a', id, 'a', 1))",
}
"""Types that cannot be stored."""

AGGREGATES: dict[str, Callable[[str], Column]] = {
    "sum": F.sum,
    "avg": F.avg,
    "min": F.min,
    "max": F.max,
    "count": F.count,
    "count_distinct": lambda column: F.count_distinct(column),
    "stddev": F.stddev,
    "stddev_pop": F.stddev_pop,
    "variance": F.variance,
    "var_pop": F.var_pop,
    "bool_and": F.bool_and,
    "bool_or": F.bool_or,
    "hll_sketch_agg": F.hll_sketch_agg,
}
"""Those that are kept as partials, unless the type does not allow it."""

SIGNED = ("sum", "avg", "count")
"""Those that can take rows back."""

OF_ROWS: dict[str, Callable[[str], Column]] = {
    "last": lambda column: F.max_by(column, "id"),
    "listed": lambda column: F.array_sort(F.collect_list(F.struct("id", column))),
    "median": lambda column: F.percentile(column, F.lit(0.5)),
    "any": lambda column: F.some(column),
    "distinct": lambda column: F.count_distinct(column, F.col("k")),
}
"""Those whose rows are kept."""

_NUMBERS = tuple(name for name in TYPES if name.startswith(("byte", "short", "int", "long", "float", "double", "dec")))
_NUMERIC = (*_NUMBERS, "nan", "string", "char", "varchar", "collated")
_BOOLEAN = ("boolean",)
_ORDERED = tuple(name for name in TYPES if name not in ("map", "variant"))

LEGAL: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "avg"), (*_NUMERIC, "day_interval", "hour_interval")),
    # As doubles, all of this one's values are the same, and what remains is how a mean was rounded.
    **dict.fromkeys(
        ("stddev", "stddev_pop", "variance", "var_pop"), tuple(name for name in _NUMERIC if name != "decimal_38_0")
    ),
    # Spark itself gives wrong bytes for these of collated strings if it interprets plans, as it does in tests.
    **dict.fromkeys(("min", "max"), tuple(name for name in _ORDERED if name != "collated")),
    **dict.fromkeys(("bool_and", "bool_or", "any"), _BOOLEAN),
    "hll_sketch_agg": ("int", "long", "string", "char", "varchar", "collated", "binary"),
    "count": tuple(TYPES),
    "count_distinct": tuple(name for name in _ORDERED if name != "collated"),
    "distinct": (*_ORDERED, "map"),
    "last": tuple(TYPES),
    "listed": _ORDERED,
    "median": (*_NUMBERS, "nan", "day_interval", "hour_interval"),
}
"""The types that Spark has each aggregate of."""


def typed(frame: DataFrame, types: dict[str, str] = TYPES) -> DataFrame:
    columns = [f"CASE WHEN id % 6 = 5 THEN null ELSE {how} END AS `{name}`" for name, how in types.items()]
    return frame.selectExpr("id", "at", KEY, *columns)


def rows_of(count: int) -> Rows:
    return [(number, at(number)) for number in range(count)]


def batch_of(spark: SparkSession, rows: Rows, types: dict[str, str] = TYPES) -> DataFrame:
    named = [{"id": number, "at": time.astimezone()} for number, time in rows]
    return typed(spark.createDataFrame(named, SOURCE), types)


def cells(functions: Iterable[str], types: Iterable[str] = TYPES) -> dict[str, Column]:
    """These aggregates of all types that they can be of, by a name for each cell."""
    known = AGGREGATES | OF_ROWS
    pairs = [(kind, name) for kind in types for name in functions if kind in LEGAL[name]]
    return {f"{kind}_{name}": known[name](kind) for kind, name in pairs}


def aliased(aggregates: dict[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in aggregates.items()]


class Collected:
    """What came out at a sink: rows in order, and their types in each epoch."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[Row]] = {}
        self.schemas: list[StructType] = []

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        self.epochs[epoch] = rows.collect()
        self.schemas.append(rows.schema)

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in sorted(self.epochs.items()) for row in rows]


def plain(value: Any) -> Any:
    """A value that is equal where Spark's is: zero is zero and not-a-number is itself, sketches are not compared."""
    match value:
        case float():
            return "nan" if math.isnan(value) else value + 0.0
        case VariantVal():
            return value.toJson()
        case bytearray() | bytes():
            return bytes(value) if len(value) < 8 else "sketch"
        case datetime():
            return value.isoformat()
        case Row():
            return tuple(map(plain, value))
        case list() | tuple():
            return tuple(map(plain, value))
        case dict():
            return tuple(sorted((plain(key), plain(one)) for key, one in value.items()))
        case _:
            return value


def same(one: Any, other: Any) -> bool:
    """Whether values are equal; floats nearly, because their sums depend on the order of addition."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def in_order(row: list[Any]) -> str:
    return repr([round(value, 3) if isinstance(value, float) else value for value in row])


def compare(
    found: Collected,
    expected: DataFrame,
    *,
    newest: list[str] | None = None,
    only: list[str] | None = None,
    drop: Iterable[str] = (),
) -> None:
    """Row by row and type by type. ``newest``: the last row of each of these keys counts; ``only`` these columns are
    compared, without those to ``drop``."""
    assert found.rows
    names = only or [name for name in found.rows[0].asDict() if name not in drop]
    rows = found.rows
    if newest is not None:
        rows = list({plain([row[key] for key in newest]): row for row in rows}.values())
    ours = sorted(([plain(row[name]) for name in names] for row in rows), key=in_order)
    theirs = sorted(map(list, map(plain, expected.collect())), key=in_order)
    assert len(ours) == len(theirs), (len(ours), len(theirs), ours[:5], theirs[:5])
    differ = {
        name: (mine, other)
        for row, wanted in zip(ours, theirs, strict=True)
        for name, mine, other in zip(names, row, wanted, strict=True)
        if not same(mine, other)
    }
    assert not differ, differ
    wanted_types = [field.dataType.simpleString() for field in expected.schema]
    for schema in found.schemas:
        kinds = types_of(schema)
        ours_types = [kinds[name] for name in names]
        assert ours_types == wanted_types, [
            pair for pair in zip(names, ours_types, wanted_types, strict=True) if pair[1] != pair[2]
        ]


def types_of(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def play(job: FedJob, batches: dict[str, list[Batch]]) -> None:
    """Feed the batches in turn, with an epoch in the middle, a batch that is lost with its driver, and a restart."""
    turns = [(name, ones[turn]) for turn in range(max(map(len, batches.values()))) for name, ones in batches.items()]
    middle = len(turns) // 2
    job.start()
    for name, batch in turns[:middle]:
        job.feed(name, batch)
    job.checkpoint()
    job.feed(*turns[middle])
    job.lose_driver()
    for name, batch in turns[middle:-1]:
        job.feed(name, batch)
    if DEEP:
        job.checkpoint()
        job.lose_driver()
    job.feed(*turns[-1])
    job.finish()
