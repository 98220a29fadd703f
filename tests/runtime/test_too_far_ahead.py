"""Rows whose event time is far ahead of the clock: a clock that is wrong, or milliseconds taken for seconds."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from tests.runtime.streaming import FedJob, at

ROWS, OTHERS = "k string, at timestamp", "k string, seen timestamp"

FAR = datetime.now(UTC).replace(microsecond=0) + timedelta(days=400)
"""To Spark and back it is in local time, without a zone."""


def build(p: Pipeline, job: FedJob) -> None:
    rows = job.source(p, "rows", ROWS, event_time="at")
    others = job.source(p, "others", OTHERS, event_time="seen")
    windows = rows.window("windows", size=10, keys=["k"], aggregates={"n": F.count("*")})
    sessions = rows.session_window("sessions", gap=5, aggregates={"n": F.count("*")})
    join = rows.join("join", others, keys=["k"], within=5, how="left")
    both = rows.window_join("both", others, size=10, keys=["k"])
    for name, stream in {"windows": windows, "sessions": sessions, "join": join, "both": both}.items():
        job.collect(f"{name}_out", stream)
    for name, late in {"windows": windows.late, "sessions": sessions.late, "join": join.late[0]}.items():
        job.collect(f"{name}_late", late)
    job.collect("both_late", both.late[0])


def test_a_row_from_the_future_makes_no_other_row_late(spark: SparkSession, tmp_path: Path) -> None:
    job = FedJob(spark, build, tmp_path)
    job.start()
    far = FAR.astimezone().replace(tzinfo=None)
    job.feed("rows", [("a", at(1)), ("a", far)])
    job.feed("others", [("a", at(2))])
    job.checkpoint()
    job.lose_driver()
    # The watermark of the rows that are known: this one is not late.
    job.feed("rows", [("a", at(3)), ("a", at(20))])
    job.feed("others", [("a", at(21))])
    assert job.engine is not None
    job.finish()
    assert job.rows("windows_out") == [(at(0), at(10), "a", 2), (at(20), at(30), "a", 1)]
    assert job.rows("sessions_out") == [(at(1), at(8), 2), (at(20), at(25), 1)]
    assert job.rows("join_out") == [
        ("a", at(1), at(2)),
        ("a", at(20), at(21)),
        ("a", at(3), at(2)),
    ]
    assert [row[:4] for row in job.rows("both_out")] == [
        (at(0), at(10), "a", at(1)),
        (at(0), at(10), "a", at(3)),
        (at(20), at(30), "a", at(20)),
    ]
    for name in ("windows", "sessions", "join", "both"):
        assert job.rows(f"{name}_late") == [("a", far)], name


def test_any_time_is_believed_if_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    def believing(p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", ROWS, event_time="at", max_ahead=None)
        job.collect("out", rows.window("windows", size="1 day", aggregates={"n": F.count("*")}))

    job = FedJob(spark, believing, tmp_path)
    job.start()
    job.feed("rows", [("a", FAR.astimezone().replace(tzinfo=None))])
    job.finish()
    assert [row[2] for row in job.rows("out")] == [1]
