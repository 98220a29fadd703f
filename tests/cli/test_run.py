"""``epochal run`` as a person uses it: real processes, signals, and kill -9 at bad moments."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epochal.cli.processes import Alive
from epochal.control.lifecycle import JobPhase
from tests.cli.support import Job, decoded_reports, environment, finished, kill, until
from tests.support.depth import DEEP


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


def test_it_stops_with_a_checkpoint_and_goes_on_from_it(job: Job) -> None:
    code, output = job.run("--until-epoch", "2")
    assert code == 0, output
    assert "Generation 1 runs, started empty" in output
    assert "Epoch 2 completed" in output
    assert not job.driver_alive()
    stopped_at = job.epoch()

    process = job.start()
    until(lambda: job.epoch() > stopped_at + 1)
    process.send_signal(signal.SIGINT)
    code, output = finished(process)
    assert code == 0, output
    assert f"Generation 2 runs, restored from epoch {stopped_at}" in output
    assert "then stop" in output
    job.assert_exactly_once()
    assert decoded_reports(job) == list(range(1, job.epoch() + 1))


@pytest.mark.slow
def test_a_bounded_job_ends_by_itself(job: Job) -> None:
    job.script |= {"rows": "100", "late": "60"}
    job.write()
    code, output = job.run()
    assert code == 0, output
    assert "Every source has ended" in output
    assert output.splitlines()[-1].startswith("epochal: 60 rows came too late and are not in the result: ")
    record = job.record()
    assert record is not None
    assert record.phase is JobPhase.FINISHED
    job.assert_exactly_once()


def test_what_no_restart_mends_ends_the_run_and_shows_the_log(job: Job) -> None:
    job.script["exit"] = "2"
    job.write()
    code, output = job.run()
    assert code == 1
    assert "epochal: the job failed: told to exit" in output
    assert "driver.log" in output
    assert job.directory.generations() == [1]


def test_a_driver_that_dies_between_publish_and_commit_is_replaced(job: Job) -> None:
    job.script.update(die="published@2", generation="1")
    job.write()
    code, output = job.run("--until-epoch", "3")
    assert code == 0, output
    assert "restored from epoch 2" in output
    job.assert_exactly_once()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["barrier@3", "published@3", "committed@3"])
def test_a_driver_that_loses_an_executor_goes_on_in_its_process(job: Job, point: str) -> None:
    job.script.update(lose=point)
    job.write()
    process = job.start()
    until(lambda: (record := job.record()) and record.checkpoints.generation == 2 and job.epoch() > 3)
    shown = subprocess.run(
        [sys.executable, "-m", "epochal.cli", "status", "job.yaml"],
        cwd=job.path,
        env={**os.environ, **environment(job.driver_module)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "generation 2" in shown
    assert "numbers" in shown.splitlines()[-1], "its driver was asked"
    kill(process)
    process = job.start("--until-epoch", str(job.epoch() + 2))
    code, output = finished(process)
    assert code == 0, output
    record = job.record()
    assert record is not None
    assert (job.directory.generations(), record.checkpoints.generation, record.process) == ([1], 2, 1)
    assert record.restarts.total == 0
    code, output = job.run("--until-epoch", str(job.epoch() + 2))
    assert code == 0, output
    assert job.directory.generations() == [1, 3]
    job.assert_exactly_once()


def test_a_driver_that_goes_on_and_then_dies_is_replaced(job: Job) -> None:
    job.script.update(lose="barrier@3", die="barrier@5", generation="1")
    job.write()
    code, output = job.run("--until-epoch", "8")
    assert code == 0, output
    assert "Generation 2 begins in the driver that was started as generation 1: an executor was lost" in output
    assert job.directory.generations() == [1, 3]
    job.assert_exactly_once()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["its end", "a signal"])
def test_a_driver_that_dies_in_its_last_commit_leaves_it_to_the_next(job: Job, by: str) -> None:
    job.checkpoint = {"interval": "1h"}
    job.script.update(die="published@1", generation="1", rows="100" if by == "its end" else "0")
    job.write()
    process = job.start()
    if by == "a signal":
        until(lambda: (record := job.record()) and record.phase is JobPhase.RUNNING)
        process.send_signal(signal.SIGINT)
    code, output = finished(process)
    assert code == 0, output
    assert "Epoch 1 is published and its output is not committed: starting generation 2 to commit it" in output
    assert job.directory.generations() == [1, 2]
    job.assert_exactly_once()


@pytest.mark.slow
def test_a_last_commit_that_fails_for_good_is_told_and_made_by_the_next_run(job: Job) -> None:
    job.checkpoint = {"interval": "1h"}
    job.restart = {"backoff": "100ms", "maxRestarts": 1}
    job.script.update(sink="1", rows="100")
    job.write()
    code, output = job.run()
    assert code == 1, output
    assert "the output of epoch 1 is not committed" in output
    assert "operator 'files' failed: told to fail" in output
    (job.path / "mended").touch()
    code, output = job.run()
    assert code == 0, output
    job.assert_exactly_once()


@pytest.mark.slow
def test_a_killed_runner_finds_its_driver_again(job: Job) -> None:
    process = job.start()
    until(lambda: job.epoch() >= 1)
    kill(process)
    assert job.driver_alive()
    code, output = job.run("--until-epoch", "3")
    assert code == 0, output
    assert job.directory.generations() == [1], "the driver went on; no other was needed"
    job.assert_exactly_once()


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once_and_nothing_is_lost(job: Job) -> None:
    job.script.update(hang="barrier@2", generation="1")
    # The first epoch must complete, however busy the machine is.
    job.checkpoint = {"interval": "300ms", "timeout": "1m"}
    job.write()
    process = job.start()
    until(lambda: (record := job.record()) and record.checkpoints.issued >= 2)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    code, output = finished(process)
    assert code == 130, output
    assert not job.driver_alive()
    code, output = job.run("--until-epoch", "3")
    assert code == 0, output
    assert "restored from epoch 1" in output
    job.assert_exactly_once()


@pytest.mark.slow
def test_one_runner_at_a_time(job: Job) -> None:
    process = job.start()
    until(lambda: job.record() is not None)
    code, output = job.run()
    assert (code, output.strip()) == (
        2,
        "epochal: job numbers is being run by another `epochal run` already: stop that one first",
    )
    process.send_signal(signal.SIGINT)
    assert finished(process)[0] == 0


@pytest.mark.slow
def test_a_lost_record_is_rebuilt(job: Job) -> None:
    job.run("--until-epoch", "2")
    stopped_at = job.epoch()
    job.directory.record.unlink()
    code, output = job.run("--until-epoch", str(stopped_at + 2))
    assert code == 0, output
    assert f"restored from epoch {stopped_at}" in output
    job.assert_exactly_once()


@pytest.mark.slow
def test_an_edit_of_the_manifest_applies_at_once(job: Job) -> None:
    job.checkpoint = {"interval": "1h"}
    job.write()
    process = job.start()
    until(lambda: (record := job.record()) and record.phase is JobPhase.RUNNING)
    job.manifest.write_text("spec: nonsense")
    time.sleep(1)
    job.checkpoint = {"interval": "200ms"}
    job.write()
    until(lambda: job.epoch() >= 2)
    process.send_signal(signal.SIGINT)
    code, output = finished(process)
    assert code == 0, output
    assert "changed and not taken" in output


@pytest.mark.slow
def test_a_failing_checkpoint_does_not_stop_the_job(job: Job) -> None:
    job.script["fail"] = "2"
    job.write()
    code, output = job.run("--until-epoch", "4")
    assert code == 0, output
    assert "Epoch 2 failed" in output
    job.assert_exactly_once()


@pytest.mark.slow
def test_a_silent_driver_is_given_up(job: Job) -> None:
    job.script.update(silent="2", generation="1")
    job.checkpoint = {"interval": "300ms", "timeout": "2s"}
    job.write()
    code, output = job.run("--until-epoch", "4")
    assert code == 0, output
    assert "timed out" in output
    job.assert_exactly_once()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4 if DEEP else 2))
def test_kill_at_random_and_compare(job: Job, seed: int) -> None:
    """Whatever is killed, and when: in the end each row was written once."""
    chance = random.Random(seed)
    job.script["checkpoint"] = "0.05"
    job.write()
    for _ in range(6):
        process = job.start()
        time.sleep(chance.uniform(0.2, 3))
        if chance.random() < 0.6:
            kill(process)
        driver = job.driver()
        if driver is not None and chance.random() < 0.6:
            driver.end(grace=0)
            assert not isinstance(driver.state(), Alive)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            code, output = finished(process)
            # A signal that comes while Python is still importing ends it before anything has begun.
            assert code in (0, -signal.SIGINT), output
    code, output = job.run("--until-epoch", str(job.epoch() + 2))
    assert code == 0, output
    job.assert_exactly_once()
