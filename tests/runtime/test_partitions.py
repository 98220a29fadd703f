"""How far a source with partitions has come: as far as the last of those that are not idle."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal.runtime.dataflow.partitions import NUMBER, TOPIC, Partition, Partitions, ends_of_batch, with_partition

ZERO, ONE = Partition("orders", 0), Partition("orders", 1)


def of(*, bounded: bool = False, idle_after: float = 30.0) -> Partitions:
    partitions = Partitions("at", idle_after=idle_after, bounded=bounded)
    partitions.know([ONE, ZERO], looked=0.0)
    return partitions


def test_the_last_of_them_says_how_far_they_have_come() -> None:
    partitions = of()
    partitions.note({ZERO: 100}, now=1.0)
    assert partitions.newest(1.0, ()) is None, "nobody knows how far the other one is"
    partitions.note({ONE: 40}, now=2.0)
    assert partitions.newest(2.0, ()) == 40
    partitions.note({ONE: 30}, now=3.0)
    assert partitions.newest(3.0, ()) == 40, "rows out of order do not take it back"


def test_one_that_is_idle_does_not_count_until_it_brings_rows() -> None:
    partitions = of()
    partitions.note({ZERO: 100, ONE: 40}, now=1.0)
    partitions.note({ZERO: 200}, now=29.0)
    assert partitions.newest(30.0, ()) == 40
    assert partitions.newest(31.0, ()) == 200
    assert partitions.newest(31.0, {ONE}) == 40, "it has records that Spark has not come to"
    partitions.note({ONE: 50}, now=32.0)
    assert partitions.newest(32.0, ()) == 50
    assert partitions.newest(99.0, ()) == 200, "all are idle: nobody is waited for"


def test_a_batch_that_takes_long_makes_nobody_idle() -> None:
    """What has come meanwhile is seen when Spark looks for the next one."""
    partitions = of()
    partitions.note({ZERO: 100, ONE: 40}, now=1.0)
    partitions.note({ZERO: 200}, now=500.0)
    assert partitions.newest(1.5, None) == 40


def test_a_new_one_is_waited_for_and_one_that_is_gone_is_not() -> None:
    partitions = of()
    partitions.note({ZERO: 100, ONE: 40}, now=50.0)
    partitions.know([ZERO, ONE, Partition("orders", 2)], looked=51.0)
    assert partitions.newest(52.0, ()) is None
    assert partitions.newest(80.0, ()) is None
    partitions.know([ZERO], looked=52.0)
    assert partitions.newest(52.0, ()) == 100
    assert not partitions.several


def test_one_of_a_bounded_source_counts_until_its_end() -> None:
    partitions = of(bounded=True)
    partitions.note({ZERO: 100}, now=1.0)
    assert partitions.newest(999.0, None) is None, "Spark has not told where the end is"
    assert partitions.newest(999.0, {ZERO, ONE}) is None
    assert partitions.newest(2.0, {ZERO}) == 100
    partitions.note({ONE: 40}, now=3.0)
    assert partitions.newest(3.0, ()) == 100


def test_where_a_batch_ends(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    text = 'v1\n{"batchWatermarkMs":0}\n{"orders":{"1":7,"0":5},"a-b":{"0":0}}'
    (tmp_path / "offsets" / "3").write_text(text)
    assert ends_of_batch(tmp_path, 3) == {ONE: 7, ZERO: 5, Partition("a-b", 0): 0}


def from_kafka(spark: SparkSession) -> DataFrame:
    """Nobody is asked until it is read."""
    return spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": "b:1", "subscribe": "t"}).load()


SHAPES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as it is": lambda records: records,
    "projected": lambda records: records.selectExpr("CAST(value AS STRING) AS text").selectExpr("upper(text) AS u"),
    "other columns of these names": lambda records: records.selectExpr("1 AS partition", "'x' AS topic"),
    "filtered by one that goes": lambda records: records.where("partition = 1").select("value"),
    "an alias": lambda records: records.alias("r").select("r.value"),
    "a watermark of Spark's": lambda records: records.select("timestamp").withWatermark("timestamp", "1 hour"),
    "several rows of a record": lambda records: records.selectExpr("explode(split(CAST(value AS STRING), ',')) AS v"),
    "in other tasks": lambda records: records.select("value").repartition(3),
    "a Python function": lambda records: records.select(F.udf(lambda value: value)("value").alias("v")),
}


@pytest.mark.spark
def test_where_a_row_comes_from_is_carried_through_what_is_done_with_it(spark: SparkSession) -> None:
    for shape, made in SHAPES.items():
        frame = made(from_kafka(spark))
        marked = with_partition("orders", frame)
        assert marked is not None, shape
        assert marked.columns == [*frame.columns, TOPIC, NUMBER], shape
        assert marked.drop(TOPIC, NUMBER).schema == frame.schema, shape


@pytest.mark.spark
def test_other_streams_have_one_watermark(spark: SparkSession) -> None:
    records, rate = from_kafka(spark).select("timestamp"), spark.readStream.format("rate").load()
    assert with_partition("rate", rate.where("value > 1").select("timestamp")) is None
    assert with_partition("both", records.union(rate.select("timestamp"))) is None
    assert with_partition("joined", records.join(spark.range(1))) is None
