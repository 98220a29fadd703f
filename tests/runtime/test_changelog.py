"""Aggregates with retractions, and aggregates of those, against Spark batch and plain Python over the same rows."""

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ShortType

from epochal import Pipeline
from epochal.operators import aggregates
from epochal.runtime.state import tables
from tests.runtime.streaming import PARTITIONS, FedJob, Rows, at, batches_of, ordered
from tests.support.depth import DEEP

MUCH = 0.9


def table_of(changes: Rows) -> Rows:
    """What a changelog's rows leave, to the last digit: each row that is taken back must have been given."""
    table: Counter[tuple[Any, ...]] = Counter()
    for kind, *row in changes:
        table[tuple(row)] += 1 if kind in ("+I", "+U") else -1
    assert not -table
    return list((+table).elements())


@pytest.mark.parametrize("seed", range(2 if DEEP else 1))
def test_an_aggregate_of_an_aggregate_equals_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(tables, "MERGE_AT", 3)
    chance = random.Random(seed)
    orders: Rows = [(chance.choice("abcdefgh"), chance.choice([None, chance.random()])) for _ in range(60)]

    def build(p: Pipeline, job: FedJob) -> None:
        first = {"n": F.count("*"), "total": F.sum("amount"), "most": F.max("amount")}
        first["much"] = F.bool_or(F.col("amount") > MUCH)
        users = job.source(p, "orders", "user string, amount double").aggregate(
            "users", keys=["user"], aggregates=first, retractions=True
        )
        job.collect("users-out", users)
        counts = {"users": F.count("user"), "total": F.sum("total"), "mean": F.avg("n")}
        counts |= {"any": F.bool_or("much"), "all": F.bool_and("much")}
        job.collect("counts-out", users.aggregate("counts", keys=["n"], aggregates=counts, retractions=True))

    job = FedJob(spark, build, tmp_path)
    job.play({"orders": batches_of(orders, chance, most=20)}, chance, losses=1)

    per_user: dict[str, list[float | None]] = {}
    for user, amount in orders:
        per_user.setdefault(user, []).append(amount)
    known = {user: [amount for amount in amounts if amount is not None] for user, amounts in per_user.items()}
    users = [
        (
            user,
            len(amounts),
            sum(known[user]) if known[user] else None,
            max(known[user], default=None),
            any(amount > MUCH for amount in known[user]) if known[user] else None,
        )
        for user, amounts in per_user.items()
    ]
    assert ordered(table_of(job.exact("users-out"))) == ordered(users)
    counts = []
    for n in {row[1] for row in users}:
        totals = [row[2] for row in users if row[1] == n]
        sums = [total for total in totals if total is not None]
        much = [row[4] for row in users if row[1] == n and row[4] is not None]
        booleans = (any(much), all(much)) if much else (None, None)
        counts.append((n, len(totals), sum(sums) if sums else None, float(n), *booleans))
    assert ordered(table_of(job.exact("counts-out"))) == ordered(counts)


def test_a_changelog_from_elsewhere_leaves_what_was_not_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(3)
    events: Rows = []
    held: Rows = []
    for _ in range(60):
        if held and chance.random() < 0.4:
            events.append(("-D", *held.pop(chance.randrange(len(held)))))
        else:
            held.append((chance.choice("xyz"), chance.choice([None, *range(5)])))
            events.append(("+I", *held[-1]))

    def build(p: Pipeline, job: FedJob) -> None:
        events = job.source(p, "events", "row_kind string, k string, v long")
        sums = {"n": F.count("*"), "known": F.count("v"), "v": F.sum("v"), "mean": F.avg("v")}
        job.collect("out", events.aggregate("sums", keys=["k"], aggregates=sums, changelog=True))

    job = FedJob(spark, build, tmp_path)
    job.start()
    for part in (events[:25], events[25:]):
        job.feed("events", part)
        job.checkpoint()
    job.crash()
    newest = {row[0]: row[1:] for row in job.exact("out")}
    for key in "xyz":
        values = [value for k, value in held if k == key]
        there = [value for value in values if value is not None]
        mean = sum(there) / len(there) if there else None
        assert newest[key] == (len(values), len(there), sum(there) if there else None, mean)


def test_what_is_no_number_and_what_is_large_can_be_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    """Not-a-number, the infinities, and whole numbers whose sum no long can hold, over a restart."""
    nan, inf, large = math.nan, math.inf, 2**62
    given = {"a": (nan, large), "b": (inf, large), "c": (-inf, large), "d": (2.5, 3), "e": (None, None)}

    def build(p: Pipeline, job: FedJob) -> None:
        events = job.source(p, "events", "row_kind string, v double, w long")
        sums = {"n": F.count("*"), "v": F.sum("v"), "mean": F.avg("v"), "whole": F.avg("w")}
        job.collect("out", events.aggregate("sums", keys=[], aggregates=sums, changelog=True))

    def compared() -> None:
        """The same as of the rows that are left, as Spark batch says."""
        rows = spark.createDataFrame(left, "v double, w long")
        whole = rows.agg(F.count("*"), F.sum("v"), F.avg("v"), F.avg("w")).collect()
        assert repr(ordered(job.exact("out")[-1:])) == repr(ordered(whole))

    job, left = FedJob(spark, build, tmp_path), list(given.values())
    job.start()
    job.feed("events", [("+I", *row) for row in given.values()])
    job.checkpoint()
    compared()
    for gone in ("a", "b", "c", "d"):
        left.remove(given[gone])
        job.lose_driver()
        job.feed("events", [("-D", *given[gone])])
        job.checkpoint()
        compared()


