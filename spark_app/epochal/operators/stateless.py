"""Operators without state: any function of a DataFrame, the union of streams, and one stream as two."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from epochal.runtime.dataflow.operator import MAIN, Batch, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.held import only_columns
from epochal.runtime.state.parquet_run import MANY
from epochal.runtime.users_code import users_code

REST = "rest"
"""The port of the rows that a condition is not true of."""
_MATCHES = "__matches"

Transformation = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True, eq=False)
class TransformOperator(Operator):
    """Applies a function to each micro-batch. It sees one batch at a time: use the stateful operators for the rest."""

    function: Transformation

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return _Transform(self, self.applied(ctx.empty(inputs[0])).schema)

    def applied(self, frame: DataFrame) -> DataFrame:
        result = self.function(frame)
        if not isinstance(result, DataFrame):
            raise PipelineError(f"the function must return a DataFrame, not {type(result).__name__}")
        return result


class _Transform(BoundOperator):
    def __init__(self, spec: TransformOperator, output: StructType) -> None:
        super().__init__({MAIN: output})
        self._spec = spec

    def process(self, batch: Batch, out: Collector) -> None:
        with users_code():
            rows, run = self._spec.applied(batch.frame), batch.run
        # Of few rows, columns that nobody reads cost less than a job that leaves them out.
        held = run is not None and run.rows < MANY and only_columns(rows)
        out.emit(rows, of=run if held else None)


@dataclass(frozen=True, slots=True, eq=False)
class UnionOperator(Operator):
    """Rows of all inputs, columns matched by name, with the types that Spark's own union would give them."""

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        kinds: dict[str, set[str]] = {}
        for rows in inputs:
            for field in rows:
                kinds.setdefault(field.name, set()).add(field.dataType.simpleString())
        for field in inputs[0]:
            if len(kinds[field.name]) > 1 and isinstance(field.dataType, StructType | ArrayType | MapType):
                told = " in one stream and ".join(sorted(kinds[field.name]))
                raise PipelineError(f"column {field.name!r} is {told} in another: cast one of them")
        result = ctx.empty(inputs[0])
        for rows in inputs[1:]:
            result = result.unionByName(ctx.empty(rows))
        return _Union(result.schema, [_typed(field, kinds[field.name]) for field in result.schema])


class _Union(BoundOperator):
    def __init__(self, output: StructType, columns: list[Column]) -> None:
        super().__init__({MAIN: output})
        self._columns = columns

    def passed(self, frame: DataFrame) -> DataFrame:
        return frame.select(*self._columns)


def _typed(field: StructField, kinds: set[str]) -> Column:
    """Each batch is of one input: what it has in a type of its own gets the type of all."""
    column = F.col("`" + field.name.replace("`", "``") + "`")
    return column.cast(field.dataType).alias(field.name) if kinds != {field.dataType.simpleString()} else column


@dataclass(frozen=True, slots=True, eq=False)
class SplitOperator(Operator):
    """Rows that a condition is true of go on, the others (also where it is null) leave by the port ``rest``."""

    condition: Column

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        condition = F.coalesce(self.condition, F.lit(False))
        ctx.empty(inputs[0]).where(condition)
        return _Split(inputs[0], condition)


class _Split(BoundOperator):
    def __init__(self, rows: StructType, condition: Column) -> None:
        super().__init__({MAIN: rows, REST: rows})
        self._condition = condition

    def process(self, batch: Batch, out: Collector) -> None:
        marked = batch.frame.withColumn(_MATCHES, self._condition)
        if out.is_read(MAIN) and out.is_read(REST):
            # Computed twice, a row might go both ways, or none.
            marked = out.for_this_batch(marked).frame
        for port, matches in ((MAIN, F.col(_MATCHES)), (REST, ~F.col(_MATCHES))):
            if out.is_read(port):
                out.emit(marked.where(matches).drop(_MATCHES), port)
