"""Aggregates taken apart: partials that can be merged again, so that state is small and never read back per key.

``sum`` of sums, ``min`` of minima, counts, averages, variances, distinct values and HLL sketches can be merged. For any
other aggregate the rows themselves are kept, and the user's expression is evaluated over them: slower, and just as
right.

:data:`AGGREGATES` has one entry for each aggregate: how to take it apart, which says how Spark and Arrow merge
partials, and how to take a row back. Its name is in :mod:`epochal.operators.aggregate_names`, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from epochal.operators.aggregate_names import TAKE_BACK
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.expressions import divided, function_call, is_star
from epochal.runtime.state.latest_files import (
    Sum,
    add_any,
    add_checked,
    greatest,
    greatest_struct,
    least,
    least_struct,
    united,
)
from epochal.runtime.state.stored_types import SINCE, contains, is_collated

Columns = dict[str, Column]

ROWS = "__rows"
"""How many rows a partial stands for."""


def _never(kind: DataType, checked: bool) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Plus:
    """Two partials as one, where they stand side by side; null is none. ``arrow`` gives the same of Arrow's arrays, for
    the types for which it is what Spark would give. ``checked``: a sum that overflows is an error."""

    spark: Callable[[Column, Column], Column]
    arrow: Callable[[DataType, bool], Sum | None] = _never


Part = Callable[[str], Column]
"""A column of one of two partials that stand side by side."""

MOST_DIGITS = 38
"""Of a decimal."""

_IN_ORDER = (ByteType, ShortType, IntegerType, LongType, DateType, TimestampType, TimestampNTZType)
"""Types whose values Arrow puts in the same order as Spark does."""


@dataclass(frozen=True, slots=True)
class Decomposed:
    """One aggregate as partial columns, how to merge these, and how to get the result from the merged ones. ``plus`` is
    there if it can be said of each column by itself; ``sides`` if it takes all columns of both partials."""

    partial: Columns
    merge: Columns
    result: Column
    plus: dict[str, Plus] | None = None
    sides: Callable[[Part, Part], Columns] | None = None


def is_distinct(column: Column) -> bool:
    """Whether it is an aggregate of distinct values, which Spark does not show."""
    call = function_call(column)
    return call is not None and call.distinct


def decompose(name: str, column: Column, frame: DataFrame) -> Decomposed | None:
    """Take one aggregate apart; None if it cannot be. ``frame`` has the input's columns."""
    call = function_call(column)
    if call is None:
        return None
    function, arguments, distinct = call.name, call.arguments, call.distinct
    if distinct:
        return _count_distinct(name, arguments, frame) if function == "count" else None
    known = AGGREGATES.get(function)
    if known is None or len(arguments) != 1:
        return None
    return known.decompose(name, arguments[0], frame)


def simple_part(name: str) -> str:
    """The column of an aggregate whose partial is one value of its own kind, such as a minimum."""
    return f"{name}__p"


def _simple(
    partial: Callable[[Column], Column], merge: Callable[[str], Column], plus: Plus | None = None
) -> Callable[..., Decomposed]:
    def make(name: str, argument: Column, frame: DataFrame) -> Decomposed:
        part = simple_part(name)
        together = None if plus is None else {part: plus}
        return Decomposed({part: partial(argument)}, {part: merge(part)}, F.col(part), together)

    return make


def _nulls_last(plus: Callable[[Column, Column], Column]) -> Callable[[Column, Column], Column]:
    """The same where null is nothing to add."""
    return lambda one, other: F.coalesce(plus(one, other), one, other)


def _arrow_sum(kind: DataType, checked: bool) -> Sum | None:
    if isinstance(kind, LongType):
        return add_checked if checked else add_any
    return add_any if isinstance(kind, DoubleType) else None


def _arrow_extreme(of_values: Sum, of_structs: Sum) -> Callable[[DataType, bool], Sum | None]:
    def arrow(kind: DataType, checked: bool) -> Sum | None:
        if isinstance(kind, _IN_ORDER):
            return of_values
        if isinstance(kind, StructType) and kind.fields and all(isinstance(one.dataType, _IN_ORDER) for one in kind):
            return of_structs
        return None

    return arrow


