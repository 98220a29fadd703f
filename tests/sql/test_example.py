"""The example runs, and gives what DuckDB gives on the same input."""

import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.cli.commands import commands
from epochal.sql.build import build_sql
from tests.support.local_job import LocalJob

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sql"

EXPECTED = """
    SELECT date_trunc('minute', ordered_at) AS minute, country, count(*) AS orders, sum(amount) AS revenue
    FROM read_json('{0}/orders/*.json', columns={{order_id: 'BIGINT', country: 'VARCHAR', ordered_at: 'TIMESTAMPTZ',
        amount: 'DECIMAL(10,2)'}}) AS o
    JOIN read_json('{0}/payments/*.json', columns={{order_id: 'BIGINT', paid_at: 'TIMESTAMPTZ'}}) AS p USING (order_id)
    WHERE paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 2 MINUTE
    GROUP BY ALL ORDER BY ALL"""


def rows_of(query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def explained(*arguments: str) -> str:
    result = CliRunner().invoke(commands, ["explain", str(EXAMPLE / "job.yaml"), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_is_valid() -> None:
    result = CliRunner().invoke(commands, ["validate", str(EXAMPLE / "job.yaml")])
    assert result.exit_code == 0, result.output


def test_its_graph_is_drawn() -> None:
    tree = explained().splitlines()
    assert tree[0] == "revenue  sink: parquet"
    assert "   └─ revenue-window  window: 1 min by country" in tree
    assert explained("--format", "mermaid").startswith("flowchart LR\n")
    assert '"revenue-window" -> "revenue-fitted";' in explained("--format", "dot")


@pytest.mark.spark
@pytest.mark.slow
def test_it_gives_what_duckdb_gives(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "revenue"))
    from generate import generate  # type: ignore[import-not-found]

    generate(tmp_path / "in", files=8, rows=40)

    def build(p: Pipeline) -> None:
        p.parameters = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
        build_sql(p, (EXAMPLE / "revenue.sql").read_text())

    LocalJob(spark, build, tmp_path).run_to_the_end()
    names = sys.modules["countries"].NAMES
    expected = [
        (minute, names[country], orders, revenue)
        for minute, country, orders, revenue in rows_of(EXPECTED.format(tmp_path / "in"))
    ]
    got = rows_of(f"SELECT minute, country, orders, revenue FROM '{tmp_path}/out/revenue/*.parquet'")
    assert sorted(got) == sorted(expected)
