"""Keyed functions with state and timers, against plain Python over the same batches, lost drivers and other numbers of
partitions."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import KeyContext, KeyedFunction, Pipeline, StateSpec, Timer, list_state, map_state, value_state
from epochal.operators import apply_in_arrow
from epochal.operators.versions import reached
from epochal.protocol.control import EXIT_MISCONFIGURED
from epochal.runtime.state import tables
from tests.runtime.streaming import FedJob, Rows, at, batches_of, ordered
from tests.support.depth import DEEP
from tests.support.local_job import LocalJob
from tests.support.small import compiling

DELAY = 4
SCHEMA = "user string, what string, second long, n long, text string"


def second_of(moment: datetime) -> int:
    return round(moment.timestamp() - at(0).timestamp())


class Visits(KeyedFunction):
    """Collects a user's visits and tells of them every ten seconds; forgets the user after five."""

    def process(self, key: Any, rows: pa.Table, ctx: KeyContext) -> Iterator[Any]:
        (user,) = key
        for row in rows.to_pylist():
            if ctx.watermark is not None and row["at"] < ctx.watermark:
                yield {"user": user, "what": "late", "second": second_of(row["at"]), "n": row["amount"]}
                continue
            visits = ctx.value("visits")
            visits.update(visits.get(0) + 1)
            ctx.list("amounts").append(row["amount"])
            places = ctx.map("places")
            places[row["place"]] = places.get(row["place"], 0) + 1
            end = row["at"] + timedelta(seconds=10 - second_of(row["at"]) % 10)
            if row["amount"] == 7:
                ctx.delete_timer(end)
            else:
                ctx.register_timer(end)

    def on_timer(self, key: Any, timer: Timer, ctx: KeyContext) -> pa.Table:
        text = " ".join(f"{place}:{n}" for place, n in sorted(ctx.map("places").items()))
        row = {"what": "told", "second": second_of(timer.at), "n": sum(ctx.list("amounts")), "text": text}
        if ctx.value("visits").get() >= 5:
            ctx.clear()
        return pa.Table.from_pylist([{"user": key[0], **row}])


VISITS: dict[str, StateSpec] = {
    "visits": value_state("int"),
    "amounts": list_state("int"),
    "places": map_state("string", "int", ttl="1000 days"),
}


def expected(batches: list[Rows]) -> Rows:
    """The same in plain Python. Times are seconds."""
    out: Rows = []
    users: dict[str, dict[str, Any]] = {}
    watermark = newest = -1
    for batch in [*batches, None]:
        for user, second, amount, place in sorted(batch or [], key=lambda row: row[1]):
            newest = max(newest, second)
            if second < watermark:
                out.append((user, "late", second, amount, None))
                continue
            kept = users.setdefault(user, {"amounts": [], "places": [], "timers": set()})
            kept["amounts"].append(amount)
            kept["places"].append(place)
            kept["timers"].add(second - second % 10 + 10)
            if amount == 7:
                kept["timers"].discard(second - second % 10 + 10)
        watermark = 10**9 if batch is None else max(watermark, newest - DELAY)
        for user, kept in users.items():
            for timer in sorted(kept["timers"]):
                if timer <= watermark and kept["amounts"]:
                    places = kept["places"]
                    text = " ".join(f"{place}:{places.count(place)}" for place in sorted(set(places)))
                    out.append((user, "told", timer, sum(kept["amounts"]), text))
                    kept["timers"].discard(timer)
                    if len(kept["amounts"]) >= 5:
                        kept["amounts"], kept["places"], kept["timers"] = [], [], set()
    return out


