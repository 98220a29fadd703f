"""Make orders and payments, the same ones each time: ``python generate.py DIRECTORY [--files N] [--rows N]``."""

import argparse
import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

COUNTRIES = ["de", "fr", "in", "jp", "us"]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS_PER_FILE = 15


def generate(directory: Path, *, files: int, rows: int) -> None:
    """One file of each kind covers a quarter of a minute; rows are a little out of order, most orders are paid."""
    chance = random.Random(20260101)
    order = 0
    for index in range(files):
        orders, payments = [], []
        for row in range(rows):
            order += 1
            at = BEGIN + timedelta(seconds=SECONDS_PER_FILE * (index + row / rows) - 4 * chance.random())
            amount = f"{chance.lognormvariate(3.5, 0.8):.2f}"
            country = chance.choice(COUNTRIES)
            orders.append({"order_id": order, "country": country, "ordered_at": at.isoformat(), "amount": amount})
            if chance.random() < 0.9:
                paid = at + timedelta(seconds=12 * chance.random())
                payments.append({"order_id": order, "paid_at": paid.isoformat()})
        _write(directory / "orders" / f"{index:04d}.json", orders, index)
        _write(directory / "payments" / f"{index:04d}.json", payments, index)


def _write(path: Path, rows: list[dict[str, object]], index: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # A file source takes the oldest file first.
    os.utime(path, (1_700_000_000 + index, 1_700_000_000 + index))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the input of the revenue example.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--files", type=int, default=24, help="files of each kind, a quarter of a minute each")
    parser.add_argument("--rows", type=int, default=2000, help="orders per file")
    given = parser.parse_args()
    generate(given.directory, files=given.files, rows=given.rows)
