"""Kill a process that commits to PostgreSQL, Kafka, Delta Lake, Iceberg and Parquet files at random moments: each
commit is many steps, and after the last kill every row is there once.

Killing whole jobs (``test_connectors.py``) seldom meets a commit; here there is nothing else to meet.
"""

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
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
from tests.support.kafka.broker import KafkaBroker
from tests.support.postgres import PostgresServer

KILLS = int(os.environ.get("EPOCHAL_KILLS", "3"))
SEED = int(os.environ.get("EPOCHAL_SEED", "1"))
EPOCHS = 20 + 10 * KILLS
ROWS = 50

FORKS = multiprocessing.get_context("forkserver")
"""Each committer is forked from a process that has loaded what it needs: loading takes longer than many commits."""
FORKS.set_forkserver_preload([committing.__name__])

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300 + 60 * KILLS)]


@contextmanager
def committer(
    config: Path, generation: int, target: Callable[[str, int, Connection], None] = committing.main
) -> Iterator[ForkServerProcess]:
    """One that has taken over from the one before; killed at the end, if it runs still."""
    told, tells = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=target, args=(str(config), generation, tells))
    process.start()
    tells.close()
    try:
        told.recv()  # or EOFError: it has ended, and said why
        yield process
    finally:
        process.kill()
        process.join()
        told.close()


def run_killed(config: Path, noted: Path) -> list[int]:
    """Kill after up to four epochs each, then let one come to the end. Returns the epochs noted at each kill."""
    chance, at = random.Random(SEED), []
    for generation in range(1, KILLS + 1):
        wanted = noted_epoch(noted) + chance.randrange(4)
        with committer(config, generation) as process:
            while noted_epoch(noted) < wanted and process.is_alive():
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.3))
        assert process.exitcode == -signal.SIGKILL, "it ended before it was killed, and said why"
        at.append(noted_epoch(noted))
    with committer(config, KILLS + 1) as process:
        process.join()
        assert process.exitcode == 0
    return at


def noted_epoch(noted: Path) -> int:
    return int(noted.read_text()) if noted.exists() else 0


def test_every_row_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits, noted = Commits(tmp_path / "store"), tmp_path / "noted"
    epochs = []
    for epoch in range(EPOCHS):
        made = rows(*((epoch * ROWS + number, f"word {number}") for number in range(ROWS)))
        records = [{"key": b"k", "value": json.dumps(row["id"]).encode()} for row in made]
        epochs.append({"rows": commits.objects(made), "kafka": commits.objects(records)})
    given = {name: tmp_path / name for name in ("store", "noted", "delta", "iceberg", "parquet")}
    for name in ("iceberg", "parquet"):
        given[name].mkdir()
    with PostgresServer() as server, KafkaBroker() as broker:
        monkeypatch.setenv("PGPASSWORD", server.password)
        dsn = f"postgresql://epochal@{server.address}{urlsplit(server.make_database()).path}"
        broker.make_topic("words", 2)
        with psycopg.connect(dsn) as db:
            db.execute("CREATE TABLE words (id bigint, word text)")
        with load_catalog("default", **catalog(str(given["iceberg"]))) as iceberg:
            iceberg.create_namespace("shop")
        config = {**{key: str(value) for key, value in given.items()}, "dsn": dsn, "kafka": broker.address}
        config["password"] = server.password
        (tmp_path / "config.json").write_text(json.dumps({**config, "epochs": epochs}))

        at = run_killed(tmp_path / "config.json", noted)

        with psycopg.connect(dsn) as db:
            found = {"PostgreSQL": [row[0] for row in db.execute("SELECT id FROM words")]}
        found["Kafka"] = [json.loads(value) for _, value in broker.committed("words") if value is not None]
    found["Delta Lake"] = DeltaTable(str(given["delta"])).to_pyarrow_table()["id"].to_pylist()
    with load_catalog("default", **catalog(str(given["iceberg"]))) as iceberg:
        found["Iceberg"] = iceberg.load_table("shop.rows").scan().to_arrow()["id"].to_pylist()
    found["Parquet"] = pq.read_table(given["parquet"])["id"].to_pylist()
    print(f"\ncommits: {KILLS} kills, after the epochs {at} of {EPOCHS}")
    wanted = Counter(range(EPOCHS * ROWS))
    for target, ids in found.items():
        got = Counter(ids)
        assert got == wanted, f"{target}: {(got - wanted).total()} too many, {(wanted - got).total()} missing"
