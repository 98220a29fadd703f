"""State of all types, restarted in the middle, against Spark batch over the same rows."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline, Stream, value_state
from epochal.protocol.control import StorageConfig
from epochal.runtime.errors import PipelineError
from epochal.runtime.state import latest_table, tables
from tests.runtime import type_matrix as matrix
from tests.runtime.streaming import Batch, FedJob
from tests.runtime.type_matrix import AGGREGATES, OF_ROWS, TYPES, Collected, aliased, batch_of, cells, compare, typed
from tests.support.depth import DEEP

ROWS = matrix.rows_of(48 if DEEP else 24)
OTHERS = ROWS[6:]
BATCHES: list[Batch] = [ROWS[begin : begin + 8] for begin in range(0, len(ROWS), 8)]
OTHER_BATCHES: list[Batch] = [OTHERS[begin : begin + 8] for begin in range(0, len(ROWS), 8)]
FEW = ("decimal_10_2", "decimal_38_18", "collated", "struct", "hour_interval", "nan")


@pytest.fixture(autouse=True)
def merges_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are merged after every second batch: types must not change by that either."""
    monkeypatch.setattr(tables, "MERGE_AT", 2)
    monkeypatch.setattr(latest_table, "MERGE_AT", 2)


@pytest.fixture(scope="module")
def batch(spark: SparkSession) -> DataFrame:
    return batch_of(spark, ROWS).localCheckpoint()


class Job(FedJob):
    """A job with the typed rows as its source."""

    def __init__(self, spark: SparkSession, directory: Path, build: Any) -> None:
        self.out: dict[str, Collected] = {}
        super().__init__(spark, lambda p, _: build(p), directory)

    def rows_of(self, p: Pipeline, name: str = "rows") -> Stream:
        return self.source(p, name, matrix.SOURCE, event_time="at").transform(f"{name}-typed", typed)

    def take(self, name: str, stream: Stream) -> None:
        stream.for_each_epoch(f"{name}-out", self.out.setdefault(name, Collected()))


def test_updating_aggregates_and_sessions(spark: SparkSession, tmp_path: Path, batch: DataFrame) -> None:
    partials, of_rows = some(cells(AGGREGATES)), some(cells(OF_ROWS))

    def build(p: Pipeline) -> None:
        rows = job.rows_of(p)
        job.take("updating", rows.aggregate("a", keys=["k"], aggregates=partials))
        job.take("rows", rows.aggregate("b", keys=["k"], aggregates=of_rows))
        if DEEP:
            job.take("sessions", rows.session_window("c", gap="5 seconds", keys=["k"], aggregates=partials))

    job = Job(spark, tmp_path, build)
    matrix.play(job, {"rows": BATCHES})
    keyed = batch.groupBy("k")
    expected = keyed.agg(*aliased(partials))
    compare(job.out["updating"], expected, newest=["k"])
    compare(job.out["rows"], keyed.agg(*aliased(of_rows)), newest=["k"])
    if DEEP:
        compare(job.out["sessions"], sessions(batch, partials))


def some(all_cells: dict[str, Any]) -> dict[str, Any]:
    """Of all cells those that are run each time: every type, every aggregate, and sums and averages of decimals."""
    names = list(all_cells)
    chosen = [
        name for name in names if DEEP or names.index(name) % 4 == 0 or (name.startswith("decimal") and "sum" in name)
    ]
    return {name: all_cells[name] for name in chosen}


def sessions(batch: DataFrame, aggregates: dict[str, Any]) -> DataFrame:
    """All rows of a key are one."""
    start, end = F.min("at").alias("window_start"), (F.max("at") + F.expr("interval 5 seconds")).alias("window_end")
    return (
        batch.groupBy("k").agg(start, end, *aliased(aggregates)).select("window_start", "window_end", "k", *aggregates)
    )


