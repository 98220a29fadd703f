"""Epochs up to the third take for ever: an operator that will not let go. Those after it are quick."""

import time

from epochal import Pipeline
from epochal.operators.stateless import TransformOperator
from epochal.protocol.barrier import CheckpointBarrier
from epochal.runtime.dataflow.operator import OperatorContext

LAST_SLOW = 3


class Slow(TransformOperator):
    def __init__(self) -> None:
        super().__init__(lambda frame: frame)

    def handle_checkpoint(self, barrier: CheckpointBarrier, ctx: OperatorContext) -> bool:
        if barrier.epoch <= LAST_SLOW:
            time.sleep(20)
        return True


def build(p: Pipeline) -> None:
    rows = p.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    numbers = p.source("numbers", rows, trigger="500 milliseconds")
    numbers.apply("slow", Slow()).to_parquet("out", p.parameters["output"])
