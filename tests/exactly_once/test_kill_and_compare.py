"""Kill at random, restart with another number of partitions, compare with an undisturbed run and with DuckDB.

``EPOCHAL_KILLS`` says how often (``make exactly-once``: 20 times each); ``EPOCHAL_SEED`` repeats a choice of moments.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exactly_once import data
from tests.exactly_once.killing import KilledJob, Watcher
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.jars import CONNECTOR, jars

KILLS = int(os.environ.get("EPOCHAL_KILLS", "3"))
SEED = int(os.environ.get("EPOCHAL_SEED", "1"))
STEPS = 10 + 3 * KILLS
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


def run_undisturbed(job: KilledJob) -> None:
    try:
        job.start()
        job.finish(LONGEST)
    finally:
        job.end()


def compare(killed: KilledJob, undisturbed: KilledJob, watcher: Watcher, inputs: Path) -> None:
    assert len(killed.kills) == KILLS, "the input was too small: the job ended before all kills"
    assert not watcher.wrong, "output was there before its epoch was published"
    wanted, got, other = data.expected(inputs), data.found(killed.output), data.found(undisturbed.output)
    for rows, who in ((got, "killed"), (other, "undisturbed")):
        for sink in ("windows", "paid"):
            assert rows[sink] == wanted[sink], f"{who}, {sink}: {differences(rows[sink], wanted[sink])}"
        assert last_updates(rows["totals"]) == wanted["totals"], who
        # Each update counts more rows than the one before: the same twice is a row written twice.
        steps = Counter((country, n) for country, n, _ in rows["totals"].elements())
        assert max(steps.values()) == 1, who
        numbers = sorted(number for number, _ in rows["numbered"].elements())
        assert numbers == list(range(1, len(wanted["numbered"]) + 1)), who
        assert Counter((order,) for _, order in rows["numbered"].elements()) == wanted["numbered"], who
    assert got["totals"] == other["totals"], f"updates: {differences(got['totals'], other['totals'])}"


def last_updates(rows: data.Rows) -> data.Rows:
    newest: dict[object, tuple[object, ...]] = {}
    for country, n, total in sorted(rows.elements(), key=lambda row: row[1]):
        newest[country] = (country, n, total)
    return Counter(newest.values())


def differences(got: data.Rows, wanted: data.Rows) -> str:
    more, less = got - wanted, wanted - got
    return f"{more.total()} too many, e.g. {list(more)[:3]}; {less.total()} missing, e.g. {list(less)[:3]}"


def report(kind: str, job: KilledJob, watcher: Watcher, seconds: float) -> None:
    states = Counter(kill.state for kill in job.kills)
    moved = sum(kill.rows > 0 for kill in job.kills)
    print(
        f"\n{kind}: {len(job.kills)} kills in {seconds:.0f} s ({moved} after rows were read), "
        f"{len(watcher.published)} epochs with output, {watcher.looks} looks; killed at {dict(states)}"
    )


def check(kind: str, killed: KilledJob, undisturbed: KilledJob, inputs: Path) -> None:
    began = time.monotonic()
    watcher = run_killed(killed)
    report(kind, killed, watcher, time.monotonic() - began)
    run_undisturbed(undisturbed)
    compare(killed, undisturbed, watcher, inputs)


def test_files(inputs: Path, tmp_path: Path) -> None:
    parameters = {"input": str(inputs)}
    check("files", KilledJob(tmp_path / "killed", parameters), KilledJob(tmp_path / "calm", parameters), inputs)


def test_kafka(inputs: Path, broker: KafkaBroker, tmp_path: Path) -> None:
    parameters = {"kafka": broker.address}
    conf = {"spark.jars": ",".join(map(str, jars(CONNECTOR)))}
    check(
        "kafka",
        KilledJob(tmp_path / "killed", parameters, conf),
        KilledJob(tmp_path / "calm", parameters, conf),
        inputs,
    )