def test_windows(spark: SparkSession, tmp_path: Path, batch: DataFrame) -> None:
    partials = cells(AGGREGATES, TYPES if DEEP else FEW)
    of_rows = cells(OF_ROWS, TYPES if DEEP else FEW)

    def build(p: Pipeline) -> None:
        rows = job.rows_of(p)
        job.take("tumbling", rows.window("a", size="20 seconds", keys=["k"], aggregates=partials))
        job.take("sliding", rows.window("b", size="10 seconds", slide="4 seconds", keys=["k"], aggregates=partials))
        job.take("rows", rows.window("c", size="20 seconds", keys=["k"], aggregates=of_rows))
        job.take("row-sessions", rows.session_window("d", gap="5 seconds", keys=["k"], aggregates=of_rows))
        job.take("sessions", rows.session_window("e", gap="5 seconds", keys=["k"], aggregates=partials))

    job = Job(spark, tmp_path, build)
    matrix.play(job, {"rows": BATCHES})

    def windows(aggregates: dict[str, Any], *sizes: str) -> DataFrame:
        found = batch.groupBy(F.window("at", *sizes), "k").agg(*aliased(aggregates))
        return found.select("window.start", "window.end", "k", *aggregates)

    compare(job.out["tumbling"], windows(partials, "20 seconds"))
    compare(job.out["sliding"], windows(partials, "10 seconds", "4 seconds"))
    compare(job.out["rows"], windows(of_rows, "20 seconds"))
    compare(job.out["sessions"], sessions(batch, partials))
    compare(job.out["row-sessions"], sessions(batch, of_rows))


def test_aggregates_with_retractions(spark: SparkSession, tmp_path: Path, batch: DataFrame) -> None:
    partials = cells(AGGREGATES)
    largest = cells(["max"], [name for name in TYPES if name in matrix.LEGAL["sum"]])
    sums = {f"{name}_{how.__name__}": how(name) for name in largest for how in (F.sum, F.avg, F.count)}

    def build(p: Pipeline) -> None:
        rows = job.rows_of(p)
        if DEEP:
            job.take("first", rows.aggregate("a", keys=["k"], aggregates=partials, retractions=True))
        parts = rows.transform("parts", lambda f: f.withColumn("j", F.expr("id % 4")))
        inner = parts.aggregate("b", keys=["k", "j"], aggregates=largest, retractions=True)
        job.take("second", inner.aggregate("c", keys=["k"], aggregates=sums))

    job = Job(spark, tmp_path, build)
    matrix.play(job, {"rows": BATCHES})
    if DEEP:
        compare(job.out["first"], batch.groupBy("k").agg(*aliased(partials)), newest=["k"], drop=["row_kind"])
    inner = batch.groupBy("k", F.expr("id % 4 AS j")).agg(*aliased(largest))
    compare(job.out["second"], inner.groupBy("k").agg(*aliased(sums)), newest=["k"])


def test_rows_of_all_types(spark: SparkSession, tmp_path: Path, batch: DataFrame) -> None:
    fields = ", ".join(f"`{field.name}`: {field.dataType.simpleString()}" for field in batch.schema)
    found = spark.createDataFrame([(number, number * 2) for number in range(20)], "id long, twice long")

    def build(p: Pipeline) -> None:
        rows = job.rows_of(p)
        others = job.rows_of(p, "others").transform("renamed", renamed, event_time="r_at")
        for how in ("inner", "left", "right", "full") if DEEP else ("full",):
            job.take(f"join-{how}", rows.join(f"a-{how}", others, keys=["id"], within="1 second", how=how))
            windows = rows.window_join(f"b-{how}", others, size="10 seconds", keys=["id"], how=how)
            job.take(f"windows-{how}", windows)
        job.take("top", rows.top_n("c", n=2, order_by=[F.col("id")], per=["k"]))
        job.take("running", rows.running_top_n("d", n=2, order_by=[F.col("id").desc()], keys=["k"]))
        job.take("once", rows.deduplicate("e", keys=["id"]))
        state = {"last": value_state(f"struct<{fields}>")}
        job.take("last", rows.apply_in_arrow("f", last_row, keys=["k"], schema=batch.schema, state=state))
        job.take("asked", rows.enrich_async("g", lambda _: {"seven": 7}, schema="seven int"))
        job.take("found", rows.lookup("h", found, keys=["id"], how="left"))

    job = Job(spark, tmp_path, build)
    matrix.play(job, {"rows": BATCHES, "others": OTHER_BATCHES})
    others = renamed(batch_of(spark, OTHERS))
    for how in ("inner", "left", "right", "full") if DEEP else ("full",):
        joined = batch.join(others, "id", how)
        compare(job.out[f"join-{how}"], joined)
        window = F.window(F.coalesce("at", "r_at"), "10 seconds")
        compare(job.out[f"windows-{how}"], joined.select(window.start, window.end, "*"))
    compare(job.out["top"], batch.withColumn("rank", F.lit(1)))
    rank = F.expr("row_number() OVER (PARTITION BY k ORDER BY id DESC)").alias("rank")
    compare(job.out["running"], batch.select("*", rank).where("rank <= 2"), newest=["k", "rank"])
    compare(job.out["once"], batch)
    last = batch.groupBy("k").agg(F.max_by(F.struct("*"), "id").alias("last")).select("last.*")
    compare(job.out["last"], last, newest=["k"])
    compare(job.out["asked"], batch.withColumn("seven", F.lit(7)))
    compare(job.out["found"], batch.join(found, "id", "left"))


