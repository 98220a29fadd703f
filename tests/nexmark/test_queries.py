"""Every Nexmark query against its oracle: all in one job, over random batch boundaries and a restart."""

import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.connectors.nexmark import Nexmark
from examples.nexmark.generate import write_files
from examples.nexmark.oracles import ORACLES, register
from examples.nexmark.queries import QUERIES, UPDATES, Events
from tests.nexmark.comparing import found_and_expected
from tests.support.depth import DEEP
from tests.support.local_job import LocalJob
from tests.support.small import compiling

NEXMARK = Nexmark(seed=11, events_per_second=100)
EVENTS = 4000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def compiled(spark: SparkSession) -> Iterator[None]:
    """Deeper, all operators run as they do in a job: in code that Spark generates."""
    with compiling(spark) if DEEP else nullcontext():
        yield


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one job of all queries wrote: crashed after a checkpoint in the middle, and gone on from there."""
    directory = tmp_path_factory.mktemp("nexmark")
    cuts = sorted(random.Random(5).sample(range(1, EVENTS), 2 if DEEP else 1))
    sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, EVENTS], strict=True)]
    write_files(spark, NEXMARK, directory / "in", sizes)
    schema = NEXMARK.batch(spark, 0).schema

    def build(p: Pipeline) -> None:
        for name, query in QUERIES.items():
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory / "in"))
            events = Events(query=name, p=p, frame=stream, nexmark=NEXMARK, bounded=True)
            query(events).to_parquet(f"{name}-out", str(directory / name))

    job = LocalJob(spark, build, directory)
    engine = job.start()
    job.wait(lambda: sum(source.batch >= 0 for source in engine.status().sources) > len(QUERIES), "some batches")
    job.checkpoint()
    job.crash()
    job.start()
    job.finish()
    register(NEXMARK.batch(spark, EVENTS))
    return directory


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_its_oracle_gives(spark: SparkSession, results: Path, name: str) -> None:
    found, expected = found_and_expected(spark, results, name, UPDATES)
    assert found
    assert found == expected


def test_every_query_has_an_oracle() -> None:
    assert set(QUERIES) == set(ORACLES)
