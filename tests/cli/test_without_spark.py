"""The command line is installed without Spark: `pip install 'epochal[cli]'`."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from epochal.cli.commands import commands
from epochal.cli.local import DRIVER_MODULE_VARIABLE

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyspark", "py4j", "pandas", "pyarrow", "kopf", "prometheus_client", "duckdb"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from click.testing import CliRunner
from epochal.cli.commands import commands

for arguments in (["--help"], *([name, "--help"] for name in commands.commands)):
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, (arguments, result.output, result.exception)
result = CliRunner().invoke(commands, ["validate", sys.argv[1]])
print(result.output)
assert result.exit_code == 0, result.exception
result = CliRunner().invoke(commands, ["graph", sys.argv[1]])
assert result.exit_code == 0, (result.output, result.exception)
assert "kubernetes" not in sys.modules, "a local job needs no cluster's client"
print(result.output)
for arguments in (["explain"], ["graph"], ["run", "--plain"]):
    result = CliRunner().invoke(commands, [*arguments, sys.argv[2]])
    assert result.exit_code == 2, (result.output, result.exception)
    assert "this needs Spark: pip install 'epochal[spark]'" in result.output, result.output
"""

PYTHON = """\
apiVersion: epochal.dev/v1alpha1
kind: StreamingJob
metadata: {name: words}
spec:
  pipeline: {file: words.py}
"""

SQL = """\
apiVersion: epochal.dev/v1alpha1
kind: StreamingJob
metadata: {name: words}
spec:
  pipeline:
    sql: |
      CREATE TABLE words (word STRING, at TIMESTAMP) WITH ('connector' = 'files', 'path' = '/tmp/in');
      CREATE TABLE out (word STRING) WITH ('connector' = 'parquet', 'path' = '/tmp/out');
      INSERT INTO out SELECT word FROM words;
"""


def test_every_command_begins_and_sql_is_planned(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SQL)
    (tmp_path / "python.yaml").write_text(PYTHON)
    (tmp_path / "words.py").write_text("def build(p): ...\n")
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "job.yaml"), str(tmp_path / "python.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    assert "default/words is valid" in done.stdout
    assert "words" in done.stdout


@pytest.mark.parametrize("command", [["explain"], ["run", "--plain"]], ids=" ".join)
def test_java_is_looked_for_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (tmp_path / "job.yaml").write_text(PYTHON)
    (tmp_path / "words.py").write_text("def build(p): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(DRIVER_MODULE_VARIABLE, raising=False)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    result = CliRunner().invoke(commands, [*command, "job.yaml"])
    assert result.exit_code == 2
    assert "there is no /nowhere/bin/java, which JAVA_HOME names" in result.output
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    assert "Spark needs Java 17 or newer: install it" in CliRunner().invoke(commands, [*command, "job.yaml"]).output
    assert not (tmp_path / ".epochal").exists()


def test_the_extra_names_all_that_it_imports() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extra = text.split("\ncli = [", 1)[1].split("]", 1)[0]
    for package in ("click", "rich", "pyyaml", "jsonschema", "common-expression-language", "kubernetes", "sqlglot"):
        assert f'"{package}' in extra