def renamed(frame: DataFrame) -> DataFrame:
    return frame.select("id", *(F.col(name).alias(f"r_{name}") for name in frame.columns if name != "id"))


def last_row(key: Any, rows: Any, ctx: Any) -> Any:
    """The last row of each key, by way of its state."""
    state = ctx.value("last")
    newest = rows.slice(rows.num_rows - 1).to_pylist()[0]
    if not state.exists() or state.get()["id"] < newest["id"]:
        state.update(newest)
    return state.get()


# --- keys ---

KEYS: dict[str, str] = {
    "double": "CASE g WHEN 0 THEN IF(b, 0.0D, -0.0D) WHEN 1 THEN double('NaN') WHEN 3 THEN 1.5D END",
    "float": "CASE g WHEN 0 THEN float(IF(b, '0.0', '-0.0')) WHEN 1 THEN float('NaN') ELSE 1 END",
    "struct": "named_struct('f', CASE g WHEN 0 THEN IF(b, 0.0D, -0.0D) WHEN 1 THEN double('NaN') END, 's', char(0))",
    "array": "array(CASE g WHEN 0 THEN IF(b, 0.0D, -0.0D) WHEN 1 THEN double('NaN') END, 2.0D)",
    "date": "date_add(date'1582-10-04', cast(g AS int))",
    "timestamp": "timestamp_seconds(g - 62000000000)",
    "timestamp_ntz": "timestamp_ntz'0001-01-02 00:00:00' + make_dt_interval(cast(g AS int))",
    "decimal": "cast(g AS decimal(38,18))",
    "binary": "cast(cast(g AS string) AS binary)",
    "interval": "cast(make_dt_interval(0, cast(g AS int)) AS interval hour)",
    "boolean": "g = 1",
}
"""Keys of four groups ``g``, of which each has two ways to be written, ``b``."""

COLLATED = {
    "collated": "IF(b, 'a', 'A') COLLATE UTF8_LCASE",
    "inside": "named_struct('c', IF(b, 'x', 'X') COLLATE UTF8_LCASE)",
}


def grouped(frame: DataFrame) -> DataFrame:
    parts = frame.selectExpr("id", "at", "id % 4 AS g", "id % 8 < 4 AS b")
    return parts.selectExpr("id", "at", *(f"{how} AS `{name}`" for name, how in (KEYS | COLLATED).items()))


def test_keys_are_those_of_a_group_by(spark: SparkSession, tmp_path: Path) -> None:
    plain, every = list(KEYS), [*KEYS, *COLLATED]
    totals = {"n": F.count("*"), "total": F.sum("id")}
    names = grouped(batch_of(spark, ROWS[:3])).select(*every, F.col("id").alias("nid"))

    def build(p: Pipeline) -> None:
        rows = job.source(p, "rows", matrix.SOURCE, event_time="at").transform("keys", grouped)
        others = job.source(p, "others", matrix.SOURCE, event_time="at").transform("others-keys", grouped)
        others = others.transform(
            "named",
            lambda f: f.select(*every, F.col("id").alias("rid"), F.col("at").alias("seen")),
            event_time="seen",
        )
        job.take("updating", rows.aggregate("a", keys=plain, aggregates=totals))
        job.take("rows", rows.aggregate("b", keys=every, aggregates=totals | {"last": F.max_by("id", "id")}))
        job.take("changes", rows.aggregate("c", keys=every, aggregates=totals, retractions=True))
        job.take("tumbling", rows.window("d", size="1 hour", keys=every, aggregates=totals))
        job.take("sliding", rows.window("e", size="2 hours", slide="1 hour", keys=every, aggregates=totals))
        job.take("sessions", rows.session_window("f", gap="1 hour", keys=every, aggregates=totals))
        job.take("once", rows.deduplicate("g", keys=plain, within="1 hour"))
        job.take("running", rows.running_top_n("h", n=1, order_by=[F.col("id").desc()], keys=every))
        state = {"n": value_state("long")}
        job.take(
            "counted", rows.apply_in_arrow("i", counting, keys=every, schema="g long, last long, n long", state=state)
        )
        slim = rows.transform("slim", lambda f: f.select("id", "at", *every))
        job.take("join", slim.join("j", others, keys=every, within="1 hour", how="inner"))
        job.take("windows", slim.window_join("k", others, size="1 hour", keys=every, how="full"))
        job.take("found", slim.lookup("l", names, keys=every, how="left"))

    job = Job(spark, tmp_path, build)
    matrix.play(job, {"rows": BATCHES, "others": OTHER_BATCHES})
    batch = grouped(batch_of(spark, ROWS)).localCheckpoint()
    totals_of = [column.alias(name) for name, column in totals.items()]
    expected = batch.groupBy(*plain).agg(*totals_of)
    assert expected.count() == 4
    compare(job.out["updating"], expected, newest=plain)
    counts = expected.select("n", "total")
    for name in ("tumbling", "sessions"):
        compare(job.out[name], counts, only=["n", "total"])
    compare(job.out["sliding"], counts.union(counts), only=["n", "total"])
    compare(job.out["rows"], counts, newest=plain, only=["n", "total"])
    compare(job.out["changes"], counts, newest=plain, only=["n", "total"])
    compare(job.out["once"], batch.groupBy(*plain).agg(F.min("id").alias("id")).select("id"), only=["id"])
    ids = batch.groupBy(*plain).agg(F.max("id").alias("id")).select("id")
    compare(job.out["running"], ids, newest=plain, only=["id"])
    counted = batch.groupBy(*plain).agg(F.expr("max(id) % 4 AS g"), F.max("id").alias("last"), F.count("*").alias("n"))
    compare(job.out["counted"], counted.select("g", "last", "n"), newest=["g"])
    right = grouped(batch_of(spark, OTHERS)).select(*every, F.col("id").alias("rid"))
    pairs = batch.join(right, every).select("id", "rid")
    assert pairs.count() > batch.count()
    compare(job.out["join"], pairs, only=["id", "rid"])
    compare(job.out["windows"], batch.join(right, every, "full").select("id", "rid"), only=["id", "rid"])
    compare(job.out["found"], batch.join(names, every, "left").select("id", "nid"), only=["id", "nid"])


