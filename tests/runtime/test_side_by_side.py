"""Inputs of one operator: what needs no state is done side by side, the rest one after the other."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from epochal import Pipeline
from epochal.protocol.control import CheckpointState
from epochal.runtime.dataflow.operator import MAIN, Batch, BindContext, BoundOperator, Collector, Operator
from tests.runtime.bad_data import Files, ids
from tests.support.local_job import LocalJob


class Meeting(Operator):
    """Prepares a batch only together with one of the other input."""

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return _Meeting({MAIN: inputs[0]})


class _Meeting(BoundOperator):
    def __init__(self, outputs: Mapping[str, StructType]) -> None:
        super().__init__(outputs)
        self._both = threading.Barrier(2)
        self._at_work = threading.Lock()

    def prepare(self, batch: Batch) -> None:
        self._both.wait(timeout=60)

    def process(self, batch: Batch, out: Collector) -> None:
        assert self._at_work.acquire(blocking=False), "two batches have their turn at the same time"
        out.emit(batch.frame)
        self._at_work.release()


@pytest.mark.parametrize("through_union", [False, True], ids=["inputs of its own", "a union"])
def test_batches_of_two_inputs_are_prepared_side_by_side(
    spark: SparkSession, files: Files, tmp_path: Path, through_union: bool
) -> None:
    others = Files(tmp_path / "others")

    def build(p: Pipeline) -> None:
        one, other = files.read(p, "one"), others.read(p, "other")
        if through_union:
            both = one.union("both", other).apply("meeting", Meeting())
        else:
            both = one.apply("meeting", Meeting(), other)
        both.to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    files.add(1)
    others.add(2)
    job.wait(lambda: sum(one.rows for one in engine.status().sources) == 2, "both batches")
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert len(ids(spark, tmp_path / "out")) == 2
