"""The README's program runs as it is printed, and so do the commands that look at it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def block(language: str, name: str) -> str:
    found = re.search(rf"```{language}\n# {re.escape(name)}\n(.*?)```", README, re.DOTALL)
    assert found, f"no {name} in the README"
    return found[1]


@pytest.mark.slow
@pytest.mark.spark
def test_the_program_runs_and_can_be_looked_at(tmp_path: Path) -> None:
    for language, name in (("python", "clicks.py"), ("yaml", "job.yaml")):
        (tmp_path / name).write_text(block(language, name))
    commands = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^epochal .*$", README, re.MULTILINE)]
    assert [command[0] for command in commands] == ["run", "checkpoints", "inspect", "timeline"]
    # Windows are written once they have closed, 7 s after they began.
    commands[0] += ["--until-epoch", "3", f"--set=output={tmp_path}/out"]
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "epochal.cli", *command], cwd=tmp_path, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, done.stdout + done.stderr
    counted = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["page"] for row in counted} == set(range(5))
    assert (tmp_path / "timeline.svg").exists()
