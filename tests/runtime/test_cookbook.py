"""The programs in ``examples/cookbook``: each runs, and gives what it says."""

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from epochal import Pipeline
from tests.support.local_job import LocalJob

COOKBOOK = Path(__file__).parents[2] / "examples/cookbook"

ONE, TWO, THREE = (1, "ann", "tea", 5, "10:00:00"), (2, "bob", "jam", 3, "10:00:20"), (3, "ann", "tea", 7, "10:00:50")
FOUR, FIVE = (4, "cid", "ham", 9, "10:01:10"), (5, "ann", "jam", 2, "10:05:00")

EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "outer_join": [(*ONE, "10:00:30"), (*TWO, None), (*THREE, "10:01:00"), (*FOUR, None), (*FIVE, "10:05:10")],
    "window_join": [("10:00:00", "10:01:00", *ONE, "10:00:30"), ("10:05:00", "10:06:00", *FIVE, "10:05:10")],
    "sessions": [
        ("10:00:00", "10:02:50", "ann", 2, 12),
        ("10:00:20", "10:02:20", "bob", 1, 3),
        ("10:01:10", "10:03:10", "cid", 1, 9),
        ("10:05:00", "10:07:00", "ann", 1, 2),
    ],
    "deduplicate": [ONE, TWO, THREE, FOUR],
    "top_n": [
        ("10:00:00", "10:01:00", "tea", 12, 1),
        ("10:01:00", "10:02:00", "ham", 9, 1),
        ("10:05:00", "10:06:00", "jam", 2, 1),
    ],
    "running_top_n": [(*THREE, 1), (*ONE, 2), (*TWO, 1), (*FOUR, 1)],
    "lookup": [(*ONE, "de"), (*TWO, "fr"), (*THREE, "de"), (*FOUR, None), (*FIVE, "de")],
    "bad_rows": [ONE, FIVE],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_gives_what_it_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location(f"cookbook_{name}", COOKBOOK / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    def build(p: Pipeline) -> None:
        p.parameters |= {"input": str(COOKBOOK / "input"), "output": str(tmp_path / "out")}
        program.build(p)

    LocalJob(spark, build, tmp_path).run_to_the_end()
    found = spark.read.parquet(*map(str, (tmp_path / "out").glob("*.parquet"))).collect()
    assert sorted(map(_told, found), key=repr) == sorted(EXPECTED[name], key=repr)
    if name == "bad_rows":
        bad = spark.read.parquet(str(tmp_path / "out/bad")).collect()
        assert sorted(row.value for row in bad) == ["not an order", '{"id": "six"}']


def _told(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Times of the day as text."""
    return tuple(f"{value.astimezone(UTC):%H:%M:%S}" if isinstance(value, datetime) else value for value in row)
