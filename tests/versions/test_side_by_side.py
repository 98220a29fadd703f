"""Drivers and controllers of different releases: each pair runs a job, over HTTP and with the files that they share."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.support import Job, finished, until
from tests.versions.old import NOW, OLD, ROOT, python_path, run_in

pytestmark = pytest.mark.slow

RUN = "from epochal.cli.run import run; run()"


@dataclass
class MixedJob(Job):
    """A job whose runner and driver may be of any release."""

    def begin(self, controller: str, driver: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((python_path(controller), str(ROOT / "tests" / "versions"))),
            "EPOCHAL_DRIVER_MODULE": "driver_of",
            "DRIVER_PATH": python_path(driver),
            "COLUMNS": "200",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "job.yaml"],
            cwd=self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.runs.append(process)
        return process

    def wait_epoch(self, epoch: int) -> None:
        until(lambda: self.epoch() >= epoch)

    def stop(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)
        code, output = finished(process)
        assert code == 0, output


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MixedJob]:
    job = MixedJob(tmp_path)
    yield job
    job.end()


@pytest.mark.parametrize("old", OLD)
def test_an_image_that_is_older_than_the_operator(job: MixedJob, old: str) -> None:
    """The most common of all: the operator is upgraded, and the job's image is its owner's."""
    run = job.begin(NOW, old)
    job.wait_epoch(3)
    # A driver that dies is replaced by one that restores.
    driver = job.driver()
    assert driver is not None
    driver.end(grace=0)
    epoch = job.epoch()
    job.wait_epoch(epoch + 2)
    assert job.generation() == 2
    job.stop(run)
    job.assert_exactly_once()


@pytest.mark.parametrize("old", OLD)
def test_an_image_that_is_newer_than_the_operator(job: MixedJob, old: str) -> None:
    run = job.begin(old, NOW)
    job.wait_epoch(3)
    job.stop(run)
    job.assert_exactly_once()


@pytest.mark.parametrize("old", OLD)
def test_an_operator_that_is_upgraded_and_rolled_back_under_a_driver(job: MixedJob, old: str) -> None:
    """Each takes over the record and the running driver of the one before."""
    epoch = 0
    for controller in (old, NOW, old, NOW):
        run = job.begin(controller, old)
        job.wait_epoch(epoch + 2)
        epoch = job.epoch()
        run.kill()
        run.communicate()
        assert job.driver_alive()
    run = job.begin(NOW, old)
    job.wait_epoch(epoch + 1)
    assert job.generation() == 1, "nobody had to replace the driver"
    job.stop(run)
    job.assert_exactly_once()


@pytest.mark.parametrize("old", OLD)
def test_a_controller_that_does_not_follow_a_driver_in_place_gets_one_that_ends(job: MixedJob, old: str) -> None:
    job.script.update(lose="barrier@3", generation="1")
    job.write()
    run = job.begin(old, NOW)
    job.wait_epoch(5)
    assert job.directory.generations() == [1, 2]
    job.stop(run)
    job.assert_exactly_once()


@pytest.mark.parametrize("old", OLD)
def test_an_operator_that_is_rolled_back_under_a_driver_that_has_gone_on_in_place(job: MixedJob, old: str) -> None:
    """It takes the driver for one of a generation before, and replaces it."""
    job.script.update(lose="barrier@3", generation="1")
    job.write()
    run = job.begin(NOW, NOW)
    job.wait_epoch(5)
    record = job.record()
    assert record is not None
    assert (record.checkpoints.generation, record.process, job.generation()) == (2, 1, 1)
    epoch = job.epoch()
    run.kill()
    run.communicate()
    assert job.driver_alive()
    run = job.begin(old, NOW)
    job.wait_epoch(epoch + 2)
    assert job.generation() == 3
    job.stop(run)
    run = job.begin(NOW, NOW)
    job.wait_epoch(job.epoch() + 1)
    job.stop(run)
    job.assert_exactly_once()


def test_what_runs_is_what_is_meant() -> None:
    """A test of old code that runs the new one shows nothing."""
    program = (
        'import epochal.protocol.control as c, epochal_operator as o; print(f\'["{c.__file__}", "{o.__file__}"]\')'
    )
    for release in (*OLD, NOW):
        places = run_in(release, program)
        assert all(place.startswith(python_path(release).split("/spark_app")[0]) for place in places), places
    assert run_in("0.1.0", "import epochal.protocol.control as c; print(int(hasattr(c, 'FEATURES')))") == 0
