"""State that is looked up by key, on three executors of one machine, each with a directory of its own: nothing is lost,
so nothing restarts."""

import os
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.exactly_once import data
from tests.exactly_once.data import last_updates
from tests.exactly_once.killing import KilledJob

STEPS = 10
LONGEST = 300.0
EXECUTORS = {
    "spark.master": "local-cluster[3,1,1024]",
    "spark.sql.shuffle.partitions": "5",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],  # those of the tests
}

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    made = data.make(STEPS)
    data.write_files({"orders": made["orders"]}, tmp_path / "inputs")
    (tmp_path / "inputs" / "payments").mkdir()
    return tmp_path / "inputs"


def keyed_job(path: Path, inputs: Path) -> KilledJob:
    job = KilledJob(path, {"input": str(inputs)}, EXECUTORS, module="tests.exactly_once.keyed")
    job.partitions.write_text("5")
    return job


def check(job: KilledJob, inputs: Path) -> None:
    """Each order once, and the last update of each country, as computed from the files."""
    with duckdb.connect() as db:
        orders = f"read_json('{inputs}/orders/*.json')"
        updates = f"read_parquet('{job.output}/totals/*.parquet')"
        once = f"read_parquet('{job.output}/paid/*.parquet')"
        wanted = db.sql(f"SELECT country, count(*), sum(amount)::BIGINT FROM {orders} GROUP BY 1").fetchall()
        found = Counter(db.sql(f"SELECT country, n, total FROM {updates}").fetchall())
        ids = db.sql(f"SELECT DISTINCT id FROM {orders} ORDER BY 1").fetchall()
        assert last_updates(found) == Counter(wanted)
        assert db.sql(f"SELECT id FROM {once} ORDER BY 1").fetchall() == ids


def test_nothing_is_lost_and_nothing_restarts(inputs: Path, tmp_path: Path) -> None:
    job = keyed_job(tmp_path / "job", inputs)
    try:
        job.start()
        job.finish(LONGEST)
    finally:
        job.end()
    assert job.directory.generations() == [1], job.said()
    check(job, inputs)
