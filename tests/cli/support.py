"""Running the command line on the fake driver."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml
from click.testing import Result

from epochal.cli.local import DRIVER_MODULE_VARIABLE, JobDirectory
from epochal.cli.processes import Alive, DetachedProcess
from epochal.control.lifecycle import AT_REST, JobRecord
from epochal.protocol.control import StorageConfig
from epochal.protocol.epochs import Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import Found, resolve
from epochal.runtime.state.persistence import store_of
from tests.support.fake_driver import stretches

ROOT = Path(__file__).parents[2]


def output_of(result: Result) -> str:
    """Of a command that has done what it should."""
    assert result.exit_code == 0, result.output
    return result.output


def refusal(result: Result) -> str:
    """What a wrong command is told, without a traceback."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result.output


@dataclass
class Job:
    """A job in a directory of its own, with the fake driver's script as parameters."""

    path: Path
    script: dict[str, str] = field(default_factory=dict)
    checkpoint: dict[str, object] = field(default_factory=lambda: {"interval": "300ms", "timeout": "5s"})
    restart: dict[str, object] = field(default_factory=lambda: {"backoff": "100ms"})
    driver_module: str = "tests.support.fake_driver"

    def __post_init__(self) -> None:
        self.manifest = self.path / "job.yaml"
        self.output = self.path / "out"
        self.directory = JobDirectory(self.path / ".epochal", "default", "numbers")
        self.runs: list[subprocess.Popen[str]] = []
        self.write()

    def write(self) -> None:
        pipeline = {"module": "none", "parameters": {"output": str(self.output), "rate": "200", **self.script}}
        spec = {"pipeline": pipeline, "checkpoint": self.checkpoint, "restartPolicy": self.restart}
        kind = {"apiVersion": "epochal.dev/v1alpha1", "kind": "StreamingJob"}
        self.manifest.write_text(yaml.safe_dump({**kind, "metadata": {"name": "numbers"}, "spec": spec}))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "epochal.cli", "run", "job.yaml", *arguments],
            cwd=self.path,
            env={**os.environ, **environment(self.driver_module)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Where tests run in the background SIGINT is ignored, and so it would be by what they start: one that comes
            # before the runner listens would be lost.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.runs.append(process)
        return process

    def run(self, *arguments: str) -> tuple[int, str]:
        return finished(self.start(*arguments))

    def record(self) -> JobRecord | None:
        try:
            return self.directory.load_record()
        except FileNotFoundError:
            return None

    def epoch(self) -> int:
        record = self.record()
        return record.checkpoints.newest_completed if record else 0

    def driver(self) -> DetachedProcess | None:
        generations = self.directory.generations()
        return DetachedProcess(self.directory.driver(generations[-1])) if generations else None

    def generation(self) -> Generation:
        return self.directory.generations()[-1]

    def driver_alive(self) -> bool:
        driver = self.driver()
        return driver is not None and isinstance(driver.state(), Alive)

    def end(self) -> None:
        for run in self.runs:
            if run.poll() is None:
                run.kill()
                run.communicate()
        for generation in self.directory.generations():
            DetachedProcess(self.directory.driver(generation)).end(grace=0)
        DetachedProcess(self.directory.cleanup).end(grace=0)

    def assert_exactly_once(self) -> None:
        end = 0
        found = stretches(self.output)
        for begin, until in found:
            assert begin == end, f"lost or doubled at {begin}: {found}"
            end = until
        record = self.record()
        if record and record.phase in AT_REST:
            assert end == self.position(), f"the newest epoch is at {self.position()}: {found}"

    def position(self) -> int:
        """Where the source stands in the newest epoch."""
        here = {"uri": (self.path / ".epochal" / "store").as_uri()}
        store = store_of(msgspec.convert(self.checkpoint.get("storage", here), StorageConfig))
        newest = resolve(store, JobPaths("default", "numbers"))
        assert isinstance(newest, Found)
        position = newest.manifest.operators["numbers"].position
        assert position is not None
        return position.batch


def environment(driver_module: str) -> Mapping[str, str]:
    return {DRIVER_MODULE_VARIABLE: driver_module, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def finished(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"it did not end in {timeout} s: {output}") from None
    return process.returncode, output


def until(condition: Callable[[], object], timeout: float = 30) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def decoded_reports(job: Job) -> list[int]:
    lines = job.directory.checkpoints.read_bytes().splitlines()
    return [msgspec.json.decode(line)["epoch"] for line in lines]
