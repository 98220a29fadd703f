"""The tutorial on the reader's machine, as it is printed. Its part on a cluster: tests/e2e/test_tutorial.py."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.docs.pages import block, commands, page

TEXT = page("docs/tutorial.md")


def epochal(directory: Path, *arguments: str) -> str:
    if arguments[0] == "run":
        arguments = (*arguments, "--plain")
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", *arguments], cwd=directory, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def windows(directory: Path) -> list[tuple[object, ...]]:
    rows = pq.read_table(directory / "out").to_pylist()
    return [(row["window_start"], row["page"], row["clicks"]) for row in rows]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_every_step_on_the_readers_machine(tmp_path: Path) -> None:
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    write, run, look, upgrade, back = (next(s for s in sections if s.startswith(f"{n}. ")) for n in range(2, 7))
    program = block(write, "python", "clicks.py")
    manifest = block(write, "yaml", "job.yaml").replace("interval: 5s", "interval: 1s")
    (tmp_path / "clicks.py").write_text(program)
    (tmp_path / "job.yaml").write_text(manifest)
    for command in commands(write, "epochal"):
        epochal(tmp_path, *command)
    [command] = commands(run, "epochal")
    # Windows are written once they have closed, 7 s after they began.
    epochal(tmp_path, *command, "--until-epoch", "9")
    for command in commands(look, "epochal"):
        epochal(tmp_path, *command)
    [save, again] = commands(upgrade, "epochal")
    epochal(tmp_path, *save)
    before = windows(tmp_path)
    [more] = re.findall(r"```python\n( {4}totals = .*?)```", upgrade, re.DOTALL)
    (tmp_path / "clicks.py").write_text(program + more)
    # Until a window has closed that the savepoint does not have.
    epochal(tmp_path, *again, "--until-epoch", "18")
    assert pq.read_table(tmp_path / "out_totals").num_rows
    assert len(windows(tmp_path)) > len(before)
    [restore] = re.findall(r"```yaml\n( {2}restore:.*?)```", back, re.DOTALL)
    (tmp_path / "clicks.py").write_text(program)
    (tmp_path / "job.yaml").write_text(manifest + restore)
    [command] = commands(back, "epochal")
    told = epochal(tmp_path, *command, "--until-epoch", "20")
    assert "before-upgrade" in told or "restored" in told.lower(), told
    after = windows(tmp_path)
    assert set(before) <= set(after)
    assert len({row[:2] for row in after}) == len(after), "no window came twice"
