"""Keys as one column, so that state stays where it is.

Runs that are partitioned by the same column are grouped and joined without moving a row. A struct is never null even
where its fields are: a filter that Spark would add for nullable keys makes it forget the partitioning, and null keys
find each other as in a ``GROUP BY``.
"""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import GeographyType, GeometryType, MapType, StructType, VariantType

from epochal.protocol.documents import LATEST_KEY
from epochal.runtime.errors import PipelineError
from epochal.runtime.state.stored_types import check_storable, contains, is_collated

KEY = LATEST_KEY
_ALONE = "__alone"

NO_KEYS = (MapType, VariantType, GeometryType, GeographyType)
"""Types that Spark cannot tell equal values of by hash and order."""


def key_of(keys: list[str]) -> Column:
    """The key; that of all rows alike where there are no columns to tell them apart."""
    return (F.struct(*keys) if keys else F.struct(F.lit(True).alias("all"))).alias(KEY)


def with_key(frame: DataFrame, keys: list[str]) -> DataFrame:
    return frame.withColumn(KEY, key_of(keys))


def key_columns(keys: list[str]) -> list[Column]:
    return [F.col(KEY)[key].alias(key) for key in keys]


def with_join_key(frame: DataFrame, keys: list[str], *, side: int, more: Iterable[Column] = ()) -> DataFrame:
    """With the key of one side of a join in place of the columns that it is made of."""
    return frame.withColumn(KEY, join_key(keys, side=side, more=more)).drop(*keys)


def join_key(keys: list[str], *, side: int, more: Iterable[Column] = ()) -> Column:
    """Rows with a null among their keys have no partner, as in any join: they are marked with their side, so that those
    of both sides do not find each other."""
    unknown = reduce(lambda one, other: one | other, [F.col(key).isNull() for key in keys])
    alone = F.when(unknown, F.lit(side)).alias(_ALONE)
    return F.struct(*keys, *more, alone).alias(KEY)


def as_they_came(rows: DataFrame, keys: list[str], columns: list[str]) -> DataFrame:
    """Rows of one side of a join with the columns that they had before they got a key."""
    return rows.select(*(F.col(KEY)[name].alias(name) if name in keys else F.col(name) for name in columns))


def check_columns(frame: DataFrame, columns: Iterable[str], *, of: str = "the stream") -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise PipelineError(f"{of} has no column {', '.join(map(repr, missing))}; it has {', '.join(frame.columns)}")


def check_keys(frame: DataFrame, keys: Iterable[str], *, of: str = "the stream") -> None:
    """The keys are there, and can be: what is equal must be found to be, by its hash and by its order."""
    keys = list(keys)
    check_columns(frame, keys, of=of)
    for key in keys:
        kind = frame.schema[key].dataType
        if contains(kind, NO_KEYS):
            raise PipelineError(
                f"key {key!r} is a {kind.simpleString()}, which cannot be a key: use a part of it, "
                "or a text that is the same where it is, such as to_json of it"
            )
    check_storable(StructType([frame.schema[key] for key in keys]), "key")


def without_nulls(frame: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Rows where none of these is null. Spark's ``dropna`` takes not-a-number for null, too."""
    return frame.where(reduce(lambda one, other: one & other, [F.col(column).isNotNull() for column in columns]))


def check_looked_up(frame: DataFrame, keys: Iterable[str]) -> None:
    """Keys that are looked up are found by their bytes."""
    for key in keys:
        kind = frame.schema[key].dataType
        if is_collated(kind):
            raise PipelineError(
                f"key {key!r} is a {kind.simpleString()}, and equal keys may differ in their letters: "
                f"group by what they have in common, such as lower({key}), as a plain string"
            )


def check_new_columns(frame: DataFrame, columns: Iterable[str]) -> None:
    """What an operator adds must not be there already."""
    there = [column for column in columns if column in frame.columns]
    if there:
        raise PipelineError(f"the stream has a column {', '.join(map(repr, there))} already: rename it before")


def check_sides(left: DataFrame, right: DataFrame, keys: Iterable[str], *, names: tuple[str, str]) -> None:
    """The two sides of a join share their keys, of the same types, and no other column."""
    for frame, name in zip((left, right), names, strict=True):
        check_keys(frame, keys, of=name)
    for key in keys:
        types = [frame.schema[key].dataType.simpleString() for frame in (left, right)]
        if types[0] != types[1]:
            raise PipelineError(
                f"key {key!r} is {types[0]} in {names[0]} and {types[1]} in {names[1]}: cast one of them"
            )
    both = (set(left.columns) & set(right.columns)) - set(keys)
    if both:
        raise PipelineError(
            f"both sides have the columns {', '.join(sorted(both))}: rename them on one side, or make them keys"
        )
