"""Each built-in operator against Spark batch on the same input: over many micro-batches, crashes and restarts."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from tests.support.local_job import LocalJob
from tests.support.small import compiling

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = "id long, country string, ordered_at timestamp, amount double"
PAYMENTS = "id long, paid_at timestamp"

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders and payments in 12 files each, a little out of order, covering three minutes."""
    directory = tmp_path_factory.mktemp("inputs")
    chance = random.Random(7)
    number = 0
    for index in range(12):
        orders, payments = [], []
        for row in range(120):
            number += 1
            ordered = START + timedelta(seconds=15 * index + row / 8 - chance.random() * 3)
            country = chance.choice(["de", "fr", "us", None])
            amount = None if chance.random() < 0.02 else chance.randrange(10_000) / 100
            orders.append({"id": number, "country": country, "ordered_at": ordered.isoformat(), "amount": amount})
            if chance.random() < 0.9:
                paid = ordered + timedelta(seconds=chance.random() * 8)
                payments.append({"id": number, "paid_at": paid.isoformat()})
        _write(directory / "orders", index, orders)
        _write(directory / "payments", index, payments)
    return directory


def _write(directory: Path, index: int, rows: list[dict[str, Any]]) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / f"{index:03d}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # The file source takes files by age.
    import os

    os.utime(path, (1_000_000_000 + index, 1_000_000_000 + index))


def read_orders(p: Pipeline, inputs: Path, files: int = 1) -> Any:
    stream = p.spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", files).json(str(inputs / "orders"))
    return p.source("orders", stream, event_time="ordered_at", delay="10 seconds", bounded=True)


def read_payments(p: Pipeline, inputs: Path, files: int = 1) -> Any:
    stream = p.spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", files).json(str(inputs / "payments"))
    return p.source("payments", stream, event_time="paid_at", delay="15 seconds", bounded=True)


def output(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.parquet(str(directory / "out"))


def rows_of(frame: DataFrame) -> Rows:
    """Rows in an order of their own, floats rounded: sums depend on the order of addition."""
    return sorted((tuple(_rounded(value) for value in row) for row in frame.collect()), key=repr)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return sorted(value, key=repr)
    return value


AGGREGATES: dict[str, Callable[[], dict[str, Any]]] = {
    "sums": lambda: {"n": F.count("*"), "known": F.count("amount"), "total": F.sum("amount"), "low": F.min("amount")},
    "moments": lambda: {"mean": F.avg("amount"), "sd": F.stddev("amount"), "var": F.var_pop("amount")},
    "decimals": lambda: {
        "total": F.sum(F.col("amount").cast("decimal(10,2)")),
        "mean": F.avg(F.col("amount").cast("decimal(10,2)")),
    },
    "distinct": lambda: {"ids": F.countDistinct("id"), "pairs": F.countDistinct("id", "amount")},
    "rows": lambda: {"median": F.percentile("amount", F.lit(0.5)), "ratio": F.sum("amount") / F.count("*")},
}


def batch_windows(spark: SparkSession, inputs: Path, aggregates: dict[str, Any], slide: str | None) -> DataFrame:
    orders = spark.read.schema(ORDERS).json(str(inputs / "orders"))
    window = F.window("ordered_at", "30 seconds", slide)
    grouped = orders.groupBy(window.alias("w"), "country").agg(*(value.alias(key) for key, value in aggregates.items()))
    return grouped.select(F.col("w.start"), F.col("w.end"), "country", *aggregates)


SLIDES = {"tumbling": None, "sliding": "10 seconds"}


@pytest.fixture(scope="module")
def windows(spark: SparkSession, inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one job of all kinds of windows wrote, each kind into a directory of its own."""
    directory = tmp_path_factory.mktemp("windows")

    def build(p: Pipeline) -> None:
        orders = read_orders(p, inputs, files=3)
        for slide, every in SLIDES.items():
            for kind, aggregates in AGGREGATES.items():
                name = f"{slide}-{kind}"
                windows = orders.window(name, size="30 seconds", slide=every, keys=["country"], aggregates=aggregates())
                windows.to_parquet(f"{name}-out", str(directory / name))

    with compiling(spark):
        LocalJob(spark, build, directory).run_to_the_end()
    return directory


@pytest.mark.parametrize("kind", AGGREGATES)
@pytest.mark.parametrize("slide", SLIDES)
def test_windows_equal_spark_batch(spark: SparkSession, inputs: Path, windows: Path, kind: str, slide: str) -> None:
    found = rows_of(spark.read.parquet(str(windows / f"{slide}-{kind}")))
    assert found
    assert found == rows_of(batch_windows(spark, inputs, AGGREGATES[kind](), SLIDES[slide]))


def test_a_join_into_windows_equals_spark_batch_over_crashes(spark: SparkSession, inputs: Path, tmp_path: Path) -> None:
    aggregates = {"n": F.count("*"), "total": F.sum("amount")}

    def build(p: Pipeline) -> None:
        paid = read_orders(p, inputs).join(
            "paid", read_payments(p, inputs), keys=["id"], within=("0 seconds", "10 seconds")
        )
        paid.window("windows", size="30 seconds", keys=["country"], aggregates=aggregates).to_parquet(
            "out", str(tmp_path / "out")
        )

    job = LocalJob(spark, build, tmp_path)
    for partitions in (2, 5, 3):
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        engine = job.start()
        job.wait(lambda engine=engine: sum(s.rows for s in engine.status().sources) > 300, "some rows")  # type: ignore[misc]
        job.checkpoint()
        job.crash()
    job.start()
    job.finish()

    orders = spark.read.schema(ORDERS).json(str(inputs / "orders"))
    payments = spark.read.schema(PAYMENTS).json(str(inputs / "payments"))
    joined = orders.join(payments, "id").where("paid_at between ordered_at and ordered_at + interval 10 seconds")
    expected = (
        joined.groupBy(F.window("ordered_at", "30 seconds").alias("w"), "country")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
        .select("w.start", "w.end", "country", "n", "total")
    )
    assert rows_of(output(spark, tmp_path)) == rows_of(expected)


def test_updates_end_in_the_values_of_spark_batch(spark: SparkSession, inputs: Path, tmp_path: Path) -> None:
    def build(p: Pipeline) -> None:
        totals = read_orders(p, inputs).aggregate(
            "totals", keys=["country"], aggregates={"n": F.count("*"), "total": F.sum("amount")}
        )
        totals.to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows > 400, "some rows")
    job.checkpoint()
    job.crash()
    job.start()
    job.finish()

    newest = output(spark, tmp_path).groupBy("country").agg(F.max("n"), F.max_by("total", "n"))
    orders = spark.read.schema(ORDERS).json(str(inputs / "orders"))
    assert rows_of(newest) == rows_of(orders.groupBy("country").agg(F.count("*"), F.sum("amount")))
