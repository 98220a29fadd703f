"""A job that came to its end and is run again with more input: the same result as one run over all of it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal import KeyContext, Pipeline, Stream, Timer, value_state
from epochal.protocol.control import CheckpointState
from epochal.runtime.dataflow.checkpoint_attempt import EpochRun
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.state.table_manager import TableSnapshot
from tests.runtime.streaming import FedJob, Rows, at, ordered
from tests.support.local_job import LocalJob

LEFT, RIGHT = "id long, k string, v long, at timestamp", "rid long, k string, seen timestamp"
DELAY = 5


def seen_so_far(key: tuple[Any, ...], rows: pa.Table, ctx: KeyContext) -> Iterator[dict[str, Any]]:
    count = ctx.value("n")
    count.update(count.get(0) + rows.num_rows)
    ctx.register_timer(max(rows["at"].to_pylist()))
    yield {"k": key[0], "n": count.get(), "timer": False}


def timer(key: tuple[Any, ...], timer: Timer, ctx: KeyContext) -> Iterator[dict[str, Any]]:
    yield {"k": key[0], "n": timer.at.second, "timer": True}


def build(p: Pipeline, job: FedJob) -> None:
    """Every operator that keeps state, or that waits for a watermark."""

    def written(name: str, stream: Stream) -> None:
        stream.to_parquet(name, str(job.directory / "out" / name))

    left = job.source(p, "left", LEFT, event_time="at", delay=DELAY)
    right = job.source(p, "right", RIGHT, event_time="seen", delay=DELAY)
    counts = {"n": F.count("*"), "total": F.sum("v")}
    windows = left.window("counts", size=10, keys=["k"], aggregates=counts)
    written("windows", windows)
    written("late", windows.late)
    # With types that the store knows by other names.
    kinds = {
        "days": F.expr("make_dt_interval(cast(n AS int))").cast("interval day"),
        "text": F.expr("k COLLATE UTF8_LCASE"),
    }
    job.collect("to_function", windows.transform("kinds", lambda rows: rows.withColumns(kinds)))
    written("top", windows.top_n("best", n=1, order_by=[F.col("total").desc()]))
    written("sliding", left.window("sliding_counts", size=10, slide=4, aggregates=counts))
    written("sessions", left.session_window("sittings", gap=4, keys=["k"], aggregates=counts))
    written("inner", left.join("inner_join", right, keys=["k"], within=4))
    written("full", left.join("full_join", right, keys=["k"], within=4, how="full"))
    written("same", left.window_join("same_window", right, size=10, keys=["k"], how="left"))
    written("once", left.deduplicate("dedup", keys=["k", "v"], within=20))
    written("totals", left.aggregate("sums", keys=["k"], aggregates=counts))
    written("running", left.running_top_n("running_best", n=2, order_by=[F.col("v").desc()], keys=["k"]))
    function = left.apply_in_arrow(
        "function",
        seen_so_far,
        keys=["k"],
        schema="k string, n long, timer boolean",
        state={"n": value_state("long")},
        on_timer=timer,
    )
    written("functions", function)
    both = left.transform("short", lambda rows: rows.select("k", "at")).union(
        "both", right.transform("renamed", lambda rows: rows.select("k", F.col("seen").alias("at")))
    )
    written("union", both.window("of_both", size=10, aggregates={"n": F.count("*")}))


def rows(since: int, until: int) -> dict[str, Rows]:
    left: Rows = [(number, "ab"[number % 2], number % 7, at(number)) for number in range(since, until)]
    right: Rows = [(number, "ab"[number // 2 % 2], at(number)) for number in range(since, until, 2)]
    return {"left": left, "right": right}


def played(spark: SparkSession, directory: Path, parts: list[dict[str, Rows]], *, ends: bool) -> FedJob:
    directory.mkdir()
    job = FedJob(spark, build, directory)
    job.start()
    for number, part in enumerate(parts):
        for name, batch in part.items():
            job.feed(name, batch)
        if ends and number < len(parts) - 1:
            job.finish()
            job.start()
    job.finish()
    return job


def written_by(job: FedJob) -> dict[str, Counter[tuple[Any, ...]]]:
    """By sink, the rows of its files."""
    return {
        directory.name: Counter(
            tuple(row.values()) for file in directory.glob("*.parquet") for row in pq.read_table(file).to_pylist()
        )
        for directory in (job.directory / "out").iterdir()
    }


def test_an_end_and_more_input_are_the_same_as_one_run(spark: SparkSession, tmp_path: Path) -> None:
    """Windows that were open at the first end go on; those that were closed by it and got no more rows stay."""
    more = rows(18, 40)
    parts = [rows(0, 18), {"left": [row for row in more["left"] if row[1] == "a"], "right": more["right"]}]
    one, again = (played(spark, tmp_path / str(ends), parts, ends=ends) for ends in (False, True))
    assert written_by(again) == written_by(one)
    assert written_by(one)["late"] == Counter()
    # A function cannot take back what it was given because the input had ended: what is the same does not come again.
    whole, found = Counter(one.rows("to_function")), Counter(again.rows("to_function"))
    assert whole - found == Counter()
    early = Counter(again.of_epoch("to_function", 1))
    assert found - whole == early - whole != Counter()
    assert early & whole != Counter()


class MayNot(SinkOperator):
    """Says that it can take back, and finds out when it is opened that it may not."""

    can_take_back = True

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def open(self, ctx: OperatorContext) -> None:
        self.can_take_back = False

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        self._rows += [] if frame is None else [tuple(row) for row in frame.collect()]

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        raise AssertionError("it has said that it cannot")


def test_a_sink_that_cannot_take_back_after_all_gets_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    """As PostgreSQL, where the user may not create the table that says what each epoch added."""
    found: Rows = []

    def windows(p: Pipeline, job: FedJob) -> None:
        left = job.source(p, "left", LEFT, event_time="at", delay=DELAY)
        left.window("counts", size=10, aggregates={"n": F.count("*")}).to("out", MayNot(found))

    job = FedJob(spark, windows, tmp_path)
    job.start()
    job.feed("left", rows(0, 12)["left"])
    job.finish()
    for _ in range(2):
        job.start()
        job.finish()
    assert ordered(found) == [(at(0), at(10), 10), (at(10), at(20), 2)]


def test_an_end_whose_epoch_failed_is_made_again_with_the_same_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was open has come out by then: the state that is stored is the one before that, the rows are the same."""

    def windows(p: Pipeline, job: FedJob) -> None:
        left = job.source(p, "left", LEFT, event_time="at", delay=DELAY)
        job.collect("out", left.window("counts", size=10, aggregates={"n": F.count("*")}))

    job = FedJob(spark, windows, tmp_path)
    job.start()
    job.feed("left", rows(0, 12)["left"])
    for task in job._source_tasks():
        task._end()
    failing = OSError("no room")

    def fail(run: EpochRun, operator: str, table: str, snapshot: TableSnapshot) -> int:
        if table == "at_end":
            raise failing
        return 0

    assert job.engine is not None
    assert job.engine._checkpointer is not None
    with monkeypatch.context() as patched:
        patched.setattr(job.engine._checkpointer, "_write_table", fail)
        failed = LocalJob.checkpoint(job, then_stop=True)
    assert (failed.state, "no room" in failed.message) == (CheckpointState.FAILED, True)
    job.finish()
    assert job.rows("out") == [(at(0), at(10), 10), (at(10), at(20), 2)]
    job.start()
    job.feed("left", rows(12, 13)["left"])
    job.finish()
    assert job.rows("out") == [(at(0), at(10), 10), (at(10), at(20), 2), (at(10), at(20), 3)]
