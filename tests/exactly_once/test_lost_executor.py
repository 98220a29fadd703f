"""An executor is killed with -9: what it held is gone, unless another executor has it, too. The result is the same."""

import os
import signal
import time
from pathlib import Path

import pytest

from epochal.cli.processes import DetachedProcess
from epochal.protocol.control import DriverStatus
from epochal.protocol.epochs import Generation
from tests.exactly_once import data
from tests.exactly_once.killing import KilledJob

STEPS = 6
LONGEST = 400.0
EXECUTORS = {
    # Two executors of one core and 1 GB each, as processes of their own.
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],  # those of the tests
}

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1000)]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    data.write_files(data.make(STEPS), tmp_path / "inputs")
    return tmp_path / "inputs"


def executors(job: KilledJob, generation: Generation) -> list[int]:
    found = []
    for pid in DetachedProcess(job.directory.driver(generation))._members():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0].endswith(b"java") and any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words):
            found.append(pid)
    return found


def has_state(status: DriverStatus | None) -> bool:
    return status is not None and status.state_bytes > 0 and all(source.rows for source in status.sources)


def kill_an_executor(job: KilledJob) -> None:
    """Once an epoch has state, and the executors hold more than that epoch has."""
    deadline = time.monotonic() + LONGEST
    while not has_state(job._status(Generation(1))):
        assert job.running(), job.said()
        assert time.monotonic() < deadline, job.said()
        time.sleep(0.02)
    pids = executors(job, Generation(1))
    assert len(pids) == 2, job.said()
    os.kill(pids[0], signal.SIGKILL)


def run(job: KilledJob) -> float:
    try:
        job.start()
        kill_an_executor(job)
        began = time.monotonic()
        job.finish(LONGEST)
        return time.monotonic() - began
    finally:
        job.end()


def check(job: KilledJob, inputs: Path) -> None:
    data.check(data.found(job.output), data.expected(inputs))


def test_the_driver_ends_and_the_next_generation_restores(inputs: Path, tmp_path: Path) -> None:
    job = KilledJob(tmp_path / "job", {"input": str(inputs)}, {**EXECUTORS, "spark.epochal.recoverInPlace": "false"})
    run(job)
    said = (job.path / "runner.log").read_text()
    assert "The driver of generation 1 ended with code 1: " in said
    assert "failed: an executor was lost, and with it state that only this executor held" in said
    assert "Generation 2 runs, restored from epoch" in said
    check(job, inputs)


def test_with_two_replicas_the_job_goes_on(inputs: Path, tmp_path: Path) -> None:
    job = KilledJob(tmp_path / "job", {"input": str(inputs)}, {**EXECUTORS, "spark.epochal.stateReplicas": "2"})
    run(job)
    assert job.directory.generations() == [1], job.said()
    check(job, inputs)
