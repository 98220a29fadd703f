"""Queries made by chance: all are planned or refused with a place; those that run give what Spark and DuckDB give."""

import pytest
from pyspark.sql import SparkSession

from tests.sql.generated.planning import plan_all, query_of
from tests.sql.generated.running import pack, run, shrunk
from tests.support.depth import DEEP

PLANNED = 1000 if DEEP else 200
JOBS = range(30 if DEEP else 1)
CANNOT = ("without a bound on time", "ON of a ", "needs event time, and", "no two times satisfy this")
"""What the generator asks for and cannot be streamed: a bound on a time that a join does not keep, filters in ON."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10 if DEEP else 1))
def test_a_query_is_planned_or_refused_with_its_place(part: int) -> None:
    result = plan_all(range(part * PLANNED, (part + 1) * PLANNED), mangling=1 if DEEP else 4)
    told = [f"{type(error).__name__}: {error}\n{text}" for text, error in result.crashed]
    assert not told, "\n\n".join(told[:3])
    refused = [reason for reason in result.refused if not reason.startswith("mangled")]
    assert not [reason for reason in refused if not any(words in reason for words in CANNOT)]
    assert len(refused) < 0.03 * PLANNED


def test_a_seed_gives_the_same_query_again() -> None:
    assert [query_of(seed) for seed in range(20)] == [query_of(seed) for seed in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("number", JOBS)
def test_queries_give_what_spark_and_duckdb_give(spark: SparkSession, number: int) -> None:
    """Ten queries a job, over batches of chance sizes; in two jobs of three the driver is lost in the middle."""
    found = run(spark, pack(number), rows=number, losses=(number + 1) % 3)
    assert not found, "\n\n".join(str(shrunk(spark, one)) for one in found[:3])
