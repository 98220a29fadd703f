"""Aggregates taken apart: partials that can be merged again, so that state is small and never read back per key.

``sum`` of sums, ``min`` of minima, counts, averages, variances, distinct values and HLL sketches can be merged. For any
other aggregate the rows themselves are kept, and the user's expression is evaluated over them: slower, and just as
right.
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

from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.expressions import divided, function_call, is_star
from epochal.runtime.spark.jvm_columns import Prepared
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


Plus = Callable[[Column, Column], Column]
"""Two partials as one, where they stand side by side; null is none."""

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
    maker = _MAKERS.get(function)
    if maker is None or len(arguments) != 1:
        return None
    return maker(name, arguments[0], frame)


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


def _added(one: Column, other: Column) -> Column:
    return F.coalesce(one + other, one, other)


def _both(one: Column, other: Column) -> Column:
    return F.coalesce(one & other, one, other)


def _either(one: Column, other: Column) -> Column:
    return F.coalesce(one | other, one, other)


def _united(one: Column, other: Column) -> Column:
    return F.coalesce(F.array_union(one, other), one, other)


def _sum(name: str, argument: Column, frame: DataFrame) -> Decomposed:
    total = simple_part(name)
    kind = _type_of(frame, F.sum(argument))
    if isinstance(kind, DecimalType):
        # Ends with SINCE: sums of earlier versions were kept without a count.
        return decimal_sum(total, f"{name}__n{SINCE}", kind, F.sum(argument), F.count(argument))
    return Decomposed({total: F.sum(argument)}, {total: F.sum(total)}, F.col(total), {total: _added})


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
        {total: _added, count: _added},
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
        return {total: F.when(known, together), count: _added(one(count), other(count))}

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
        {part: _united},
    )


def arrow_sum(plus: Plus, kind: DataType, *, checked: bool) -> Sum | None:
    """The same of Arrow's arrays, where that gives what Spark would. ``checked``: a sum that overflows is an error."""
    if plus is _added and isinstance(kind, LongType):
        return add_checked if checked else add_any
    if plus is _added and isinstance(kind, DoubleType):
        return add_any
    if plus is _united and isinstance(kind, ArrayType):
        element = kind.elementType
        return united if isinstance(element, _IN_ORDER) or element.simpleString() == "string" else None
    if plus not in (F.least, F.greatest):
        return None
    if isinstance(kind, _IN_ORDER):
        return least if plus is F.least else greatest
    if isinstance(kind, StructType) and kind.fields and all(isinstance(one.dataType, _IN_ORDER) for one in kind):
        return least_struct if plus is F.least else greatest_struct
    return None


_MAKERS: dict[str, Callable[..., Decomposed]] = {
    "sum": _sum,
    "count": _simple(F.count, F.sum, _added),
    "min": _simple(F.min, F.min, F.least),
    "max": _simple(F.max, F.max, F.greatest),
    "bool_and": _simple(F.bool_and, F.bool_and, _both),
    "bool_or": _simple(F.bool_or, F.bool_or, _either),
    "hll_sketch_agg": _simple(F.hll_sketch_agg, F.hll_union_agg),
    "avg": _average,
    "mean": _average,
    "stddev": _variance(root=True, sample=True),
    "stddev_samp": _variance(root=True, sample=True),
    "std": _variance(root=True, sample=True),
    "stddev_pop": _variance(root=True, sample=False),
    "variance": _variance(root=False, sample=True),
    "var_samp": _variance(root=False, sample=True),
    "var_pop": _variance(root=False, sample=False),
}


def decompose_signed(name: str, column: Column, sign: Column, frame: DataFrame) -> Decomposed:
    """One aggregate over rows that are added (``sign`` is 1) and taken back (-1)."""
    call = function_call(column)
    function = "an expression" if call is None else call.name + (" of distinct values" if call.distinct else "")
    maker = None if call is None or call.distinct or len(call.arguments) != 1 else _SIGNED_MAKERS.get(function)
    if call is None or maker is None:
        raise PipelineError(
            f"aggregate {name!r}: {function} cannot take a row back, and the input is a changelog: "
            "use sum, count and avg (or avoid retractions upstream)"
        )
    argument = call.arguments[0]
    return maker(name, F.lit(1) if is_star(argument) else argument, sign, frame)


