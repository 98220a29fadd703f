"""One of three executors is killed with -9: the next generation goes on in the same driver, and the result is that of
an undisturbed job."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from epochal.protocol.control import EXIT_FAILED, EXIT_STOPPED, DriverPhase, DriverStatus
from tests.exactly_once import data
from tests.exactly_once.in_place import Driven

STEPS = 14

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

Start = Callable[..., Driven]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made = data.make(STEPS)
    data.write_files({**made, "orders_again": made["orders"]}, tmp_path / "inputs")
    jobs: list[Driven] = []

    def started(**options: object) -> Driven:
        job = Driven(tmp_path / f"job-{len(jobs)}", tmp_path / "inputs", **options)  # type: ignore[arg-type]
        jobs.append(job)
        job.start()
        return job

    yield started
    for job in jobs:
        job.end()


def check(job: Driven) -> None:
    wanted = data.expected(job.inputs)
    data.check(data.found(job.output), wanted)
    with duckdb.connect() as db:
        once = db.sql(f"SELECT id FROM read_parquet('{job.output}/once/*.parquet')").fetchall()
    assert Counter(once) == wanted["numbered"]


def runs(generation: int) -> Callable[[DriverStatus | None], bool]:
    """Whether this generation has processed a batch."""
    return lambda status: (
        status is not None
        and status.generation == generation
        and status.phase is DriverPhase.RUNNING
        and any(source.rows for source in status.sources)
    )


def test_the_next_generation_goes_on_in_the_same_driver(start: Start) -> None:
    job = start()
    job.until_state()
    before, jvms = job.status(), job.jvms(b"SparkSubmit")
    assert before is not None
    assert before.generation == 1
    old_files = job.files(job.executors())
    assert old_files, "the aggregate and the deduplication have files"
    began, killed = time.monotonic(), job.kill_an_executor()
    left = [pid for pid in job.executors() if pid != killed]
    status = job.until(runs(2), "the next generation")
    took = time.monotonic() - began
    assert status is not None
    assert "an executor was lost: generation 2 goes on in the same driver" in status.message
    assert status.restored_epoch
    assert job.jvms(b"SparkSubmit") == jvms, "the same JVM"
    assert not job.files([pid for pid in left if pid in job.executors()]) & old_files
    first, second = (json.loads(line) for line in job.held.read_text().splitlines())
    assert first["jvm"] == second["jvm"]
    assert (second["frames"], second["blocks"]) == (0, 0), "nothing of the generation before is held"
    seen = re.search(r"First batch ([\d.]+) s after the loss", job.log.read_text())
    print(f"\nin place: {took:.1f} s from kill -9 to rows, of these {seen and seen[1]} s after it was seen")
    assert job.until_the_end() == EXIT_STOPPED, job.said()
    check(job)


def test_a_second_loss_before_an_epoch_ends_the_driver(start: Start) -> None:
    job = start()
    job.until_state()
    job.kill_an_executor()
    job.until(runs(2), "the next generation", epochs=False)
    job.kill_an_executor()
    assert job.until_the_end(epochs=False) == EXIT_FAILED, job.said()
    assert "an executor was lost" in job.log.read_text().splitlines()[-1]
    began = time.monotonic()
    job.start(generation=3)
    job.until(runs(3), "a driver in a process of its own")
    print(f"\na new process: {time.monotonic() - began:.1f} s from its start to rows")
    assert job.until_the_end() == EXIT_STOPPED, job.said()
    check(job)


def test_with_the_setting_a_driver_ends_and_another_one_restores(start: Start) -> None:
    job = start(spark_conf={"spark.epochal.recoverInPlace": "false"})
    job.until_state()
    began = time.monotonic()
    job.kill_an_executor()
    assert job.until_the_end() == EXIT_FAILED, job.said()
    ended = time.monotonic()
    assert "an executor was lost" in job.log.read_text().splitlines()[-1]
    job.start(generation=2)
    job.until(runs(2), "a driver in a process of its own")
    took = time.monotonic() - began
    print(f"\nrestart: {took:.1f} s from kill -9 to rows, {ended - began:.1f} s of these until the driver had ended")
