"""Kill at random, restart with another number of partitions, compare with an undisturbed run and with DuckDB.

``EPOCHAL_KILLS`` says how often (``make exactly-once``: 20 times each); ``EPOCHAL_SEED`` repeats a choice of moments.
By default one kill is of all processes and one of the driver alone, both in a checkpoint after rows were read.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from epochal import Pipeline
from tests.exactly_once import data, pipeline
from tests.exactly_once.killing import KilledJob, Watcher
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.jars import CONNECTOR, jars
from tests.support.local_job import LocalJob

KILLS = int(os.environ.get("EPOCHAL_KILLS", "2"))
SEED = int(os.environ.get("EPOCHAL_SEED", "27"))
STEPS = 5 + 3 * KILLS
LONGEST = 480 + 60 * KILLS
PARTITIONS = {"orders": 3, "payments": 2}

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200 + 180 * KILLS)]


@pytest.fixture(scope="module")
def made() -> dict[str, list[list[data.Row]]]:
    return data.make(STEPS)


@pytest.fixture(scope="module")
def inputs(made: dict[str, list[list[data.Row]]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("inputs")
    data.write_files(made, directory)
    return directory


@pytest.fixture(scope="module")
def broker(made: dict[str, list[list[data.Row]]]) -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        data.produce(made, running, PARTITIONS)
        yield running


def run_killed(job: KilledJob) -> Watcher:
    chance = random.Random(SEED)
    watcher = Watcher(job)
    watcher.start()
    try:
        job.start()
        while len(job.kills) < KILLS and job.kill_next(chance):
            pass
        job.finish(LONGEST)
    finally:
        job.end()
        watcher.stop()
    return watcher


def run_undisturbed(spark: SparkSession, parameters: dict[str, str], directory: Path) -> Path:
    """In this process, where Spark runs already: starting it takes longer than the job. Returns the output."""
    output, partitions = directory / "out", directory / "partitions"
    directory.mkdir()
    partitions.write_text(str(spark.conf.get("spark.sql.shuffle.partitions")))

    def build(p: Pipeline) -> None:
        p.parameters.update({**parameters, "output": str(output), "partitions": str(partitions)})
        pipeline.build(p)

    LocalJob(spark, build, directory).run_to_the_end()
    return output


def compare(killed: KilledJob, undisturbed: Path, watcher: Watcher, inputs: Path) -> None:
    killed.check_kills(KILLS)
    assert not watcher.wrong, "output was there before its epoch was published"
    wanted, got, other = data.expected(inputs), data.found(killed.output), data.found(undisturbed)
    for rows, who in ((got, "killed"), (other, "undisturbed")):
        data.check(rows, wanted, who)
        # Each update counts more rows than the one before: the same twice is a row written twice.
        steps = Counter((country, n) for country, n, _ in rows["totals"].elements())
        assert max(steps.values()) == 1, who
    assert got["totals"] == other["totals"], f"updates: {data.differences(got['totals'], other['totals'])}"


def report(kind: str, job: KilledJob, watcher: Watcher, seconds: float) -> None:
    states = Counter(kill.state for kill in job.kills)
    moved = sum(kill.rows > 0 for kill in job.kills)
    print(
        f"\n{kind}: {len(job.kills)} kills in {seconds:.0f} s ({moved} after rows were read), "
        f"{len(watcher.published)} epochs with output, {watcher.looks} looks; killed at {dict(states)}"
    )


def check(spark: SparkSession, kind: str, killed: KilledJob, inputs: Path) -> None:
    began = time.monotonic()
    watcher = run_killed(killed)
    report(kind, killed, watcher, time.monotonic() - began)
    compare(killed, run_undisturbed(spark, killed.parameters, killed.path.with_name("calm")), watcher, inputs)


def test_files(spark: SparkSession, inputs: Path, tmp_path: Path) -> None:
    check(spark, "files", KilledJob(tmp_path / "killed", {"input": str(inputs)}), inputs)


def test_kafka(spark: SparkSession, inputs: Path, broker: KafkaBroker, tmp_path: Path) -> None:
    conf = {"spark.jars": ",".join(map(str, jars(CONNECTOR)))}
    check(spark, "kafka", KilledJob(tmp_path / "killed", {"kafka": broker.address}, conf), inputs)
