"""What somebody is told whose pipeline cannot be described."""

from pathlib import Path
from typing import Any, cast

import pytest

from epochal.driver import describe
from epochal.protocol.control import PipelineConfig
from epochal.runtime.errors import PipelineError


def told(path: Path, body: str) -> str:
    path.write_text(f"from pyspark.sql.types import StructType\n\ndef build(p):\n    {body}\n")
    with pytest.raises(PipelineError) as caught:
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
