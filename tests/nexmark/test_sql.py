"""The Nexmark queries in SQL against the oracles of those in Python: all in one job, over a random batch boundary.

Their operators are those of the queries in Python, which are tested over a crash; texts, in tests/sql.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.connectors.nexmark import KINDS, Nexmark, side_table
from epochal.sql.build import build_sql
from epochal.sql.script import plan_text
from examples.nexmark.oracles import ORACLES, register
from examples.nexmark.queries import UPDATES
from tests.nexmark.comparing import found_and_expected
from tests.runtime.streaming import FedJob
from tests.support.local_job import LocalJob

FILES = {path.stem: path for path in sorted((Path(__file__).parents[2] / "examples/nexmark/sql").glob("*.sql"))}
NOT_IN_SQL = {"q6"}
PARAMETERS = {"eventsPerSecond": "100", "output": "/out", "sideTable": "/side"}
NEXMARK = Nexmark(seed=12, events_per_second=100)
EVENTS = 2000

# What is closed when it is over in Python is the best so far here: of as many auctions the highest average is the last.
CHANGING = {
    **UPDATES,
    "q4": (["category"], "struct(auctions, average)"),
    "q9": (["auction"], "struct(price, -unix_micros(dateTime), bidder)"),
}


def together(files: dict[str, Path]) -> str:
    """One text of several: the tables that they share are declared once."""
    lines = "\n".join(line for path in files.values() for line in path.read_text().splitlines() if line[:2] != "--")
    statements = dict.fromkeys(statement.strip() for statement in lines.split(";") if statement.strip())
    return ";\n".join(statements)


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nexmark-sql")
    side_table(spark).write.parquet(str(directory / "side"))
    # Sources that have an end: no other one goes on without them.
    text = together(FILES).replace("'connector' = 'nexmark'", "'connector' = 'nexmark', 'bounded' = 'true'")

    def build(p: Pipeline, job: FedJob) -> None:
        p.parameters = {**PARAMETERS, "output": str(directory / "out"), "sideTable": str(directory / "side")}
        build_sql(p, text)

    job = FedJob(spark, build, directory)
    job.start()
    cut = random.Random(4).randrange(1, EVENTS)
    for first, count in ((0, cut), (cut, EVENTS - cut)):
        events = NEXMARK.batch(spark, count, first=first).localCheckpoint()
        rows = {kind: events.where(F.col(kind).isNotNull()).select(f"{kind}.*") for kind in KINDS}
        rows["q12_bid"] = rows["bid"].select("bidder", F.current_timestamp().alias("seen"))
        for source, batch in rows.items():
            job.feed(source, batch)
    job.finish()
    register(NEXMARK.batch(spark, EVENTS))
    return directory / "out"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_query_gives_what_its_oracle_gives(spark: SparkSession, results: Path, name: str) -> None:
    found, expected = found_and_expected(spark, results, name, CHANGING)
    assert found
    assert found == expected


def test_every_query_is_there_but_for_those_that_are_told() -> None:
    assert set(FILES) == set(ORACLES) - NOT_IN_SQL
    page = (Path(__file__).parents[2] / "docs/nexmark.md").read_text()
    assert "Query 6 is missing in SQL" in page


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_a_job(name: str) -> None:
    plan = plan_text(FILES[name].read_text(), PARAMETERS)
    assert [node.name for node in plan.nodes.values() if node.kind == "sink"] == [name]


@pytest.mark.slow
def test_events_come_by_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    def build(p: Pipeline) -> None:
        p.parameters = {**PARAMETERS, "output": str(tmp_path / "out")}
        build_sql(p, FILES["q0"].read_text())

    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows > 0, "events")
    job.checkpoint(then_stop=True)
    found = spark.read.parquet(str(tmp_path / "out/q0"))
    batch = Nexmark(events_per_second=100).batch(spark, 10_000).where("bid IS NOT NULL").select("bid.*")
    assert found.count() > 0
    assert found.exceptAll(batch.select(found.columns)).count() == 0
