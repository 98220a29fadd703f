"""Modules that lie beside a pipeline's program."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from epochal.driver import load_function
from epochal.protocol.control import PipelineConfig


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


SEND = """
import sys
from pathlib import Path
from pyspark import cloudpickle
from epochal.driver import load_function
from epochal.protocol.control import PipelineConfig

build = load_function(PipelineConfig(file=sys.argv[1]))
Path("sent").write_bytes(cloudpickle.dumps(build(None)))
"""
RECEIVE = "import pickle; print(pickle.load(open('sent', 'rb'))(1))"


@pytest.mark.parametrize("helper", ["helper.py", "helper/__init__.py", "helper/more.py"])
def test_a_driver_finds_modules_beside_the_program_and_sends_them_to_executors(helper: str) -> None:
    write(f"jobs/{helper}", "def plus(x):\n    return x + ONE\n\nONE = 1\n")
    module = helper.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    program = f"def build(p):\n    from {module} import plus\n    return lambda x: plus(x) + 1\n"
    write("jobs/words.py", program)
    subprocess.run([sys.executable, "-c", SEND, "jobs/words.py"], check=True)
    done = subprocess.run([sys.executable, "-c", RECEIVE], check=True, capture_output=True, text=True)
    assert done.stdout == "3\n"


def test_a_program_hides_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kafka.py would, beside others in a directory of examples."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend("lib")
    write("lib/a_library.py", "")
    write("jobs/a_library.py", "raise AssertionError('taken for the library')\n")
    write("jobs/words.py", "import a_library\n\ndef build(p):\n    return a_library.__file__\n")
    build: Any = load_function(PipelineConfig(file="jobs/words.py"))
    assert build(None).endswith("lib/a_library.py")
