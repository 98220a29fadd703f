"""SQL at the command line: inline, in a file, in a ConfigMap; wrong texts are told before anything starts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from epochal.cli.commands import commands

ROOT = Path(__file__).parents[2]

GOOD = """\
CREATE TABLE ticks WITH ('connector' = 'rate', 'rows-per-second' = '${rate}');
CREATE TABLE out WITH ('connector' = 'console');
INSERT INTO out SELECT value FROM ticks;
"""
WRONG = GOOD.replace("SELECT value", "SELECT valeu")


def job(directory: Path, pipeline: dict[str, Any], *more: dict[str, Any]) -> str:
    kind = {"apiVersion": "epochal.dev/v1alpha1", "kind": "StreamingJob", "metadata": {"name": "ticks"}}
    spec = {"pipeline": {"parameters": {"rate": "5"}, **pipeline}}
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump_all([{**kind, "spec": spec}, *more]))
    return str(path)


def config_map(text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "texts"}, "data": {"ticks.sql": text}}


def forms(directory: Path, text: str) -> dict[str, str]:
    """A manifest for each place that a text may be in."""
    places = {name: directory / name for name in ("inline", "file", "config-map")}
    for place in places.values():
        place.mkdir()
    (places["file"] / "ticks.sql").write_text(text)
    from_map = {"configMap": {"name": "texts", "key": "ticks.sql"}}
    return {
        "inline": job(places["inline"], {"sql": text}),
        "file": job(places["file"], {"file": "ticks.sql"}),
        "config-map": job(places["config-map"], from_map, config_map(text)),
    }


def test_a_text_may_be_in_three_places(tmp_path: Path) -> None:
    for manifest in forms(tmp_path, GOOD).values():
        result = CliRunner().invoke(commands, ["explain", manifest])
        assert result.exit_code == 0, result.output
        assert result.output.splitlines()[-1] == "   └─ ticks  source: rate"


@pytest.mark.parametrize("command", ["validate", "run", "explain"])
def test_a_wrong_text_is_told_with_its_place(tmp_path: Path, command: str) -> None:
    for manifest in forms(tmp_path, WRONG).values():
        result = CliRunner().invoke(commands, [command, manifest])
        assert result.exit_code == 2, result.output
        assert "line 3, column 24: there is no column valeu: did you mean value?" in result.output
        assert result.output.splitlines()[-1].strip() == "^^^^^"


@pytest.mark.spark
@pytest.mark.slow
def test_a_python_pipeline_is_drawn_too(tmp_path: Path) -> None:
    """In a process of its own: the command ends its Spark."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "payments").mkdir()
    manifest = str(ROOT / "examples" / "revenue" / "job.yaml")
    given = ["--set", f"input={tmp_path}", "--set", f"output={tmp_path / 'out'}"]
    drawn = subprocess.run(
        [sys.executable, "-m", "epochal.cli", "explain", manifest, *given], capture_output=True, text=True, check=True
    )
    assert drawn.stdout.splitlines() == [
        "out  sink",
        "└─ revenue  window",
        "   └─ paid  join",
        "      ├─ orders  source",
        "      └─ payments  source",
    ]