def _arrow_union(kind: DataType, checked: bool) -> Sum | None:
    if not isinstance(kind, ArrayType):
        return None
    element = kind.elementType
    return united if isinstance(element, _IN_ORDER) or element.simpleString() == "string" else None


ADDED = Plus(_nulls_last(Column.__add__), _arrow_sum)
LEAST = Plus(F.least, _arrow_extreme(least, least_struct))
GREATEST = Plus(F.greatest, _arrow_extreme(greatest, greatest_struct))
BOTH = Plus(_nulls_last(Column.__and__))
EITHER = Plus(_nulls_last(Column.__or__))
UNITED = Plus(_nulls_last(F.array_union), _arrow_union)


def _sum(name: str, argument: Column, frame: DataFrame) -> Decomposed:
    total = simple_part(name)
    kind = _type_of(frame, F.sum(argument))
    if isinstance(kind, DecimalType):
        # Ends with SINCE: sums of earlier versions were kept without a count.
        return decimal_sum(total, f"{name}__n{SINCE}", kind, F.sum(argument), F.count(argument))
    return Decomposed({total: F.sum(argument)}, {total: F.sum(total)}, F.col(total), {total: ADDED})


def _average(name: str, argument: Column, frame: DataFrame) -> Decomposed:
    total, count = f"{name}__s", f"{name}__n"
    kind = _type_of(frame, argument)
    exact = isinstance(kind, DecimalType | DayTimeIntervalType)
    summed = F.sum(argument if exact else argument.cast("double"))
    result = _quotient(F.col(total), count, _type_of(frame, F.avg(argument)), frame)
    kind = _type_of(frame, summed)
    if isinstance(kind, DecimalType):
        return replace(decimal_sum(total, count, kind, summed, F.count(argument)), result=result)
    return Decomposed(
        {total: summed, count: F.count(argument)},
        {total: F.sum(total), count: F.sum(count)},
        result,
        {total: ADDED, count: ADDED},
    )


def decimal_sum(total: str, count: str, kind: DecimalType, summed: Column, counted: Column) -> Decomposed:
    """A sum of decimals, of the type that it has over the rows themselves. Where an overflow is no error it is
    null, and stays so whatever is added: the number of values tells it from the sum of nothing, which is null, too."""

    def overflowed(part: Part) -> Column:
        return F.coalesce(part(total).isNull() & (part(count) > 0), F.lit(False))

    def sides(one: Part, other: Part) -> Columns:
        both = F.when(one(total).isNull(), other(total)).when(other(total).isNull(), one(total))
        together = both.otherwise(one(total) + other(total)).cast(kind)
        known = ~(overflowed(one) | overflowed(other))
        return {total: F.when(known, together), count: ADDED.spark(one(count), other(count))}

    # Of 38 digits Spark gives up one of the scale to make room for a sum, unless it is an aggregate.
    exact = sides if kind.precision < MOST_DIGITS else None
    merged = F.when(~F.bool_or(overflowed(F.col)), F.sum(total).cast(kind))
    return Decomposed({total: summed, count: counted}, {total: merged, count: F.sum(count)}, F.col(total), sides=exact)


def _quotient(total: Column, count: str, kind: DataType, frame: DataFrame) -> Column:
    """An average from sum and count, to the last digit that Spark's own has."""
    if not isinstance(kind, DecimalType):
        return F.when(F.col(count) > 0, total / F.col(count))
    quotient = divided(total, F.col(count).cast("decimal(20,0)"), kind, ansi=is_ansi(frame.sparkSession))
    return F.when(F.col(count) > 0, quotient)


def is_ansi(spark: SparkSession) -> bool:
    """Whether an overflow is an error."""
    return spark.conf.get("spark.sql.ansi.enabled") == "true"


def _type_of(frame: DataFrame, column: Column) -> DataType:
    return frame.select(column.alias("x")).schema["x"].dataType


def _variance(root: bool, sample: bool) -> Callable[..., Decomposed]:
    """Count, mean and squared distance from the mean, merged pairwise: sums of squares would lose the digits that
    count."""

    def make(name: str, argument: Column, frame: DataFrame) -> Decomposed:
        part = f"{name}__v"
        value = argument.cast("double")
        count = F.count(value).cast("double")
        partial = F.struct(count.alias("n"), F.avg(value).alias("mean"), (F.var_pop(value) * count).alias("m2"))
        merged = F.aggregate(
            F.collect_list(part),
            F.struct(F.lit(0.0).alias("n"), F.lit(0.0).alias("mean"), F.lit(0.0).alias("m2")),
            _merge_variance,
        )
        below = F.col(part)["n"] - (1.0 if sample else 0.0)
        variance = F.when(below > 0, F.col(part)["m2"] / below)
        return Decomposed({part: partial}, {part: merged}, F.sqrt(variance) if root else variance)

    return make


