"""A set of aggregates over groups, by their partials: what a batch adds, how partials are merged, and the results."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from epochal.operators.aggregates import ROWS, Columns, Decomposed, Part, decompose, decompose_signed
from epochal.runtime.spark.jvm_columns import Prepared


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
            sums |= {name: plus.spark(one(name), other(name)) for name, plus in (part.plus or {}).items()}
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
