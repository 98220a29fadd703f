"""Epochs up to the third take for ever: an operator that will not let go. Those after it are quick."""

import time
from collections.abc import Sequence

from pyspark.sql.types import StructType

from epochal import BindContext, BoundOperator, CheckpointBarrier, Collector, Operator, OperatorContext, Pipeline

LAST_SLOW = 3


class Slow(Operator):
    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return _Slow({"main": inputs[0]})


class _Slow(BoundOperator):
    def handle_checkpoint(self, barrier: CheckpointBarrier, ctx: OperatorContext, out: Collector) -> bool:
        if barrier.epoch <= LAST_SLOW:
            time.sleep(20)
        return True


def build(p: Pipeline) -> None:
    rows = p.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    numbers = p.source("numbers", rows, trigger="500 milliseconds")
    numbers.apply("slow", Slow()).to_parquet("out", p.parameters["output"])