def _merge_variance(left: Column, right: Column) -> Column:
    count = left["n"] + right["n"]
    distance = right["mean"] - left["mean"]
    return F.when(right["n"] == 0, left).otherwise(
        F.struct(
            count.alias("n"),
            (left["mean"] + distance * right["n"] / count).alias("mean"),
            (left["m2"] + right["m2"] + distance * distance * left["n"] * right["n"] / count).alias("m2"),
        )
    )


def _count_distinct(name: str, arguments: list[Column], frame: DataFrame) -> Decomposed | None:
    part = f"{name}__d"
    kinds = [_type_of(frame, argument) for argument in arguments]
    if any(is_collated(kind) or contains(kind, (MapType,)) for kind in kinds):
        return None  # Spark makes no sets of these
    value = arguments[0] if len(arguments) == 1 else F.struct(*arguments)
    if len(arguments) > 1:  # count(distinct a, b) passes over rows where one is null
        anything_null = F.lit(False)
        for argument in arguments:
            anything_null = anything_null | argument.isNull()
        value = F.when(~anything_null, value)
    return Decomposed(
        {part: F.collect_set(value)},
        {part: F.array_distinct(F.flatten(F.collect_list(part)))},
        F.size(part).cast("long"),
        {part: UNITED},
    )


def decompose_signed(name: str, column: Column, sign: Column, frame: DataFrame) -> Decomposed:
    """One aggregate over rows that are added (``sign`` is 1) and taken back (-1)."""
    call = function_call(column)
    function = "an expression" if call is None else call.name + (" of distinct values" if call.distinct else "")
    known = None if call is None or call.distinct or len(call.arguments) != 1 else AGGREGATES.get(function)
    if call is None or known is None or known.decompose_signed is None:
        raise PipelineError(
            f"aggregate {name!r}: {function} cannot take a row back, and the input is a changelog: "
            f"use {', '.join(TAKE_BACK)} (or avoid retractions upstream)"
        )
    argument = call.arguments[0]
    return known.decompose_signed(name, F.lit(1) if is_star(argument) else argument, sign, frame)


def _signed_count(name: str, argument: Column, sign: Column, frame: DataFrame) -> Decomposed:
    part = f"{name}__n"
    return Decomposed({part: _known(argument, sign)}, {part: F.sum(part)}, F.col(part))


def _signed_sum(name: str, argument: Column, sign: Column, frame: DataFrame) -> Decomposed:
    """With the number of values: the sum of none is null, also when there have been some."""
    total, count = f"{name}__s", f"{name}__n"
    # As what they are summed up as: the smallest number of a type has no negative in it. Of longs that is no long: the
    # smallest may be taken back, and the sum of a batch, or of what an average is of, may be too large for one.
    if isinstance(_type_of(frame, argument), LongType):
        argument = argument.cast(DecimalType(MOST_DIGITS, 0))
    kind = _type_of(frame, F.sum(argument))
    value = argument.cast(kind)
    known = {count: _known(argument, sign)}
    summed = F.sum(F.when(sign > 0, value).otherwise(-value))
    if isinstance(kind, DecimalType):
        parts = replace(decimal_sum(total, count, kind, summed.cast(kind), known[count]), sides=None)
    elif isinstance(kind, DoubleType):
        parts = _signed_double_sum(total, count, known, name, value, sign)
    else:
        partial = {total: summed, **known}
        parts = Decomposed(partial, {column: F.sum(column) for column in partial}, F.col(total))
    return replace(parts, result=F.when(F.col(count) > 0, parts.result))


