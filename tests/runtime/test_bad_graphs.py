"""Pipelines that cannot work are refused before anything starts, with a message that names the operator."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import KeyedFunction, Pipeline, Stream, map_state, value_state
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


def texts(p: Pipeline) -> Stream:
    return rows(p, "texts").transform(
        "as_text", lambda f: f.select(F.col("id").cast("string").alias("id"), F.col("at").alias("b")), event_time="b"
    )


def ranked(p: Pipeline) -> Stream:
    return rows(p).transform("ranked", lambda f: f.withColumn("rank", F.lit(1)))


def another(p: Pipeline) -> Pipeline:
    return Pipeline(p.spark, StorageConfig(uri="memory://"), p.parameters)


def keyed(p: Pipeline, function: Any = lambda *_: None, **options: Any) -> Stream:
    return rows(p).apply_in_arrow("k", function, **({"keys": ["id"], "schema": "id long"} | options))


def enriched(p: Pipeline, function: Any = lambda _: None, **options: Any) -> Stream:
    return rows(p).enrich_async("e", function, **({"schema": "x long"} | options))


def changes(p: Pipeline) -> Stream:
    return rows(p).aggregate("c", keys=["id"], aggregates=n(), retractions=True)  # type: ignore[arg-type]


class NoProcess(KeyedFunction):
    """Forgot something."""


class WithArguments(KeyedFunction):
    def __init__(self, model: str) -> None:
        self.model = model

    def process(self, key: Any, rows: Any, ctx: Any) -> None:
        """Does nothing."""


MISTAKES: dict[str, tuple[Callable[[Pipeline], object], str]] = {
    "nothing": (lambda _: None, "the pipeline is empty"),
    "dangling": (lambda p: rows(p).transform("lost", lambda f: f), "operator 'lost' leads nowhere"),
    "dangling source": (lambda p: rows(p), "operator 'rows' leads nowhere"),
    "two of one name": (lambda p: out(rows(p).transform("rows", lambda f: f)), "two operators are named 'rows'"),
    "no event time": (
        lambda p: plain(p).window("w", size="1 minute", aggregates=n()),  # type: ignore[arg-type]
        "operator 'w' works on event time, and 'plain' has none",
    ),
    "event time without a watermark": (
        lambda p: (
            plain(p).transform("named", lambda f: f, event_time="at").window("w", size="1 minute", aggregates=n())  # type: ignore[arg-type]
        ),
        "operator 'w' waits for a watermark, and its input 'named' can never have one: rows come from source 'plain'",
    ),
    "union with a stream without event time": (
        lambda p: rows(p).union("all", plain(p)).deduplicate("d", keys=["id"]),
        "operator 'd' waits for a watermark, and its input 'all' can never have one: rows come from source 'plain'",
    ),
    "join with a stream that is only named": (
        lambda p: rows(p).join("j", plain(p).sql("s", "FROM {input}", event_time="at"), keys=["id"], within="1 minute"),
        "operator 'j' waits for a watermark, and its input 's' can never have one: rows come from source 'plain'",
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
    "key with a collation": (
        lambda p: out(
            rows(p)
            .transform("names", lambda f: f.select(F.col("id").cast("string collate UTF8_LCASE").alias("id")))
            .aggregate("a", keys=["id"], aggregates=n())  # type: ignore[arg-type]
        ),
        r"key 'id' is a string collate UTF8_LCASE.*such as lower\(id\)",
    ),
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
        "source 's' is not a stream: use p.spark.readStream instead of read",
    ),
    "bad duration": (
        lambda p: rows(p).window("w", size="soon", aggregates=n()),  # type: ignore[arg-type]
        "'soon' is not a duration",
    ),
    "empty duration": (
        lambda p: rows(p).window("w", size="", aggregates=n()),  # type: ignore[arg-type]
        "an empty string is not a duration",
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
    "join of a kind that is none": (
        lambda p: rows(p).join("j", rows(p, "b"), keys=["id"], within="1 s", how="outer"),
        "operator 'j': how must be one of inner, left, right, full, not 'outer'",
    ),
    "join without event time": (
        lambda p: rows(p).join("j", plain(p), keys=["id"], within="1 s"),
        "operator 'j' works on event time, and 'plain' has none",
    ),
    "join of a column that is not there": (
        lambda p: out(rows(p).join("j", rows(p, "b"), keys=["nope"], within="1 s")),
        "operator 'j': the left stream has no column 'nope'; it has id, at",
    ),
    "keys of other types": (
        lambda p: out(rows(p).join("j", texts(p), keys=["id"], within="1 s")),
        "operator 'j': key 'id' is bigint in the left stream and string in the right stream: cast one of them",
    ),
    "keys as text": (
        lambda p: rows(p).deduplicate("d", keys="id"),
        "operator 'd': keys must be a list of columns: \\['id'\\]",
    ),
    "windowed join of a kind that is none": (
        lambda p: rows(p).window_join("j", rows(p, "b"), size="1 s", keys=["id"], how="semi"),
        "operator 'j': how must be one of inner, left, right, full, not 'semi'",
    ),
    "windowed join with a slide past its size": (
        lambda p: rows(p).window_join("j", rows(p, "b"), size="1 s", slide="2 s", keys=["id"]),
        "operator 'j': a window needs 0 < slide <= size",
    ),
    "windowed join with the same column": (
        lambda p: out(rows(p).window_join("j", rows(p, "b"), size="1 s", keys=["id"])),
        "operator 'j': both sides have the columns at",
    ),
    "sessions without a gap": (
        lambda p: rows(p).session_window("s", gap=0, keys=["id"], aggregates=n()),  # type: ignore[arg-type]
        "operator 's': gap must be positive, not 0",
    ),
    "sessions without event time": (
        lambda p: plain(p).session_window("s", gap="1 s", keys=["id"], aggregates=n()),  # type: ignore[arg-type]
        "operator 's' works on event time, and 'plain' has none",
    ),
    "sessions of a column that is not there": (
        lambda p: out(rows(p).session_window("s", gap="1 s", keys=["nope"], aggregates=n())),  # type: ignore[arg-type]
        "operator 's': the stream has no column 'nope'; it has id, at",
    ),
    "deduplication without keys": (
        lambda p: rows(p).deduplicate("d", keys=[]),
        "a deduplication needs at least one key",
    ),
    "deduplication within less than nothing": (
        lambda p: rows(p).deduplicate("d", keys=["id"], within="-1 s"),
        "operator 'd': within must not be negative, but is -1 s",
    ),
    "deduplication by a column that is not there": (
        lambda p: out(rows(p).deduplicate("d", keys=["nope"])),
        "operator 'd': the stream has no column 'nope'; it has id, at",
    ),
    "the first none": (
        lambda p: rows(p).top_n("t", n=0, order_by=[F.col("id")]),
        "operator 't': n must be a whole number from 1, not 0",
    ),
    "the first in no order": (
        lambda p: rows(p).running_top_n("t", n=1, order_by=["id"], keys=["id"]),  # type: ignore[list-item]
        "operator 't': give order_by as Spark columns, for example",
    ),
    "the first by a column that is not there": (
        lambda p: out(rows(p).top_n("t", n=1, order_by=[F.col("nope")])),
        "operator 't': .*nope",
    ),
    "the first per a column that is not there": (
        lambda p: out(rows(p).top_n("t", n=1, order_by=[F.col("id")], per=["nope"])),
        "operator 't': the stream has no column 'nope'; it has id, at",
    ),
    "a rank beside a rank": (
        lambda p: out(ranked(p).running_top_n("t", n=1, order_by=[F.col("id")], keys=["id"])),
        "operator 't': the stream has a column 'rank' already",
    ),
    "lookup in a stream": (
        lambda p: out(rows(p).lookup("l", p.spark.readStream.schema(SCHEMA).json(p.parameters["in"]), keys=["id"])),
        "operator 'l': the table is a stream: use spark.read",
    ),
    "lookup in nothing": (
        lambda p: rows(p).lookup("l", "names", keys=["id"]),  # type: ignore[arg-type]
        "operator 'l': table must be a DataFrame or a function of the session, not str",
    ),
    "lookup of a kind that is none": (
        lambda p: rows(p).lookup("l", lambda s: s.range(1), keys=["id"], how="full"),
        "operator 'l': how must be one of inner, left, not 'full'",
    ),
    "lookup by a column that the table has not": (
        lambda p: out(rows(p).lookup("l", lambda s: s.range(1).toDF("number"), keys=["id"])),
        "operator 'l': the table has no column 'id'; it has number",
    ),
    "lookup again at once": (
        lambda p: rows(p).lookup("l", lambda s: s.range(1), keys=["id"], refresh=0),
        "operator 'l': refresh must be positive, not 0",
    ),
    "split by text": (
        lambda p: rows(p).split("s", "id > 1"),  # type: ignore[arg-type]
        "operator 's': give condition as Spark columns",
    ),
    "split by a column that is not there": (
        lambda p: out(rows(p).split("s", F.col("nope") > 1)[0]),
        "operator 's': .*nope",
    ),
    "no aggregates": (lambda p: rows(p).aggregate("a", keys=["id"], aggregates={}), "give at least one aggregate"),
    "aggregate of text": (
        lambda p: rows(p).aggregate("a", keys=["id"], aggregates={"n": "count"}),  # type: ignore[dict-item]
        "aggregate 'n' must be a Column",
    ),
    "a sink that nobody knows": (
        lambda p: rows(p).to_parquet("out", "ftp://somewhere"),
        "operator 'out': ftp://somewhere: is not a supported store",
    ),
    "a sink's endpoint": (
        lambda p: rows(p).to_parquet("out", "s3://bucket/out", endpoint="somewhere"),
        "operator 'out': .*endpoint 'somewhere' must begin with http:// or https://",
    ),
    "keyed without keys": (lambda p: keyed(p, keys=[]), "operator 'k': give at least one key"),
    "keyed by a wrong column": (lambda p: out(keyed(p, keys=["nope"])), "operator 'k': .*nope"),
    "keyed by nothing to call": (lambda p: keyed(p, 1), r"a function of \(key, rows, ctx\), not a int"),
    "keyed by another class": (lambda p: keyed(p, Files), "not the class Files"),
    "keyed by too few arguments": (lambda p: keyed(p, lambda _: None), "must take 3 arguments: key, rows, ctx"),
    "keyed with a timer of too few arguments": (
        lambda p: keyed(p, on_timer=lambda _: None),
        "must take 3 arguments: key, timer, ctx",
    ),
    "keyed by a class that does nothing": (lambda p: keyed(p, NoProcess), "NoProcess has no method process"),
    "keyed by a class with arguments": (
        lambda p: keyed(p, WithArguments),
        r"cannot be made without arguments in an executor: give an instance, WithArguments\(…\)",
    ),
    "keyed by a class and a timer": (
        lambda p: keyed(p, WithArguments("m"), on_timer=print),
        "on_timer= goes with a plain function",
    ),
    "keyed by what stays on the driver": (
        lambda p: keyed(p, lambda *_, lock=threading.Lock(): lock),  # noqa: B008
        "operator 'k': <lambda> cannot be sent to executors: .*lock",
    ),
    "keyed with a wrong schema": (
        lambda p: keyed(p, schema="id longer than"),
        "schema 'id longer than' is not a schema",
    ),
    "keyed with a column twice": (lambda p: keyed(p, schema="id long, id long"), "columns 'id' more than once"),
    "keyed with another event time": (
        lambda p: keyed(p, event_time="at"),
        "event time 'at' is not in the schema, which has id",
    ),
    "keyed with a wrong event time": (
        lambda p: keyed(p, event_time="id"),
        "event time 'id' must be a timestamp, not",
    ),
    "state of no type": (lambda p: keyed(p, state={"s": value_state("longer")}), "state 's': .*longer"),
    "state of another kind": (lambda p: keyed(p, state={"s": "long"}), "state 's' must be a value_state"),
    "state of no name": (lambda p: keyed(p, state={"a b": value_state("long")}), "use letters, digits and _"),
    "state that is gone at once": (
        lambda p: keyed(p, state={"s": value_state("long", ttl=0)}),
        "a ttl must be positive",
    ),
    "state by lists": (
        lambda p: keyed(p, state={"s": map_state("array<int>", "long")}),
        "a map's keys must be plain values, not array<int>",
    ),
    "enriched by nothing to call": (lambda p: enriched(p, 1), r"operator 'e': give a function of \(row\), not a int"),
    "enriched by a class that cannot be called": (lambda p: enriched(p, NoProcess), "has no method __call__"),
    "enriched by too many arguments": (lambda p: enriched(p, lambda _, __: None), "must take 1 arguments: row"),
    "enriched by nobody": (lambda p: enriched(p, concurrency=0), "concurrency must be at least 1, not 0"),
    "enriched in no time": (lambda p: enriched(p, timeout=0), "timeout must be positive"),
    "enriched less than once": (lambda p: enriched(p, retries=-1), "retries must be 0 or more, not -1"),
    "enriched without care": (
        lambda p: enriched(p, on_error="ignore"),
        "on_error must be 'fail', 'null', 'drop' or 'side', not 'ignore'",
    ),
    "enriched with what is there": (lambda p: out(enriched(p, schema="id long")), "has the columns id already"),
    "smallest of a changelog": (
        lambda p: out(changes(p).aggregate("a", keys=["id"], aggregates={"low": F.min("n")})),
        "operator 'a': aggregate 'low': min cannot take a row back, and the input is a changelog: use sum, count",
    ),
    "distinct values of a changelog": (
        lambda p: out(changes(p).aggregate("a", keys=["id"], aggregates={"m": F.count_distinct("n")})),
        "aggregate 'm': count of distinct values cannot take a row back",
    ),
    "a changelog without kinds": (
        lambda p: out(rows(p).aggregate("a", keys=["id"], aggregates=n(), changelog=True)),  # type: ignore[arg-type]
        "operator 'a': a changelog has a column 'row_kind'",
    ),
    "retractions of a percentile": (
        lambda p: out(
            rows(p).aggregate("a", keys=["id"], aggregates={"m": F.percentile("id", F.lit(0.5))}, retractions=True)
        ),
        "operator 'a': with retractions only aggregates are possible whose partials can be merged",
    ),
    "a window of a changelog": (
        lambda p: out(
            changes(p)
            .transform("t", lambda f: f.withColumn("at", F.current_timestamp()), event_time="at")
            .window("w", size="1 s", aggregates=n())  # type: ignore[arg-type]
        ),
        "operator 'w': the input is a changelog",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_before_the_start(spark: SparkSession, tmp_path: Path, mistake: str) -> None:
    describe, message = MISTAKES[mistake]
    Files(tmp_path / "in").add(1)
    pipeline = Pipeline(spark, StorageConfig(uri="memory://"), {"in": str(tmp_path / "in")})

    def all_of_it() -> None:
        describe(pipeline)
        pipeline.graph.bind(spark)

    with pytest.raises(PipelineError, match=message):
        all_of_it()


@pytest.mark.parametrize("name", ["", "Has Spaces", "a/b", "..", "x" * 200])
def test_a_bad_name_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    Files(tmp_path / "in").add(1)
    pipeline = Pipeline(spark, StorageConfig(uri="memory://"), {"in": str(tmp_path / "in")})
    with pytest.raises(InvalidNameError, match=r"operator name '.*' is not allowed: use 1 to 63 of a-z"):
        rows(pipeline, name)
