"""Write Nexmark events as Parquet files: ``python examples/nexmark/generate.py DIRECTORY [--events N] [--files N]``;
with ``--side-table`` the table that query 13 looks values up in instead."""

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from epochal.connectors.nexmark import Nexmark, side_table


def write_files(spark: SparkSession, nexmark: Nexmark, directory: Path, sizes: Sequence[int]) -> None:
    """One file of so many events for each of ``sizes``, in the order in which a file source takes them."""
    directory.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, size in enumerate(sizes):
        path, partial = directory / f"{number:05d}.parquet", directory / f"_{number:05d}"
        # Several row groups, so that more than one core can read a file.
        writer = nexmark.batch(spark, size, first=first).coalesce(1).write.option("parquet.block.size", 4 << 20)
        writer.parquet(str(partial))
        next(partial.glob("*.parquet")).rename(path)
        shutil.rmtree(partial)
        # The file source takes the oldest file first.
        os.utime(path, (1_700_000_000 + number,) * 2)
        first += size


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write Nexmark events as Parquet files.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side-table", action="store_true")
    given = parser.parse_args()
    session = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    if given.side_table:
        side_table(session).coalesce(1).write.parquet(str(given.directory))
    else:
        sizes = [given.events // given.files] * given.files
        write_files(session, Nexmark(seed=given.seed), given.directory, sizes)