def _signed_double_sum(total: str, count: str, known: Columns, name: str, value: Column, sign: Column) -> Decomposed:
    """Not-a-number and the infinities cannot be subtracted again, so they are counted. What has been added and
    subtracted leaves a remainder: where no value is left, none is kept."""
    odd = {"nan": math.nan, "infinity": math.inf, "minus_infinity": -math.inf}
    # These names end with SINCE: sums of earlier versions were kept without counts.
    count_of = {kind: f"{name}__{kind}{SINCE}" for kind in odd}
    counts = {count_of[kind]: F.sum(F.when(value == F.lit(one), sign)) for kind, one in odd.items()}
    finite = F.when(~value.isin(*odd.values()), F.when(sign > 0, value).otherwise(-value))
    partial = {total: F.sum(finite), **known, **counts}
    nan, infinity, minus_infinity = (F.coalesce(F.col(count) > 0, F.lit(False)) for count in count_of.values())
    result = (
        F.when(nan | (infinity & minus_infinity), F.lit(math.nan))
        .when(infinity, F.lit(math.inf))
        .when(minus_infinity, F.lit(-math.inf))
        .otherwise(F.coalesce(F.col(total), F.lit(0.0)))
    )
    merge = {column: F.sum(column) for column in partial}
    merge[total] = F.when(F.sum(count) != 0, merge[total])
    return Decomposed(partial, merge, result)


def _signed_average(name: str, argument: Column, sign: Column, frame: DataFrame) -> Decomposed:
    kind = _type_of(frame, F.avg(argument))
    summed = _signed_sum(name, argument, sign, frame)
    total = summed.result.cast("double") if isinstance(kind, DoubleType) else summed.result
    return replace(summed, result=_quotient(total, f"{name}__n", kind, frame))


def _signed_boolean(*, decisive: bool) -> Callable[[str, Column, Column, DataFrame], Decomposed]:
    """How many of each there are. ``decisive``: the value of which one is enough."""

    def make(name: str, argument: Column, sign: Column, frame: DataFrame) -> Decomposed:
        counts = {value: f"{name}__{str(value).lower()}" for value in (decisive, not decisive)}
        partial = {part: F.sum(F.when(argument == F.lit(value), sign).otherwise(0)) for value, part in counts.items()}
        result = F.when(F.col(counts[decisive]) > 0, F.lit(decisive)).when(
            F.col(counts[not decisive]) > 0, not decisive
        )
        return Decomposed(partial, {part: F.sum(part) for part in partial}, result)

    return make


def _known(argument: Column, sign: Column) -> Column:
    return F.sum(F.when(argument.isNotNull(), sign).otherwise(0)).cast("long")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What there is to know of an aggregate. ``decompose`` takes its name, its argument and the input's columns;
    ``decompose_signed`` also the column that says whether a row is added (1) or taken back (-1). Without it a changelog
    is refused."""

    decompose: Callable[[str, Column, DataFrame], Decomposed]
    decompose_signed: Callable[[str, Column, Column, DataFrame], Decomposed] | None = None


AGGREGATES: dict[str, Aggregate] = {
    "sum": Aggregate(_sum, _signed_sum),
    "count": Aggregate(_simple(F.count, F.sum, ADDED), _signed_count),
    "avg": Aggregate(_average, _signed_average),
    "mean": Aggregate(_average, _signed_average),
    "min": Aggregate(_simple(F.min, F.min, LEAST)),
    "max": Aggregate(_simple(F.max, F.max, GREATEST)),
    "bool_and": Aggregate(_simple(F.bool_and, F.bool_and, BOTH), _signed_boolean(decisive=False)),
    "bool_or": Aggregate(_simple(F.bool_or, F.bool_or, EITHER), _signed_boolean(decisive=True)),
    "hll_sketch_agg": Aggregate(_simple(F.hll_sketch_agg, F.hll_union_agg)),
    "stddev": Aggregate(_variance(root=True, sample=True)),
    "stddev_samp": Aggregate(_variance(root=True, sample=True)),
    "std": Aggregate(_variance(root=True, sample=True)),
    "stddev_pop": Aggregate(_variance(root=True, sample=False)),
    "variance": Aggregate(_variance(root=False, sample=True)),
    "var_samp": Aggregate(_variance(root=False, sample=True)),
    "var_pop": Aggregate(_variance(root=False, sample=False)),
}
"""By the name that Spark gives the function. What is in state is part of what later releases must restore: an aggregate
of which rows were kept cannot get an entry without a way to take over those rows."""
