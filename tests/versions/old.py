"""Earlier releases, kept as they were, to be run beside this one.

``releases.tar.xz`` holds of each the protocol, the operator, the CRD, the local runner, the control server and the
tests' driver without Spark: ``0.1.0`` is release 0.1.0 (commit 7e85af6, as in ``tests/runtime/state_of_0_1.py``);
``before`` is the last commit whose readers refused every field that they did not know (be9077f). Made by

    for each: git archive --prefix=NAME/ COMMIT spark_app/epochal/{__init__.py,protocol,cli} \\
        spark_app/epochal/runtime/{__init__,control_server}.py operator/epochal_operator crds \\
        tests/{__init__,support/__init__,support/fake_driver}.py

without the commands that need Spark. A new release is added here, and none is ever changed.
"""

import json
import os
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

ARCHIVE = Path(__file__).with_name("releases.tar.xz")
OLD = ("0.1.0", "before")
NOW = "now"
ROOT = Path(__file__).parents[2]


@cache
def _extracted() -> Path:
    directory = Path(mkdtemp(prefix="epochal-releases-"))
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


def home(release: str) -> Path:
    return ROOT if release == NOW else _extracted() / release


def python_path(release: str) -> str:
    """Where a release's packages are; before those that are installed."""
    return os.pathsep.join(str(home(release) / part) for part in ("spark_app", "operator", "."))


def run_in(release: str, program: str, given: Any = None) -> Any:
    """What a program prints that is run with the code of a release: JSON in, JSON out."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": python_path(release)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=home(release),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