def sums_of(spark: SparkSession, directory: Path, kind: str, batches: list[Rows]) -> Rows:
    """The sum and the average after each batch of a changelog."""

    def build(p: Pipeline, job: FedJob) -> None:
        events = job.source(p, "events", f"row_kind string, v {kind}")
        sums = {"v": F.sum("v"), "mean": F.avg("v")}
        job.collect("out", events.aggregate("sums", keys=[], aggregates=sums, changelog=True))

    job = FedJob(spark, build, directory)
    job.start()
    for batch in batches:
        job.feed("events", batch)
    job.finish()
    return job.exact("out")


def test_no_remainder_stays_of_a_group_without_values(spark: SparkSession, tmp_path: Path) -> None:
    """1e16 and 1 add up to 1e16: when both are taken back, -1 is left of them."""
    changes = [("+I", 1e16), ("+I", 1.0), ("-D", 1e16), ("-D", 1.0)]
    results = sums_of(spark, tmp_path, "double", [[one] for one in (*changes, ("+I", 5.0))])
    assert results[3:] == [(None, None), (5.0, 5.0)]


def test_values_that_are_gone_leave_nothing_where_rows_are_left(spark: SparkSession, tmp_path: Path) -> None:
    changes = [("+I", None), ("+I", 1e16), ("+I", 1.0), ("-D", 1e16), ("-D", 1.0), ("+I", 5.0)]
    assert sums_of(spark, tmp_path, "double", [[one] for one in changes])[-1] == (5.0, 5.0)


def test_the_smallest_whole_number_can_be_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    smallest = -(2**63)
    results = sums_of(spark, tmp_path, "bigint", [[("+I", smallest), ("+I", None)], [("-D", smallest), ("+I", 7)]])
    assert results == [(smallest, float(smallest)), (7, 7.0)]


def test_a_sum_that_no_long_can_hold_is_an_error_as_in_batch(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="OVERFLOW"):
        sums_of(spark, tmp_path, "bigint", [[("+I", 2**62), ("+I", 2**62)]])


def test_sums_of_longs_of_an_earlier_version_go_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(p: Pipeline, job: FedJob) -> None:
        events = job.source(p, "events", "row_kind string, v bigint")
        job.collect("out", events.aggregate("sums", keys=[], aggregates={"v": F.sum("v")}, changelog=True))

    job = FedJob(spark, build, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(aggregates, "LongType", ShortType)  # it kept them as longs
        job.start()
        job.feed("events", [("+I", 3), ("+I", 4)])
        job.checkpoint()
    job.lose_driver()
    job.feed("events", [("-D", 3)])
    job.finish()
    assert job.exact("out") == [(7,), (4,)]


def test_a_row_kind_that_nobody_knows_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def build(p: Pipeline, job: FedJob) -> None:
        outside = job.source(p, "events", "row_kind string, k string")
        job.collect("out", outside.aggregate("n", keys=["k"], aggregates={"n": F.count("*")}, changelog=True))

    job = FedJob(spark, build, tmp_path)
    job.start()
    with pytest.raises(Exception, match=r"operator 'n' failed: .*row_kind is U, and not \+I, -U, \+U or -D"):
        job.feed("events", [("+I", "a"), ("U", "a")])
    job.crash()


def test_one_partition_is_enough(spark: SparkSession, tmp_path: Path) -> None:
    """Joined rows are in one partition by their key, which to Spark is not what a partition of everything is."""

    def build(p: Pipeline, job: FedJob) -> None:
        left = job.source(p, "left", "k string, v long, ts timestamp", event_time="ts", delay=10)
        right = job.source(p, "right", "k string, w long, seen timestamp", event_time="seen", delay=10)
        both = left.join("join", right, keys=["k"], within=(-5, 5))
        job.collect("out", both.aggregate("totals", keys=["w"], aggregates={"n": F.count("*"), "v": F.max("v")}))

    job = FedJob(spark, build, tmp_path)
    try:
        job.start()
        job.feed("left", [("a", 1, at(1)), ("b", 2, at(1))])
        job.feed("right", [("a", 1, at(1)), ("b", 2, at(1))])
        job.checkpoint()
        job.lose_driver(1)
        job.feed("right", [("a", 1, at(2)), ("b", 2, at(2))])
        job.finish()
    finally:
        spark.conf.set(PARTITIONS, "2")
    assert [max(row[1] for row in job.rows("out") if row[0] == key) for key in (1, 2)] == [2, 2]