def _signed_count(name: str, argument: Column, sign: Column, frame: DataFrame) -> Decomposed:
    part = f"{name}__n"
    return Decomposed({part: _known(argument, sign)}, {part: F.sum(part)}, F.col(part))


def _signed_sum(name: str, argument: Column, sign: Column, frame: DataFrame) -> Decomposed:
    """With the number of values: the sum of none is null, also when there have been some."""
    total, count = f"{name}__s", f"{name}__n"
    # As what they are summed up as: the smallest number of a type has no negative in it.
    kind = _type_of(frame, F.sum(argument))
    value = argument.cast(kind)
    known = {count: _known(argument, sign)}
    if isinstance(kind, DecimalType):
        summed = F.sum(F.when(sign > 0, argument).otherwise(-value)).cast(kind)
        parts = replace(decimal_sum(total, count, kind, summed, known[count]), sides=None)
    elif isinstance(kind, DoubleType):
        parts = _signed_double_sum(total, known, name, value, sign)
    else:
        partial = {total: F.sum(F.when(sign > 0, argument).otherwise(-value)), **known}
        parts = Decomposed(partial, {column: F.sum(column) for column in partial}, F.col(total))
    return replace(parts, result=F.when(F.col(count) > 0, parts.result))


def _signed_double_sum(total: str, known: Columns, name: str, value: Column, sign: Column) -> Decomposed:
    """Not-a-number and the infinities cannot be subtracted again, so they are counted."""
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
    return Decomposed(partial, {column: F.sum(column) for column in partial}, result)


def _signed_average(name: str, argument: Column, sign: Column, frame: DataFrame) -> Decomposed:
    kind = _type_of(frame, F.avg(argument))
    if isinstance(_type_of(frame, argument), LongType):
        # Their sum may be no long where their average is one, and as doubles they could not be taken back to the digit.
        argument = argument.cast(DecimalType(MOST_DIGITS, 0))
    summed = _signed_sum(name, argument, sign, frame)
    total = summed.result.cast("double") if isinstance(kind, DoubleType) else summed.result
    return replace(summed, result=_quotient(total, f"{name}__n", kind, frame))


def _known(argument: Column, sign: Column) -> Column:
    return F.sum(F.when(argument.isNotNull(), sign).otherwise(0)).cast("long")


_SIGNED_MAKERS: dict[str, Callable[..., Decomposed]] = {
    "sum": _signed_sum,
    "count": _signed_count,
    "avg": _signed_average,
    "mean": _signed_average,
}


