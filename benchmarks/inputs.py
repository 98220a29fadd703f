"""What benchmarks read: Parquet files that are the same for the same numbers, in the order of their times."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import nexmark
from epochal.connectors.nexmark import Nexmark
from examples.nexmark.generate import write_files

BEGIN = 1_700_000_000_000_000
NEXMARK_SECONDS = 5
"""Of event time in a file, so that windows close all along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Parquet files, one a micro-batch; ``write`` makes them. The first ``load`` are not measured: they fill the state,
    and let the JVM compile what the rest will run. ``by_spark``: it cannot be written without. ``after``: it has the
    files of another one that come after so many."""

    name: str
    sizes: tuple[int, ...]
    schema: str
    write: Callable[[SparkSession | None, Path, "Input"], None]
    load: int = 0
    by_spark: bool = False
    after: int = 0

    @property
    def rows(self) -> int:
        """Rows of the micro-batches that are measured."""
        return sum(self.sizes[self.load :])


def nexmark_input(sizes: tuple[int, ...], *, load: int) -> Input:
    made = nexmark_of(sizes)

    def write(spark: SparkSession | None, directory: Path, given: Input) -> None:
        assert spark is not None
        write_files(spark, made, directory, given.sizes)

    return Input(name="nexmark", sizes=sizes, schema=nexmark.SCHEMA, write=write, load=load, by_spark=True)


def nexmark_of(sizes: tuple[int, ...]) -> Nexmark:
    return Nexmark(seed=1, events_per_second=max(max(sizes) // NEXMARK_SECONDS, 1))


def keyed_input(
    name: str, sizes: tuple[int, ...], *, keys: int, load: int, every: int = 0, seconds: float = 5.0
) -> Input:
    """Rows of random keys; event time goes on by some seconds a file, and rows are up to a second out of order. The
    first ``every`` files have no key twice."""

    def write(_: SparkSession | None, directory: Path, given: Input) -> None:
        random = np.random.default_rng(7)
        unique = random.permutation(sum(given.sizes[:every]))
        first = 0
        for number, rows in enumerate(given.sizes):
            times = _times(random, number, rows, seconds)
            chosen = unique[first : first + rows] if number < every else random.integers(0, keys, rows)
            first += rows
            columns = {
                "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                "key": chosen,
                "value": random.integers(0, 1000, rows),
            }
            path = directory / f"{number:05d}.parquet"
            # Several row groups: all can read one file with both cores.
            pq.write_table(pa.table(columns), path, row_group_size=-(-rows // 4))
            # The file source takes files in the order of their times.
            os.utime(path, (1_700_000_000 + number,) * 2)

    return Input(name=name, sizes=sizes, schema="ts timestamp, key long, value long", write=write, load=load)


def _times(random: np.random.Generator, number: int, rows: int, seconds: float) -> "np.typing.NDArray[np.int64]":
    begin, span = BEGIN + round(number * seconds * 1e6), round(seconds * 1e6)
    return begin + np.sort(random.integers(0, span, rows)) - random.integers(0, 1_000_000, rows)