@pytest.mark.parametrize("seed", range(2 if DEEP else 1))
def test_a_keyed_function_equals_plain_python(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(tables, "MERGE_AT", 3)
    chance = random.Random(seed)
    plain = [
        (
            chance.choice("abcdef"),
            max(0, number // 2 - chance.choice([0, 1, 3, 9])),
            chance.randrange(9),
            f"p{number % 3}",
        )
        for number in range(120)
    ]

    def build(p: Pipeline, job: FedJob) -> None:
        schema = "user string, at timestamp, amount int, place string"
        rows = job.source(p, "rows", schema, event_time="at", delay=DELAY)
        job.collect("out", rows.apply_in_arrow("visits", Visits, keys=["user"], schema=SCHEMA, state=VISITS))

    job = FedJob(spark, build, tmp_path)
    timed = [(user, at(second), amount, place) for user, second, amount, place in plain]
    job.play({"rows": batches_of(timed, chance, most=24)}, chance)
    fed = [[(user, second_of(when), *rest) for user, when, *rest in batch] for _, batch in job.fed]  # type: ignore[union-attr]
    assert job.rows("out") == ordered(expected(fed))
    assert {row[1] for row in job.rows("out")} == {"late", "told"}


def test_a_batch_is_one_job_and_no_plan_has_the_time_in_its_code(spark: SparkSession, tmp_path: Path) -> None:
    def build(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", "user string, at timestamp, amount int, place string", event_time="at")
        job.collect("out", rows.apply_in_arrow("visits", Visits, keys=["user"], schema=SCHEMA, state=VISITS))

    job = FedJob(spark, build, tmp_path)
    job.start()
    job.feed("rows", [("a", at(1), 1, "p"), ("b", at(2), 1, "p")])
    jobs = _jobs(spark)
    job.feed("rows", [("a", at(3), 1, "p"), ("c", at(4), 1, "p")])  # no timer is due
    assert _jobs(spark) - jobs == 2  # the function's, and the sink's
    job.crash()
    assert _code(spark, 1_767_225_600_000_000) == _code(spark, 1_767_225_601_234_567)


def _jobs(spark: SparkSession) -> int:
    return int(spark._jsc.sc().dagScheduler().nextJobId())


def _code(spark: SparkSession, until: int) -> list[str]:
    with compiling(spark):
        frame = spark.range(10).where(reached(F.col("id"), until))
        plans = frame._jdf.queryExecution().debug().codegenToSeq()
        assert plans.size() > 0
        return [plans.apply(index)._2() for index in range(plans.size())]


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000

    def __call__(self) -> int:
        return self.seconds * 1_000_000


def test_timers_by_the_clock_state_that_expires_and_state_that_is_declared_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(apply_in_arrow, "now_micros", clock)
    state = {"seen": value_state("long", ttl="10 seconds"), "old": value_state("long")}

    def process(key: Any, rows: pa.Table, ctx: KeyContext) -> dict[str, Any]:
        ctx.register_timer(ctx.now + timedelta(seconds=5), kind="processing")
        for name in ("seen", *(["new"] if "new" in state else [])):
            ctx.value(name).update(ctx.value(name).get(0) + rows.num_rows)
        return {"k": key[0], "what": "rows", "n": ctx.value("seen").get()}

    def on_timer(key: Any, timer: Timer, ctx: KeyContext) -> dict[str, Any]:
        new = ctx.value("new").get(0) if "new" in state else None
        return {"k": key[0], "what": f"{timer.kind} {new}", "n": ctx.value("seen").get()}

    def build(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", "k long")
        counted = rows.apply_in_arrow(
            "count", process, keys=["k"], schema="k long, what string, n long", state=state, on_timer=on_timer
        )
        job.collect("out", counted)

    job = FedJob(spark, build, tmp_path)
    job.start()
    job.feed("rows", [(1,), (1,), (2,)])
    clock.seconds += 4
    job._source_task("rows").tick()  # nothing is due
    clock.seconds += 1
    job._source_task("rows").tick()
    job.checkpoint()
    state["new"] = value_state("long")
    del state["old"]
    assert job.lose_driver() == []
    clock.seconds += 6  # the count is gone, by its ttl
    job.feed("rows", [(1,)])
    job.checkpoint()
    job.crash()
    clock.seconds += 5
    job.start()
    job.feed("rows", [])  # a batch is as good as a tick
    job.checkpoint()
    assert job.rows("out") == ordered(
        [
            (1, "rows", 2), (2, "rows", 1), (1, "processing None", 2), (2, "processing None", 1),
            (1, "rows", 1), (1, "processing 1", 1),
        ]
    )  # fmt: skip
    job.crash()
    state["new"] = value_state("string")
    engine = LocalJob.start(job)
    assert engine.exit_code == EXIT_MISCONFIGURED
    assert "state 'new' is struct<value:string,expires:bigint> now, and the restored epoch has it" in (
        engine.status().message
    )


def test_a_function_that_gives_something_else_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def build(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", "k long")
        wrong = rows.apply_in_arrow("wrong", lambda *_: {"m": 1}, keys=["k"], schema="n long")
        job.collect("out", wrong)

    job = FedJob(spark, build, tmp_path)
    job.start()
    with pytest.raises(Exception, match=r"operator 'wrong' failed: a row has the columns 'm'; the schema has n"):
        job.feed("rows", [(1,)])
    job.crash()