def counting(key: Any, rows: Any, ctx: Any) -> Any:
    state = ctx.value("n")
    state.update(state.get(0) + rows.num_rows)
    last = max(rows.column("id").to_pylist())
    return {"g": last % 4, "last": last, "n": state.get()}


# --- what cannot be stored, and what cannot be a key ---

ONES: dict[str, Any] = {
    "window": lambda s: s.window("x", size="1 minute", aggregates={"last": F.max_by("c", "id")}),
    "session": lambda s: s.session_window("x", gap="1 minute", aggregates={"last": F.max_by("c", "id")}),
    "aggregate": lambda s: s.aggregate("x", keys=["id"], aggregates={"last": F.max_by("c", "id")}),
    "join": lambda s: s.join("x", s.transform("o", other, event_time="r_at"), keys=["id"], within="1 minute"),
    "window_join": lambda s: s.window_join(
        "x", s.transform("o", other, event_time="r_at"), keys=["id"], size="1 minute"
    ),
    "deduplicate": lambda s: s.deduplicate("x", keys=["id"]),
    "top_n": lambda s: s.top_n("x", n=1, order_by=[F.col("id")]),
    "running_top_n": lambda s: s.running_top_n("x", n=1, order_by=[F.col("id")], keys=["id"]),
    "apply_in_arrow": lambda s: s.apply_in_arrow("x", counting, keys=["id"], schema="id long"),
    "enrich_async": lambda s: s.enrich_async("x", lambda _: None, schema="n long"),
    "sink": lambda s: s,
}
"""Operators that keep a column ``c`` of their input, or send it to Python."""


def other(frame: DataFrame) -> DataFrame:
    return frame.select("id", F.col("at").alias("r_at"))


def described(spark: SparkSession, directory: Path, column: str, build: Any) -> None:
    p = Pipeline(spark, StorageConfig(uri="memory://"))
    stream = p.source("rows", spark.readStream.schema(matrix.SOURCE).json(str(directory)), event_time="at")
    build(stream.transform("made", lambda f: f.selectExpr("id", "at", f"{column} AS c"))).for_each_epoch("out", print)
    p.graph.bind(spark)


@pytest.mark.parametrize("operator", ONES)
def test_columns_that_cannot_be_stored_are_refused_when_described(
    spark: SparkSession, tmp_path: Path, operator: str
) -> None:
    for name, column in matrix.REFUSED.items() if DEEP or operator == "sink" else [("void", "null")]:
        where = "out" if operator == "sink" else "x"
        with pytest.raises(PipelineError, match=rf"operator '{where}': column 'c' is an? .* cannot be stored") as told:
            described(spark, tmp_path, column, ONES[operator])
        assert "months" not in name or "number of months" in str(told.value)


