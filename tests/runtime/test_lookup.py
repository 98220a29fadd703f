"""Lookups: when the table is read again, and what happens when it cannot be."""

import logging
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from epochal import Pipeline
from epochal.operators import lookup
from epochal.operators.lookup import LookupOperator
from tests.runtime.streaming import FedJob


def test_a_table_is_read_again_and_the_old_one_kept_if_that_fails(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, reads = [0.0], [0]

    def table(spark: SparkSession) -> DataFrame:
        if now[0] == 20:
            raise OSError("the disk is away")
        reads[0] += 1
        return spark.range(3).selectExpr("id", f"{int(now[0])} AS read_at")

    def build(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", "id long")
        operator = LookupOperator(table=table, keys=["id"], how="left", refresh=10, clock=lambda: now[0])
        job.collect("out", rows.apply("lookup", operator))

    job = FedJob(spark, build, tmp_path)
    job.start()
    reads[0] = 1
    with caplog.at_level(logging.WARNING, logger="epochal.operators.lookup"):
        for seconds, number in ((0, 0), (9, 1), (10, 2), (20, 0), (29, 7), (30, 1)):
            now[0] = seconds
            # A large table is not sent around; the result is the same.
            monkeypatch.setattr(lookup, "BROADCAST_ROWS", 0 if seconds == 9 else 100_000)
            job.feed("rows", [(number,)])
    job.finish()
    assert reads[0] == 3
    assert sorted(job.rows("out"), key=repr) == sorted([(0, 0), (1, 0), (2, 10), (0, 10), (7, None), (1, 30)], key=repr)
    assert [record.getMessage() for record in caplog.records] == [
        "Operator lookup could not read its table again and goes on with the 3 rows of last time: the disk is away"
    ]
