"""What `pipeline.py` must bring out, computed without Spark: every window once, with every order in it once."""

from collections.abc import Iterable, Mapping
from typing import Any

SHOPS = 4
BATCH_SECONDS = 5
WINDOW_SECONDS = 10
DEFAULT_ROWS_PER_BATCH = 100


class WrongOutputError(Exception):
    """The output is not the computed one."""


def window(number: int, rows_per_batch: int = DEFAULT_ROWS_PER_BATCH) -> dict[int, tuple[int, int]]:
    """Orders and total of each shop in one window."""
    per_window = rows_per_batch * WINDOW_SECONDS // BATCH_SECONDS
    orders = range(number * per_window, (number + 1) * per_window)
    result = {}
    for shop in range(SHOPS):
        amounts = [order % 1000 for order in orders if order % SHOPS == shop]
        result[shop] = (len(amounts), sum(amounts))
    return result


def check(rows: Iterable[Mapping[str, Any]], *, windows: int, rows_per_batch: int = DEFAULT_ROWS_PER_BATCH) -> None:
    """Compare the output with the computed result: the first ``windows`` windows, nothing lost, nothing twice."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows:
        key = int(row["window_start"].timestamp()) // WINDOW_SECONDS, int(row["shop"])
        if key in found:
            raise WrongOutputError(f"window {key[0]} of shop {key[1]} is there twice")
        found[key] = int(row["orders"]), int(row["total"])
    wanted = {
        (number, shop): values for number in range(windows) for shop, values in window(number, rows_per_batch).items()
    }
    for key in sorted(wanted.keys() | found.keys()):
        if found.get(key) != wanted.get(key):
            raise WrongOutputError(
                f"window {key[0]} of shop {key[1]} is {found.get(key)}, and must be {wanted.get(key)}"
            )