@pytest.mark.parametrize("name", ["a.b", "a`b"])
def test_names_that_cannot_be_stored_are_refused_when_described(spark: SparkSession, tmp_path: Path, name: str) -> None:
    def renamed(stream: Stream) -> Stream:
        return stream.transform("renamed", lambda f: f.withColumnRenamed("c", name))

    for operator in ("sink", "enrich_async"):
        where = "out" if operator == "sink" else "x"
        refused = f"operator '{where}': column {name!r} has a dot or a backtick in its name, which cannot be stored"
        with pytest.raises(PipelineError, match=re.escape(refused)):
            described(spark, tmp_path, "id", lambda s, operator=operator: ONES[operator](renamed(s)))


KEYED: dict[str, Any] = {
    "window": lambda s: s.window("x", size="1 minute", keys=["c"], aggregates={"n": F.count("*")}),
    "session": lambda s: s.session_window("x", gap="1 minute", keys=["c"], aggregates={"n": F.count("*")}),
    "aggregate": lambda s: s.aggregate("x", keys=["c"], aggregates={"n": F.count("*")}),
    "changelog": lambda s: s.aggregate("x", keys=["c"], aggregates={"n": F.count("*")}, retractions=True),
    "join": lambda s: s.join("x", s.transform("o", lambda f: f.select("c")), keys=["c"], within="1 minute"),
    "deduplicate": lambda s: s.deduplicate("x", keys=["c"]),
    "top_n": lambda s: s.top_n("x", n=1, order_by=[F.col("id")], per=["c"]),
    "running_top_n": lambda s: s.running_top_n("x", n=1, order_by=[F.col("id")], keys=["c"]),
    "apply_in_arrow": lambda s: s.apply_in_arrow("x", counting, keys=["c"], schema="id long"),
    "lookup": lambda s: s.lookup("x", lambda spark: spark.sql(f"SELECT {MAP} AS c"), keys=["c"]),
}
MAP = "map('a', 1)"


@pytest.mark.parametrize("operator", KEYED)
def test_a_map_is_no_key(spark: SparkSession, tmp_path: Path, operator: str) -> None:
    with pytest.raises(PipelineError, match="operator 'x': key 'c' is a map<string,int>, which cannot be a key"):
        described(spark, tmp_path, MAP, KEYED[operator])


@pytest.mark.parametrize("operator", ["aggregate", "deduplicate"])
def test_keys_that_are_looked_up_are_equal_by_their_bytes(spark: SparkSession, tmp_path: Path, operator: str) -> None:
    with pytest.raises(PipelineError, match=r"key 'c' is a string collate UTF8_LCASE.*lower"):
        described(spark, tmp_path, "string(id) COLLATE UTF8_LCASE", KEYED[operator])


def test_state_of_a_type_that_cannot_be_stored_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    state = {"since": value_state("interval year to month")}
    with pytest.raises(PipelineError, match="operator 'x': state 'since' is"):
        described(
            spark, tmp_path, "1", lambda s: s.apply_in_arrow("x", counting, keys=["c"], schema="id long", state=state)
        )


# --- overflow ---


def test_a_sum_that_overflowed_stays_so(spark: SparkSession, tmp_path: Path) -> None:
    """Where an overflow is no error, as in Spark batch: null, and not what comes after it."""
    kinds = {"wide": "decimal(38,0)", "narrow": "decimal(28,0)"}
    most = {"wide": "9" * 38, "narrow": "9" * 28}
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    aggregates = {f"{name}_{how.__name__}": how(name) for name in kinds for how in (F.sum, F.avg)}

    def build(p: Pipeline) -> None:
        rows = job.source(p, "rows", matrix.SOURCE, event_time="at").transform("made", large)
        job.take("updating", rows.aggregate("a", keys=["k"], aggregates=aggregates))
        job.take("sessions", rows.session_window("b", gap="1 hour", keys=["k"], aggregates=aggregates))

    def large(frame: DataFrame) -> DataFrame:
        columns = [
            f"cast(CASE WHEN id < 8 THEN '{most[name]}' ELSE '1' END AS {kinds[name]}) AS {name}" for name in kinds
        ]
        return frame.selectExpr("id", "at", "id % 2 AS k", *columns)

    job = Job(spark, tmp_path, build)
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        matrix.play(job, {"rows": [ROWS[:8], ROWS[8:9], ROWS[9:10]]})
        expected = large(batch_of(spark, ROWS[:10])).groupBy("k").agg(*aliased(aggregates))
        compare(job.out["updating"], expected, newest=["k"])
        compare(job.out["sessions"], expected, only=["k", *aggregates])
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi))
