"""What a killed run of the tests leaves behind is ended by the next one, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

from epochal.cli.processes import Alive, DetachedProcess, Gone
from tests.support.leftovers import end_leftovers


def started(directory: Path) -> DetachedProcess:
    process = DetachedProcess(directory)
    command = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '600'])"]
    process.start(command, env=dict(os.environ), log=directory.with_suffix(".log"))
    return process


def test_only_what_belongs_to_a_run_that_is_over(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    processes = {}
    for name, owner in {"pytest-1": os.getpid(), "pytest-2": gone.pid, "pytest-3": None}.items():
        (tmp_path / name / "test").mkdir(parents=True)
        if owner is not None:
            (tmp_path / name / ".lock").write_text(str(owner))
        processes[name] = started(tmp_path / name / "test" / "driver")
    try:
        assert all(isinstance(process.state(), Alive) for process in processes.values())
        members = {name: set(process._members()) for name, process in processes.items()}
        assert set(end_leftovers(tmp_path)) >= members["pytest-2"] | members["pytest-3"]
        for name in ("pytest-2", "pytest-3"):
            popen = processes[name]._popen
            assert popen is not None
            popen.wait(10)
            assert isinstance(processes[name].state(), Gone)
        assert isinstance(processes["pytest-1"].state(), Alive)
    finally:
        for process in processes.values():
            process.end(grace=0)
