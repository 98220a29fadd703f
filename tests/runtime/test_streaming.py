"""The harness that operators are tested with: what it feeds counts once, whatever is lost."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from tests.runtime.streaming import FedJob, at, batches_of
from tests.support.depth import DEEP


@pytest.mark.parametrize("seed", range(2 if DEEP else 1))
def test_what_is_fed_counts_once_over_lost_drivers(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = [(number, at(number + chance.random() * 5)) for number in range(100)]

    def build(p: Pipeline, job: FedJob) -> None:
        source = job.source(p, "rows", "id long, at timestamp", event_time="at", delay="5 seconds")
        job.collect("same", source)
        job.collect("windows", source.window("w", size="10 seconds", aggregates={"n": F.count("*")}))

    job = FedJob(spark, build, tmp_path)
    job.play({"rows": batches_of(rows, chance, most=20)}, chance)
    assert job.rows("same") == sorted(rows, key=repr)
    assert job.frame("windows").agg(F.sum("n")).first() == (100,)
    assert sum(len(batch) for _, batch in job.fed if isinstance(batch, list)) == 100
