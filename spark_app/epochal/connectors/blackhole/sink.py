"""A sink that keeps nothing."""

from pyspark.sql import DataFrame

from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.dataflow.two_phase_sink import SinkOperator


class BlackholeSink(SinkOperator):
    needs_frame = False
    can_take_back = True

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        """Rows are counted by the runtime, and that is all."""

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        return 0
