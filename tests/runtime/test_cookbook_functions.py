"""The cookbook's operators, each program run as a job."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.driver import load_function
from epochal.protocol.control import PipelineConfig
from tests.runtime.bad_data import Files
from tests.runtime.streaming import Rows, at, ordered
from tests.support.local_job import LocalJob

COOKBOOK = Path(__file__).parents[2] / "examples" / "cookbook"


def rows(spark: SparkSession, directory: Path) -> Rows:
    return ordered(spark.read.parquet(str(directory)).collect())


def run(spark: SparkSession, directory: Path, name: str, *batches: list[dict[str, Any]]) -> None:
    """The program of that name, its function loaded as a driver does, with each batch as a file of its input."""
    files = Files(directory / "in")
    for batch in batches:
        files.add_text("".join(json.dumps(row) + "\n" for row in batch))
    described: Callable[[Pipeline], None] = load_function(PipelineConfig(file=str(COOKBOOK / f"{name}.py")))

    def build(p: Pipeline) -> None:
        p.parameters.update({"input": str(files.directory), "output": str(directory / "out")})
        p.parameters["failed"] = str(directory / "failed")
        described(p)

    LocalJob(spark, build, directory).run_to_the_end()


def test_keyed_function(spark: SparkSession, tmp_path: Path) -> None:
    def click(customer: str, action: str, item: str | None, minute: int) -> dict[str, Any]:
        return {"customer": customer, "action": action, "item": item, "at": f"2026-01-01T00:{minute:02d}:00Z"}

    clicks = [
        click("ann", "add", "tea", 1), click("ann", "add", "cup", 5), click("bob", "add", "pot", 2),
        click("bob", "order", None, 4), click("cid", "add", "jug", 30),
    ]  # fmt: skip
    run(spark, tmp_path, "keyed_function", clicks)
    assert rows(spark, tmp_path / "out") == ordered(
        [
            ("ann", "left", ["tea", "cup"], at(15 * 60)),
            ("bob", "ordered", ["pot"], at(4 * 60)),
            ("cid", "left", ["jug"], at(40 * 60)),
        ]
    )


def test_enrich_async(spark: SparkSession, tmp_path: Path) -> None:
    orders = [{"id": 1, "country": "de"}, {"id": 2, "country": "fr"}, {"id": 3, "country": "xx"}]
    run(spark, tmp_path, "enrich_async", orders)
    assert rows(spark, tmp_path / "out") == [(1, "de", "rain"), (2, "fr", "sun")]
    assert rows(spark, tmp_path / "failed") == [(3, "xx", "KeyError: 'xx'")]


def test_retractions(spark: SparkSession, tmp_path: Path) -> None:
    batches = [["ann", "bob", "cid"], ["ann", "bob"], ["ann", "dan"]]
    run(spark, tmp_path, "retractions", *([{"customer": name} for name in batch] for batch in batches))
    table: Counter[tuple[int, int]] = Counter()
    for kind, orders, customers in rows(spark, tmp_path / "out"):
        table[orders, customers] += 1 if kind.startswith("+") else -1
    # Ann has three orders, Bob two, Cid and Dan one each.
    assert +table == Counter({(1, 2): 1, (2, 1): 1, (3, 1): 1})
    assert not -table
