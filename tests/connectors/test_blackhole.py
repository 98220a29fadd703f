"""The sink that drops rows: they are computed and counted, also when the job goes back."""

from pathlib import Path

from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.sql.build import build_sql
from tests.runtime.streaming import FedJob

SQL = """
CREATE TABLE nothing WITH ('connector' = 'blackhole');
INSERT INTO nothing SELECT v * 2 AS v FROM numbers;
"""


def test_rows_are_counted_and_nothing_else_is_left(spark: SparkSession, tmp_path: Path) -> None:
    def build(p: Pipeline, job: FedJob) -> None:
        numbers = job.source(p, "numbers", "v long")
        numbers.transform("doubled", lambda rows: rows.selectExpr("v * 2 AS v")).to_blackhole("dropped")

    job = FedJob(spark, build, tmp_path)
    job.start()
    job.feed("numbers", [(1,), (2,)])
    job.checkpoint()
    job.feed("numbers", [(3,)])
    job.checkpoint()
    [sink] = job._running().status().sinks
    assert (sink.name, sink.rows_committed) == ("dropped", 3)
    job.lose_driver()
    job.finish()


def test_it_is_a_table_of_sql(spark: SparkSession, tmp_path: Path) -> None:
    source = f"CREATE TABLE numbers (v BIGINT) WITH ('connector' = 'files', 'path' = '{tmp_path}', 'format' = 'json');"

    def build(p: Pipeline, job: FedJob) -> None:
        build_sql(p, source + SQL)

    job = FedJob(spark, build, tmp_path / "job")
    (tmp_path / "job").mkdir()
    job.start()
    job.feed("numbers", [(1,), (2,)])
    job.checkpoint()
    assert [sink.rows_committed for sink in job._running().status().sinks] == [2]
    job.finish()
