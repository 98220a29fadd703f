"""The three streams that the queries are about, and rows for them by chance."""

import random
from dataclasses import dataclass

from tests.runtime.streaming import Rows, at

DELAY = 20
SPAN = 90


@dataclass(frozen=True, slots=True)
class Stream:
    """``columns`` as Spark declares them; ``duck`` are DuckDB's types."""

    name: str
    columns: str
    duck: str
    time: str


ORDERS = Stream(
    "orders",
    "id BIGINT, k STRING, c BIGINT, d DOUBLE, b BOOLEAN, `two words` STRING, ts TIMESTAMP",
    'id BIGINT, k VARCHAR, c BIGINT, d DOUBLE, b BOOLEAN, "two words" VARCHAR, ts TIMESTAMP',
    "ts",
)
PAYMENTS = Stream(
    "payments",
    "id BIGINT, k STRING, c BIGINT, amount DOUBLE, ok BOOLEAN, `select` STRING, seen TIMESTAMP",
    'id BIGINT, k VARCHAR, c BIGINT, amount DOUBLE, ok BOOLEAN, "select" VARCHAR, seen TIMESTAMP',
    "seen",
)
PARCELS = Stream(
    "parcels",
    "id BIGINT, k STRING, v BIGINT, weight DOUBLE, sent BOOLEAN, note STRING, t TIMESTAMP",
    "id BIGINT, k VARCHAR, v BIGINT, weight DOUBLE, sent BOOLEAN, note VARCHAR, t TIMESTAMP",
    "t",
)
STREAMS = (ORDERS, PAYMENTS, PARCELS)

TABLES = "\n".join(
    f"CREATE TABLE {one.name} ({one.columns}, WATERMARK FOR {one.time} AS {one.time} - INTERVAL '{DELAY}' SECOND) "
    "WITH ('connector' = 'files', 'path' = '${nothing}', 'bounded' = 'true');"
    for one in STREAMS
)

KEYS = ["a", "a", "b", "B", "é", "O'Brien", "", None]
WORDS = ["a", "b", "ab", "a%b", "x_y", "-- no comment", "日本", " padded ", "tab\tend", 'say "so"', "back\\slash", None]
DOUBLES = [0.0, -0.0, float("nan"), 0.25, -0.25, 1.5, 2.0, -3.75, 100.25, None]


def rows(chance: random.Random, count: int) -> Rows:
    """Rows of any of the streams, out of order by less than the delay. Times are on quarters of a second, so that many
    are equal or on a window's bound; some rows come twice."""
    found: Rows = []
    for number in range(count):
        moment = round(4 * (SPAN * number / count - chance.random() * (DELAY - 2))) / 4
        found.append(
            (
                chance.randrange(12),
                chance.choice(KEYS),
                chance.choice([None, *range(-4, 9)]),
                chance.choice(DOUBLES),
                chance.choice([True, False, None]),
                chance.choice(WORDS),
                at(moment),
            )
        )
        if chance.random() < 0.1:
            found.append(found[-1])
    return found
