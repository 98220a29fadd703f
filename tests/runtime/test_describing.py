"""What somebody is told whose pipeline cannot be described."""

from pathlib import Path
from typing import Any, cast

import pytest

from epochal.driver import describe
from epochal.protocol.control import EXIT_FAILED, EXIT_MISCONFIGURED, EXIT_REFUSED, PipelineConfig
from epochal.protocol.faults import exit_code
from epochal.runtime.errors import PipelineError, UserCodeError


def told(path: Path, body: str) -> str:
    path.write_text(f"from pyspark.sql.types import StructType\n\ndef build(p):\n    {body}\n")
    with pytest.raises((PipelineError, UserCodeError)) as caught:
        describe(cast(Any, None), PipelineConfig(file=str(path)))
    return str(caught.value)


def test_the_line_is_that_of_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    assert told(path, "StructType().fromDDL(3)").endswith(f"({path}:4)")


@pytest.mark.parametrize(
    ("said", "package"),
    [
        (
            "Failed to find data source: kafka. Please deploy",
            "spark.jars.packages: org.apache.spark:spark-sql-kafka-0-10",
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure", "spark.jars.packages: io.delta:"),
    ],
)
def test_a_source_that_spark_has_not_got_is_told_with_its_package(tmp_path: Path, said: str, package: str) -> None:
    assert package in told(tmp_path / "job.py", f"raise RuntimeError({said!r})")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:1/subjects')", EXIT_FAILED),
        ("import socket; socket.create_connection(('registry.invalid', 8081))", EXIT_FAILED),
        ("open('/nowhere/schema.avsc')", EXIT_REFUSED),
        ("raise RuntimeError('the registry is in maintenance')", EXIT_FAILED),
        ("p.nothing.of_it()", EXIT_MISCONFIGURED),
        ("import nothing_of_that_name", EXIT_MISCONFIGURED),
    ],
)
@pytest.mark.parametrize("where", ["in the function", "in the module"])
def test_an_outage_while_describing_is_no_mistake(tmp_path: Path, body: str, code: int, where: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(f"def build(p):\n    {body}\n" if where == "in the function" else f"p = None\n{body}\n")
    with pytest.raises((PipelineError, UserCodeError)) as caught:
        describe(cast(Any, None), PipelineConfig(file=str(path)))
    assert exit_code(caught.value) == code
