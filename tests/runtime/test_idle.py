"""When a source counts as idle, so that it does not hold back the others."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from epochal import Pipeline
from epochal.runtime.dataflow.source import BoundSource, SourceSpec, SourceTask
from epochal.runtime.spark.background import Background
from tests.support.local_job import LocalJob


def source_of(tmp_path: Path, *, bounded: bool = False, looked: bool = True, has_rows: bool = False) -> SourceTask:
    spec = SourceSpec(read=Mock(), event_time="at", idle_after=0, trigger={}, bounded=bounded)
    bound = BoundSource(spec, Mock(), StructType())
    source = SourceTask("orders", bound, Mock(), tmp_path, Background())
    source.query = Mock(lastProgress={"numInputRows": 0} if looked else None, status={"isDataAvailable": has_rows})
    return source


def is_idle(source: SourceTask) -> bool:
    """As the driver asks, every second."""
    for _ in range(3):
        source.check_idle()
    return source.report().idle


@pytest.mark.parametrize("bounded", [False, True])
def test_a_bounded_source_is_never_idle(tmp_path: Path, bounded: bool) -> None:
    """However long Spark takes to come to its rows: they would all be late."""
    assert is_idle(source_of(tmp_path, bounded=bounded)) is not bounded


def test_no_source_is_idle_before_spark_has_looked_at_it(tmp_path: Path) -> None:
    """However long restoring takes: the clock starts when Spark has looked, and there was nothing."""
    source = source_of(tmp_path, looked=False)
    assert not is_idle(source)
    source.query = Mock(lastProgress={"numInputRows": 0}, status={"isDataAvailable": False})
    source.check_idle()
    assert not source.report().idle
    assert is_idle(source)


def test_a_source_with_rows_that_spark_has_not_come_to_is_not_idle(tmp_path: Path) -> None:
    assert not is_idle(source_of(tmp_path, has_rows=True))


@pytest.mark.spark
def test_spark_tells_of_its_first_look_at_a_source_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise a source that never has rows would hold back the others for ever."""
    (tmp_path / "in").mkdir()

    def build(p: Pipeline) -> None:
        stream = p.spark.readStream.schema("at timestamp").json(str(tmp_path / "in"))
        p.source("rows", stream, event_time="at", idle_after=0.1).to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].idle, "the source to be idle")
    job.crash()
