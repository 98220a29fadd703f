"""Pipelines that cannot work are refused before anything starts, with a message that names the operator."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal.pipeline import Pipeline, Stream
from epochal.protocol.control import StorageConfig
from epochal.protocol.errors import InvalidNameError
from epochal.runtime.errors import PipelineError
from tests.runtime.bad_data import SCHEMA, Files


def rows(p: Pipeline, name: str = "rows") -> Stream:
    return p.source(name, p.spark.readStream.schema(SCHEMA).json(p.parameters["in"]), event_time="at")


def plain(p: Pipeline, name: str = "plain") -> Stream:
    return p.source(name, p.spark.readStream.schema(SCHEMA).json(p.parameters["in"]))


def out(stream: Stream, name: str = "out") -> None:
    stream.for_each_epoch(name, lambda *_: None)


def n() -> dict[str, object]:
    return {"n": F.count("*")}


def another(p: Pipeline) -> Pipeline:
    return Pipeline(p.spark, StorageConfig(uri="memory://"), p.parameters)


MISTAKES: dict[str, tuple[Callable[[Pipeline], object], str]] = {
    "nothing": (lambda _: None, "the pipeline is empty"),
    "dangling": (lambda p: rows(p).transform("lost", lambda f: f), "operator 'lost' leads nowhere"),
    "dangling source": (lambda p: rows(p), "operator 'rows' leads nowhere"),
    "two of one name": (lambda p: out(rows(p).transform("rows", lambda f: f)), "two operators are named 'rows'"),
    "no event time": (
        lambda p: plain(p).window("w", size="1 minute", aggregates=n()),  # type: ignore[arg-type]
        "operator 'w' works on event time, and 'plain' has none",
    ),
    "no such event time": (
        lambda p: p.source("s", p.spark.readStream.schema(SCHEMA).json(p.parameters["in"]), event_time="when"),
        "source 's' has no column 'when'; it has id, at",
    ),
    "event time of another type": (
        lambda p: p.source("s", p.spark.readStream.schema(SCHEMA).json(p.parameters["in"]), event_time="id"),
        "event time 'id' must be a timestamp, not long",
    ),
    "wrong column": (lambda p: out(rows(p).transform("t", lambda f: f.select("nope"))), "operator 't': .*nope"),
    "wrong key": (
        lambda p: out(rows(p).aggregate("a", keys=["nope"], aggregates=n())),  # type: ignore[arg-type]
        "operator 'a': .*nope",
    ),
    "no DataFrame": (lambda p: out(rows(p).transform("t", lambda _: 1)), "must return a DataFrame, not int"),  # type: ignore[arg-type,return-value]
    "another pipeline's stream": (
        lambda p: out(rows(p).union("u", rows(another(p), "other"))),
        "operator 'u' reads from 'other', which is not in this pipeline",
    ),
    "no stream": (
        lambda p: p.source("s", p.spark.read.schema(SCHEMA).json(p.parameters["in"])),
        "source 's' is no stream: use p.spark.readStream instead of read",
    ),
    "bad duration": (
        lambda p: rows(p).window("w", size="soon", aggregates=n()),  # type: ignore[arg-type]
        "'soon' is no duration",
    ),
    "empty duration": (
        lambda p: rows(p).window("w", size="", aggregates=n()),  # type: ignore[arg-type]
        "an empty string is no duration",
    ),
    "slide past size": (
        lambda p: rows(p).window("w", size="1 s", slide="2 s", aggregates=n()),  # type: ignore[arg-type]
        "a window needs 0 < slide <= size",
    ),
    "empty interval": (
        lambda p: rows(p).join("j", rows(p, "b"), keys=["id"], within=("2 s", "1 s")),
        "within = \\(2 s, 1 s\\) is empty",
    ),
    "join without keys": (lambda p: rows(p).join("j", rows(p, "b"), keys=[], within="1 s"), "at least one key"),
    "join with the same column": (
        lambda p: out(rows(p).join("j", rows(p, "b"), keys=["id"], within="1 s")),
        "both sides have the columns at",
    ),
    "no aggregates": (lambda p: rows(p).aggregate("a", keys=["id"], aggregates={}), "give at least one aggregate"),
    "aggregate of text": (
        lambda p: rows(p).aggregate("a", keys=["id"], aggregates={"n": "count"}),  # type: ignore[dict-item]
        "aggregate 'n' must be a Column",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_before_the_start(spark: SparkSession, tmp_path: Path, mistake: str) -> None:
    describe, message = MISTAKES[mistake]
    Files(tmp_path / "in").add(1)
    pipeline = Pipeline(spark, StorageConfig(uri="memory://"), {"in": str(tmp_path / "in")})

    def all_of_it() -> None:
        describe(pipeline)
        pipeline.graph.check(spark)

    with pytest.raises(PipelineError, match=message):
        all_of_it()


@pytest.mark.parametrize("name", ["", "Has Spaces", "a/b", "..", "x" * 200])
def test_a_bad_name_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    Files(tmp_path / "in").add(1)
    pipeline = Pipeline(spark, StorageConfig(uri="memory://"), {"in": str(tmp_path / "in")})
    with pytest.raises(InvalidNameError, match=r"operator name '.*' is not allowed: use 1 to 63 of a-z"):
        rows(pipeline, name)
