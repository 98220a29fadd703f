"""Kill a process that goes back each time it starts: it takes back what later epochs wrote to PostgreSQL, Delta Lake,
Iceberg and Parquet files, and writes it again. Each of that is many steps, and after the last kill every row is there
once."""

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.connectors.commits import Commits, rows
from tests.exactly_once import committing
from tests.exactly_once.connectors import catalog
from tests.exactly_once.test_commits import KILLS, SEED, committer
from tests.support.postgres import PostgresServer

EPOCHS = 4 + 2 * KILLS
ROWS = 20
MOST_BACK = 5

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300 + 60 * KILLS)]


def run_killed(config: Path, noted: Path) -> list[tuple[int, int]]:
    """Kill while rows are taken back, or some epochs later; then let one come to the end. Returns how many epochs
    counted, and how many numbers were given out, at each kill."""
    chance, at = random.Random(SEED), []
    for generation in range(KILLS):
        with committer(config, generation + 1, committing.going_back) as process:
            # In every other one some epochs are written, so that there is something to take back in the next.
            wanted = len(line(noted)) + (2 + chance.randrange(3) if generation % 2 == 0 else 0)
            while len(line(noted)) < wanted and process.is_alive():
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.15))
        assert process.exitcode == -signal.SIGKILL, "it ended before it was killed, and said why"
        at.append((len(line(noted)), json.loads(noted.read_text())["newest"]))
    with committer(config, KILLS + 1, committing.going_back) as process:
        process.join()
        assert process.exitcode == 0
    return at


def line(noted: Path) -> list[int]:
    found: list[int] = json.loads(noted.read_text())["line"] if noted.exists() else []
    return found


def test_every_row_is_there_once_however_often_it_was_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, noted, chance = Commits(tmp_path / "store"), tmp_path / "noted", random.Random(SEED)
    epochs = [
        {"rows": commits.objects(rows(*((epoch * ROWS + number, f"word {number}") for number in range(ROWS))))}
        for epoch in range(EPOCHS)
    ]
    given = {name: tmp_path / name for name in ("store", "noted", "delta", "iceberg", "parquet")}
    for name in ("iceberg", "parquet"):
        given[name].mkdir()
    with PostgresServer() as server:
        monkeypatch.setenv("PGPASSWORD", server.password)
        dsn = f"postgresql://epochal@{server.address}{urlsplit(server.make_database()).path}"
        with psycopg.connect(dsn) as db:
            db.execute("CREATE TABLE words (id bigint, word text)")
        with load_catalog("default", **catalog(str(given["iceberg"]))) as iceberg:
            iceberg.create_namespace("shop")
        config = {**{key: str(value) for key, value in given.items()}, "dsn": dsn, "kafka": "127.0.0.1:1"}
        config |= {"password": server.password}
        back = [chance.randrange(1, MOST_BACK) for _ in range(KILLS + 2)]
        (tmp_path / "config.json").write_text(json.dumps({**config, "epochs": epochs, "back": back}))

        at = run_killed(tmp_path / "config.json", noted)

        with psycopg.connect(dsn) as db:
            found = {"PostgreSQL": [row[0] for row in db.execute("SELECT id FROM words")]}
    found["Delta Lake"] = DeltaTable(str(given["delta"])).to_pyarrow_table()["id"].to_pylist()
    with load_catalog("default", **catalog(str(given["iceberg"]))) as iceberg:
        found["Iceberg"] = iceberg.load_table("shop.rows").scan().to_arrow()["id"].to_pylist()
    found["Parquet"] = pq.read_table(given["parquet"])["id"].to_pylist()
    print(f"\ngoing back: {KILLS} kills, (epochs that counted, numbers given out) at each: {at}; back by {back}")
    wanted = Counter(range(EPOCHS * ROWS))
    for target, ids in found.items():
        got = Counter(ids)
        assert got == wanted, f"{target}: {(got - wanted).total()} too many, {(wanted - got).total()} missing"
