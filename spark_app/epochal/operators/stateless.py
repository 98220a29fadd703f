"""Operators without state: any function of a DataFrame, and the union of streams."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from epochal.runtime.errors import PipelineError
from epochal.runtime.operator import MAIN, Operator, OperatorContext

Transformation = Callable[[DataFrame], DataFrame]


class TransformOperator(Operator):
    """Applies a function to each micro-batch. It sees one batch at a time: use the stateful operators for the rest."""

    def __init__(self, function: Transformation) -> None:
        self._function = function

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        ctx.emit(self._applied(frame))

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        return {MAIN: self._applied(frames[0])}

    def _applied(self, frame: DataFrame) -> DataFrame:
        result = self._function(frame)
        if not isinstance(result, DataFrame):
            raise PipelineError(f"the function must return a DataFrame, not {type(result).__name__}")
        return result


class UnionOperator(Operator):
    """Rows of all inputs, columns matched by name."""

    def __init__(self, columns: list[str] | None = None) -> None:
        self._columns = columns

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        ctx.emit(frame if self._columns is None else frame.select(*self._columns))

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        result = frames[0]
        for frame in frames[1:]:
            result = result.unionByName(frame)
        self._columns = result.columns
        return {MAIN: result}
