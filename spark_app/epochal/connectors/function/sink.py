"""Calls a function of the user with the rows of an epoch."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.users_code import users_code

EpochFunction = Callable[[DataFrame, int], None]


class ForEachEpochSink(SinkOperator):
    """Calls ``function(rows, epoch)`` once an epoch with rows is published. After a crash it may be called again for
    the same epoch, with the same rows: it must be idempotent by epoch."""

    why_not_taken_back = "it is unknown what the function did with the rows"

    def __init__(self, function: EpochFunction) -> None:
        super().__init__()
        self._function = function

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        if frame is not None:
            with users_code():
                self._function(frame, epoch)


def show(rows: int = 20) -> EpochFunction:
    def shown(frame: DataFrame, epoch: int) -> None:
        print(f"--- epoch {epoch} ---", flush=True)
        frame.show(rows, truncate=False)

    return shown
