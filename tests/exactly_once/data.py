"""Orders and payments, a little out of order, some sent twice; and what must come of them, computed by DuckDB."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from tests.support.kafka.broker import KafkaBroker

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS_PER_STEP = 60
Row = dict[str, Any]
Rows = Counter[tuple[Any, ...]]


def make(steps: int, seed: int = 11) -> dict[str, list[list[Row]]]:
    """Rows of both streams in ``steps`` portions of 15 seconds each."""
    chance = random.Random(seed)
    made: dict[str, list[list[Row]]] = {"orders": [], "payments": []}
    number = 0
    for step in range(steps):
        orders: list[Row] = []
        payments: list[Row] = []
        for row in range(ROWS_PER_STEP):
            number += 1
            ordered = START + timedelta(seconds=15 * step + row / 4 - chance.random() * 3)
            country = chance.choice(["de", "fr", "us", "jp", None])
            order = {"id": number, "country": country, "ordered_at": _text(ordered), "amount": chance.randrange(10_000)}
            orders += [order] * (2 if chance.random() < 0.05 else 1)
            if chance.random() < 0.9:
                paid = ordered + timedelta(seconds=chance.random() * 12)
                payments.append({"id": number, "paid_at": _text(paid)})
        made["orders"].append(orders)
        made["payments"].append(payments)
    return made


def write_files(made: dict[str, list[list[Row]]], directory: Path) -> None:
    for name, portions in made.items():
        (directory / name).mkdir(parents=True)
        for index, rows in enumerate(portions):
            path = directory / name / f"{index:04d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            # The file source takes files by age.
            os.utime(path, (1_000_000_000 + index, 1_000_000_000 + index))


def produce(made: dict[str, list[list[Row]]], broker: KafkaBroker, partitions: dict[str, int]) -> None:
    for name, portions in made.items():
        broker.make_topic(name, partitions[name])
        rows = (row for portion in portions for row in portion)
        broker.produce(name, ((index % partitions[name], row) for index, row in enumerate(rows)))


def expected(directory: Path) -> dict[str, Rows]:
    """What each sink must hold, from the files. Of updates only the last of each key is known."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for name, columns in {
            "orders": "{id: 'BIGINT', country: 'VARCHAR', ordered_at: 'TIMESTAMPTZ', amount: 'BIGINT'}",
            "payments": "{id: 'BIGINT', paid_at: 'TIMESTAMPTZ'}",
        }.items():
            files = directory / name / "*.json"
            db.execute(f"CREATE TABLE {name} AS SELECT * FROM read_json('{files}', columns = {columns})")
        bucket = "epoch_us(time_bucket(INTERVAL 30 SECONDS, ordered_at))"
        queries = {
            "windows": f"SELECT {bucket}, country, count(*), sum(amount)::BIGINT FROM orders GROUP BY 1, 2",
            "totals": "SELECT country, count(*), sum(amount)::BIGINT FROM orders GROUP BY 1",
            "paid": "SELECT id, country, epoch_us(ordered_at), amount, epoch_us(paid_at) FROM orders JOIN payments "
            "USING (id) WHERE paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 10 SECONDS",
            "numbered": "SELECT DISTINCT id FROM orders",
        }
        return {name: _counted(db.sql(query).fetchall()) for name, query in queries.items()}


def found(output: Path) -> dict[str, Rows]:
    """What the sinks hold, every row."""
    with duckdb.connect() as db:
        columns = {
            "windows": "epoch_us(window_start), country, n, total",
            "totals": "country, n, total",
            "paid": "id, country, epoch_us(ordered_at), amount, epoch_us(paid_at)",
            "numbered": "number, id",
        }
        return {
            name: _counted(db.sql(f"SELECT {what} FROM read_parquet('{output / name}/*.parquet')").fetchall())
            for name, what in columns.items()
        }


def check(rows: dict[str, Rows], wanted: dict[str, Rows], who: str = "the job") -> None:
    """What the sinks hold against what is expected. Of updates the last ones count."""
    for sink in ("windows", "paid"):
        assert rows[sink] == wanted[sink], f"{who}, {sink}: {differences(rows[sink], wanted[sink])}"
    assert last_updates(rows["totals"]) == wanted["totals"], who
    numbers = sorted(number for number, _ in rows["numbered"].elements())
    assert numbers == list(range(1, len(wanted["numbered"]) + 1)), who
    assert Counter((order,) for _, order in rows["numbered"].elements()) == wanted["numbered"], who


def last_updates(rows: Rows) -> Rows:
    newest: dict[object, tuple[object, ...]] = {}
    for country, n, total in sorted(rows.elements(), key=lambda row: row[1]):
        newest[country] = (country, n, total)
    return Counter(newest.values())


def differences(got: Rows, wanted: Rows) -> str:
    more, less = got - wanted, wanted - got
    return f"{more.total()} too many, e.g. {list(more)[:3]}; {less.total()} missing, e.g. {list(less)[:3]}"


def _counted(rows: Iterable[tuple[Any, ...]]) -> Rows:
    return Counter(rows)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")
