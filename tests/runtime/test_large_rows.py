"""Rows of a megabyte, and a key that has most of a batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline, value_state
from epochal.runtime.dataflow import arrow_batches
from epochal.runtime.dataflow.arrow_batches import LIMIT, OFF
from epochal.runtime.state import latest_files
from epochal.runtime.state.persistence import Persistence
from tests.runtime import streaming
from tests.runtime.streaming import FedJob, at
from tests.support.depth import DEEP

MEGABYTE = 1 << 20
LARGE = 200 if DEEP else 8
HOT = 1_000_000 if DEEP else 20_000
ROWS = "id long, at timestamp, text string"


@pytest.fixture(autouse=True)
def as_at_the_start(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(LIMIT)
    spark.conf.set(LIMIT, OFF)
    yield
    spark.conf.set(LIMIT, str(before))


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": pa.array([batch.num_rows])})


def large_rows(spark: SparkSession, count: int) -> Any:
    text = F.concat(F.lpad(F.col("id").cast("string"), 8, "0"), F.repeat(F.lit("x"), MEGABYTE))
    time = F.timestamp_seconds(F.lit(at(0).astimezone().timestamp()) + F.col("id"))
    return spark.range(count).repartition(1).select("id", time.alias("at"), text.alias("text"))


def test_rows_of_a_megabyte_go_through_in_pieces(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES", 4 * MEGABYTE)
    # Executors write and read state here: all of it at once is more than a driver holds.
    monkeypatch.setattr(streaming, "_DriverPersistence", Persistence)

    def build(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", ROWS, event_time="at")
        once = rows.deduplicate("once", keys=["id"])
        job.collect("lengths", once.transform("length", lambda f: f.select("id", F.length("text").alias("n"))))
        longest = rows.aggregate("longest", keys=["id"], aggregates={"text": F.max("text")})
        job.collect("longest-out", longest.transform("cut", lambda f: f.select("id", F.length("text").alias("n"))))
        state = {"text": value_state("string")}
        keyed = rows.apply_in_arrow("kept", keeping, keys=["id"], schema="id long, n long", state=state)
        job.collect("kept-out", keyed)

    job = FedJob(spark, build, tmp_path)
    job.start()
    assert spark.conf.get(LIMIT) == str(4 * MEGABYTE)
    most = max(row.rows for row in large_rows(spark, 24).mapInArrow(sizes, "rows long").collect())
    assert most <= 5
    job.feed("rows", large_rows(spark, LARGE))
    job.checkpoint()
    job.lose_driver()
    job.feed("rows", large_rows(spark, LARGE + 1))
    job.finish()
    every = {(number, MEGABYTE + 8) for number in range(LARGE + 1)}
    assert sorted(job.exact("lengths")) == sorted(every)
    assert set(job.exact("longest-out")) == every
    assert set(job.exact("kept-out")) == {(number, times) for number, _ in every for times in (1, 2)} - {(LARGE, 2)}


def keeping(key: Any, rows: Any, ctx: Any) -> Any:
    """How often the text was seen, by what was kept of it."""
    text = ctx.value("text")
    again = text.exists()
    text.update(rows.column("text")[0].as_py())
    return {"id": key[0], "n": 2 if again else 1}


def test_rows_of_fixed_length_are_not_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    def build(p: Pipeline, job: FedJob) -> None:
        job.collect("out", job.source(p, "rows", "id long, n double"))

    job = FedJob(spark, build, tmp_path)
    job.start()
    job.crash()
    assert spark.conf.get(LIMIT) == OFF


def test_a_hot_key(spark: SparkSession, tmp_path: Path) -> None:
    """All rows but one are of one key."""

    def build(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", "id long, at timestamp, k long", event_time="at")
        totals = {"n": F.count("*"), "total": F.sum("id")}
        job.collect("updating", rows.aggregate("a", keys=["k"], aggregates=totals))
        job.collect("median", rows.aggregate("b", keys=["k"], aggregates={"m": F.percentile("id", F.lit(0.5))}))
        job.collect("windows", rows.window("c", size="1 hour", keys=["k"], aggregates=totals))
        job.collect("sessions", rows.session_window("d", gap="1 hour", keys=["k"], aggregates=totals))
        job.collect("once", rows.deduplicate("e", keys=["k"]))
        job.collect("keyed", rows.apply_in_arrow("f", lengths, keys=["k"], schema="k long, n long"))

    job = FedJob(spark, build, tmp_path)
    job.start()
    time = F.timestamp_seconds(F.lit(at(0).astimezone().timestamp()))
    job.feed("rows", spark.range(HOT).select("id", time.alias("at"), (F.col("id") == 0).cast("long").alias("k")))
    job.checkpoint()
    job.lose_driver()
    job.finish()
    total = HOT * (HOT - 1) // 2
    assert sorted(job.exact("updating")) == [(0, HOT - 1, total), (1, 1, 0)]
    assert sorted(job.exact("median")) == [(0, HOT / 2), (1, 0.0)]
    assert sorted(row[2:] for row in job.exact("windows")) == [(0, HOT - 1, total), (1, 1, 0)]
    assert sorted(row[2:] for row in job.exact("sessions")) == [(0, HOT - 1, total), (1, 1, 0)]
    assert len(job.exact("once")) == 2
    assert sorted(job.exact("keyed")) == [(0, HOT - 1), (1, 1)]


def lengths(key: Any, rows: Any, _: Any) -> Any:
    return {"k": key[0], "n": rows.num_rows}


def test_slices_end_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_files, "SLICE_BYTES", 100)
    hashes = pa.array([3, 1, 2], pa.int64())
    batch = pa.RecordBatch.from_pydict({latest_files.HASH: hashes, "text": pa.array(["x" * 20] * 3)})
    assert [rows.num_rows for rows in latest_files._sorted_slices(iter([batch] * 5))] == [6, 6, 3]
