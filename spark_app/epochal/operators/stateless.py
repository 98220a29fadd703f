"""Operators without state: any function of a DataFrame, the union of streams, and one stream as two."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from epochal.runtime.dataflow.operator import MAIN, Operator, OperatorContext
from epochal.runtime.errors import PipelineError
from epochal.runtime.state.parquet_run import MANY
from epochal.runtime.state.tables import only_columns

REST = "rest"
"""The port of the rows that a condition is not true of."""
_MATCHES = "__matches"

Transformation = Callable[[DataFrame], DataFrame]


class TransformOperator(Operator):
    """Applies a function to each micro-batch. It sees one batch at a time: use the stateful operators for the rest."""

    def __init__(self, function: Transformation) -> None:
        self._function = function

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        rows, run = self._applied(frame), ctx.batch_run
        # Of few rows, columns that nobody reads cost less than a job that leaves them out.
        held = run is not None and run.rows < MANY and only_columns(rows)
        ctx.emit(rows, of=run if held else None)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        return {MAIN: self._applied(frames[0])}

    def _applied(self, frame: DataFrame) -> DataFrame:
        result = self._function(frame)
        if not isinstance(result, DataFrame):
            raise PipelineError(f"the function must return a DataFrame, not {type(result).__name__}")
        return result


class UnionOperator(Operator):
    """Rows of all inputs, columns matched by name, with the types that Spark's own union would give them."""

    def __init__(self) -> None:
        self._columns: list[Column] | None = None

    def passed(self, frame: DataFrame) -> DataFrame:
        return frame if self._columns is None else frame.select(*self._columns)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        kinds: dict[str, set[str]] = {}
        for frame in frames:
            for field in frame.schema:
                kinds.setdefault(field.name, set()).add(field.dataType.simpleString())
        result = frames[0]
        for field in result.schema:
            if len(kinds[field.name]) > 1 and isinstance(field.dataType, StructType | ArrayType | MapType):
                told = " in one stream and ".join(sorted(kinds[field.name]))
                raise PipelineError(f"column {field.name!r} is {told} in another: cast one of them")
        for frame in frames[1:]:
            result = result.unionByName(frame)
        self._columns = [_typed(field, kinds[field.name]) for field in result.schema]
        return {MAIN: result}


def _typed(field: StructField, kinds: set[str]) -> Column:
    """Each batch is of one input: what it has in a type of its own gets the type of all."""
    column = F.col("`" + field.name.replace("`", "``") + "`")
    return column.cast(field.dataType).alias(field.name) if kinds != {field.dataType.simpleString()} else column


class SplitOperator(Operator):
    """Rows that a condition is true of go on, the others (also where it is null) leave by the port ``rest``."""

    def __init__(self, condition: Column) -> None:
        self._condition = F.coalesce(condition, F.lit(False))

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        marked = frame.withColumn(_MATCHES, self._condition)
        if ctx.is_read(MAIN) and ctx.is_read(REST):
            # Computed twice, a row might go both ways, or none.
            marked = ctx.table_manager.for_this_batch(marked).frame
        for port, matches in ((MAIN, F.col(_MATCHES)), (REST, ~F.col(_MATCHES))):
            if ctx.is_read(port):
                ctx.emit(marked.where(matches).drop(_MATCHES), port)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        same = frames[0].where(self._condition)
        return {MAIN: same, REST: same}