class Aggregation:
    """A set of named aggregates over groups: partials in state, merged when a result is wanted."""

    def __init__(
        self,
        groups: list[str],
        aggregates: dict[str, Column],
        frame: DataFrame,
        *,
        count_rows: bool = False,
        sign: Column | None = None,
    ) -> None:
        """``sign`` says whether a row is added (1) or taken back (-1), if the input is a changelog."""
        self.groups = groups
        self.aggregates = aggregates
        parts = {
            name: decompose(name, column, frame) if sign is None else decompose_signed(name, column, sign, frame)
            for name, column in aggregates.items()
        }
        self.types = self._result_schema(frame)
        """Of the groups and the results."""
        self.keeps_rows = any(part is None for part in parts.values())
        self._parts = {} if self.keeps_rows else {name: part for name, part in parts.items() if part is not None}
        self._states = list(self._parts.values())
        if count_rows:
            rows = F.count(F.lit(1)) if sign is None else F.sum(sign)
            self._states.append(Decomposed({ROWS: rows}, {ROWS: F.sum(ROWS)}, F.col(ROWS)))
        self._partial = [column.alias(name) for part in self._states for name, column in part.partial.items()]
        self._groups = Prepared(F.col(group) for group in groups)
        self._added = Prepared(self._partial)
        self.state = self.partial(frame).schema
        """The columns of what is kept. Their types are those of a first batch's partials, and never change."""
        self.merges = [] if self.keeps_rows else self._merges_of(self.partial(frame))
        """How partials of a group become one."""
        self.plus = {name: plus for part in self._states for name, plus in (part.plus or {}).items()}
        """How to add a partial's columns to others; empty if that cannot be said of all of them."""
        if self.keeps_rows or any(part.plus is None for part in self._states):
            self.plus = {}
        self._merging = Prepared(self.merges)
        self._results = Prepared([*(F.col(group) for group in groups), *self.results()])

    def _merges_of(self, partials: DataFrame) -> list[Column]:
        merges = {name: column for part in self._states for name, column in part.merge.items()}
        named = [column.alias(name) for name, column in merges.items()]
        kinds = partials.groupBy(*self.groups).agg(*named).schema
        return [self._as_kept(name, column, kinds[name].dataType) for name, column in merges.items()]

    def _as_kept(self, name: str, column: Column, kind: DataType) -> Column:
        """What is merged is what was kept: a sum of decimals would get more digits with each addition."""
        kept = self.state[name].dataType
        return (column if kind.simpleString() == kept.simpleString() else column.cast(kept)).alias(name)

    @property
    def adds(self) -> bool:
        """Whether :meth:`added` can be said."""
        return not self.keeps_rows and all(part.plus is not None or part.sides is not None for part in self._states)

    def added(self, one: Part, other: Part) -> list[Column]:
        """Two partials of a group that stand side by side as one."""
        sums: Columns = {}
        for part in self._states:
            sums |= {name: plus(one(name), other(name)) for name, plus in (part.plus or {}).items()}
            sums |= part.sides(one, other) if part.sides is not None else {}
        kinds = {name: self.state[name].dataType for name in sums}
        nested = ArrayType | MapType | StructType
        return [
            (column if isinstance(kinds[name], nested) else column.cast(kinds[name])).alias(name)
            for name, column in sums.items()
        ]

    def _result_schema(self, frame: DataFrame) -> StructType:
        return frame.groupBy(*self.groups).agg(*self._named()).schema

    def _named(self) -> list[Column]:
        return [column.alias(name) for name, column in self.aggregates.items()]

    def partial(self, frame: DataFrame) -> DataFrame:
        """What a batch adds to the state."""
        return frame if self.keeps_rows else self._added.aggregate(frame, self._groups)

    def partial_of(self, groups: list[Column], *more: Column) -> Callable[[DataFrame], DataFrame]:
        """:meth:`partial` of rows that the groups are yet to be computed for, with more aggregates that are no state.
        Rows must not be kept."""
        computed, columns = Prepared(groups), Prepared([*self._partial, *more])
        return lambda frame: columns.aggregate(frame, computed)

    def merged(self, partials: DataFrame) -> DataFrame:
        """Partials of the same groups made one. Rows that are kept stay as they are."""
        return partials if self.keeps_rows else self._merging.aggregate(partials, self._groups)

    def result(self, partials: DataFrame) -> DataFrame:
        """The aggregates, with the names and types that Spark gives them over the rows themselves."""
        return self._results.select(self.grouped(partials))

    def grouped(self, partials: DataFrame) -> DataFrame:
        """One row a group, of which :meth:`results` are the aggregates."""
        if self.keeps_rows:
            return partials.groupBy(*self.groups).agg(*self._named())
        return self.merged(partials)

    def results(self) -> list[Column]:
        """The aggregates, given the columns of merged partials."""
        if self.keeps_rows:
            return [F.col(name) for name in self.aggregates]
        return [part.result.cast(self.types[name].dataType).alias(name) for name, part in self._parts.items()]
