"""What fails while a job runs, and what is said: the error names the operator whose fault it is."""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cluster.processes import free_port
from epochal import Pipeline, Stream
from epochal.protocol import store as protocol_store
from epochal.protocol.control import EXIT_FAILED, EXIT_MISCONFIGURED, EXIT_REFUSED, EXIT_STOPPED, CheckpointState
from epochal.protocol.epochs import Epoch
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.errors import WORKER_DIED_MEANS, summarize_error
from epochal.runtime.state.tables import REPLICAS
from tests.runtime.bad_data import SCHEMA, Files, ids, through
from tests.support.local_job import LocalJob
from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Bucket, S3Server
from tests.support.small_disk import run_with_small_disks

WORKER = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"

# --- functions and rows that fail late --------------------------------------------------------------------------------


def counted(rows: Stream) -> Stream:
    return rows.window("counted", size="10 seconds", aggregates={"n": F.sum("id")})


def python_function(p: Pipeline, files: Files) -> Stream:
    def parse(number: int) -> int:
        raise ValueError(f"{number} is not to be had")

    parsed = F.udf(lambda number: parse(number), "long")
    return counted(files.read(p).transform("parsed", lambda rows: rows.withColumn("id", parsed("id"))))


def cast(p: Pipeline, files: Files) -> Stream:
    def convert(rows: DataFrame) -> DataFrame:
        return rows.withColumn("id", F.concat(F.lit("x"), "id").cast("long"))

    # Two readers: the rows are computed before they are handed on.
    converted = files.read(p).transform("converted", convert)
    converted.transform("seen", lambda rows: rows).for_each_epoch("nowhere", lambda _rows, _epoch: None)
    return counted(converted)


def aggregate(p: Pipeline, files: Files) -> Stream:
    failing = F.sum(F.raise_error(F.lit("no sum of this")).cast("long"))
    return (
        files.read(p).transform("same", lambda rows: rows).window("summed", size="1 second", aggregates={"n": failing})
    )


def of_windows(p: Pipeline, files: Files) -> Stream:
    """What comes of windows that are over is computed in the background; of those that are open at the end, with the
    last epoch."""

    def show(number: int) -> int:
        raise ValueError(f"{number} cannot be shown")

    shown = F.udf(lambda number: show(number), "long")
    stream = p.spark.readStream.schema(SCHEMA).json(str(files.directory))
    windows = counted(p.source("rows", stream, event_time="at", bounded=True))
    return windows.transform("shown", lambda rows: rows.withColumn("n", shown("n")))


def malformed(p: Pipeline, files: Files) -> Stream:
    files.add_text("no json\n")
    stream = p.spark.readStream.schema(SCHEMA).option("mode", "FAILFAST").json(str(files.directory))
    return counted(p.source("rows", stream, event_time="at").transform("same", lambda rows: rows))


def other_type(p: Pipeline, files: Files) -> Stream:
    directory = files.directory / "parquet"
    p.spark.range(3).selectExpr("id", "current_timestamp() AS at").write.parquet(str(directory))
    p.spark.range(3).selectExpr("'x' AS id", "current_timestamp() AS at").write.mode("append").parquet(str(directory))
    stream = p.spark.readStream.schema(SCHEMA).parquet(str(directory))
    return counted(p.source("rows", stream, event_time="at").transform("same", lambda rows: rows))


@pytest.mark.parametrize(
    ("build", "operator", "said"),
    [
        (python_function, "parsed", r"ValueError: 1 is not to be had \(.*test_failures\.py:\d+, in parse\)"),
        (cast, "converted", r"The value 'x1' of the type \"STRING\" cannot be cast.*was called from .*test_failures"),
        (aggregate, "summed", r"no sum of this"),
        (of_windows, "shown", r"ValueError: \d+ cannot be shown"),
        (malformed, "rows", r"reading file .*0001\.json.*Unrecognized token 'no'"),
        (other_type, "rows", r"Expected Spark type bigint, actual Parquet type BINARY"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_operator_whose_fault_it_is_is_named(
    spark: SparkSession,
    files: Files,
    tmp_path: Path,
    build: Callable[[Pipeline, Files], Stream],
    operator: str,
    said: str,
) -> None:
    files.add(1, 2)
    job = LocalJob(spark, lambda p: build(p, files).to_parquet("out", str(tmp_path / "out")), tmp_path)
    engine = job.start()
    job.wait(lambda: engine.exit_code is not None or engine.status().finished, "the sources to end, or the driver")
    if engine.exit_code is None:
        job.checkpoint(then_stop=True, wait=False)
    job.wait(lambda: engine.exit_code is not None, "the driver to end")
    assert engine.exit_code == EXIT_MISCONFIGURED, "only an edit helps"
    message = engine.status().message
    assert message.startswith(f"operator {operator!r} failed: "), message
    assert re.search(said, message), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ValueError"),
        ("one\n\ntwo", "one two"),
        ("x" * 2000, "x" * 1000 + "…"),
        ("[CODE] No such column.\n'Project [x]\n+- 'Scan", "[CODE] No such column."),
        (f'{WORKER}  File "x.py", line 1, in f\nValueError: no\n', "ValueError: no (x.py:1, in f)"),
        (
            f'{WORKER}  File "x.py", line 1, in f\nepochal.protocol.errors.StoreFullError: s3://b: is full\n',
            "s3://b: is full",
        ),
        ("An error occurred while calling o1.collect.\n\tat a.B\n", "An error occurred while calling o1.collect."),
        ("An error occurred while calling o1.collect.\n: java.io.IOException: away\n\tat a.B\n", "away"),
        (
            "An error occurred while calling o1.x.\n: a.b.CException: it failed\n\tat a.B\nCaused by: it is away\n",
            "it failed it is away",
        ),
        (
            "Lost task 0.3: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): Fatal error",
            WORKER_DIED_MEANS,
        ),
    ],
)
def test_an_error_is_told_on_one_line(text: str, said: str) -> None:
    assert summarize_error(ValueError(text)) == said


def test_a_setting_that_cannot_be_is_told_before_the_start(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    files.add(1)
    spark.conf.set(REPLICAS, "many")
    try:
        engine = LocalJob(spark, lambda p: files.read(p).to_console("out"), tmp_path).start()
    finally:
        spark.conf.unset(REPLICAS)
    assert engine.exit_code == EXIT_MISCONFIGURED
    assert engine.status().message == "spark.epochal.stateReplicas is 'many': give a number from 1 to 3"


def test_a_store_that_overwrites_ends_the_driver_before_it_reads(
    spark: SparkSession, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *args, **options: put(*args, **{**options, "mode": "overwrite"}))
    files.add(1)
    engine = LocalJob(spark, lambda p: files.read(p).to_parquet("out", str(tmp_path / "out")), tmp_path).start()
    assert engine.exit_code == EXIT_REFUSED
    said = engine.status().message
    assert said.startswith(f"file://{tmp_path}/store: the store overwrites an object that was to be created only once")
    assert not list((tmp_path / "out").rglob("*"))


# --- stops and clocks -------------------------------------------------------------------------------------------------


def test_a_stop_while_the_source_is_idle(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    job = LocalJob(spark, lambda p: files.read(p).to_parquet("out", str(tmp_path / "out")), tmp_path)
    engine = job.start()
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY, "there was never a row"
    job.wait(lambda: engine.exit_code == EXIT_STOPPED, "the driver to stop")
    engine = job.start()
    files.add(1)
    job.wait(lambda: engine.status().sources[0].batch == 0, "the row")
    time.sleep(1)
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY, "there are no more rows"
    job.wait(lambda: engine.exit_code == EXIT_STOPPED, "the driver to stop")
    assert ids(spark, tmp_path / "out") == [1]


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(hours=-1)], ids=["forwards", "backwards"])
def test_a_clock_that_is_set_changes_no_span_and_no_row(
    spark: SparkSession, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: timedelta
) -> None:
    moved = [0]
    real_ns, real = time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + moved[0])
    monkeypatch.setattr(time, "time", lambda: real() + moved[0] / 1e9)
    files.add(1, 2)
    job = LocalJob(spark, lambda p: files.read(p).to_parquet("out", str(tmp_path / "out")), tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 2, "the rows")
    job.checkpoint(wait=False)
    moved[0] = round(step.total_seconds() * 1e9)
    report = job.wait_for_epoch(Epoch(1))
    assert report.state is CheckpointState.READY
    assert report.finished is not None
    assert 0 <= report.finished - report.started < 1800e6, "less than the step, however busy the machine is"
    moments = [moment for operator in report.operators for moment in operator.events.values()]
    assert all(report.started <= moment <= report.finished for moment in moments)
    files.add(3)
    job.wait(lambda: engine.status().sources[0].rows == 3, "more rows")
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert ids(spark, tmp_path / "out") == [1, 2, 3]


# --- sinks and stores -------------------------------------------------------------------------------------------------


def test_a_parquet_sink_whose_endpoint_is_dead_ends_the_driver_and_the_next_one_commits(
    spark: SparkSession,
    files: Files,
    tmp_path: Path,
    s3_bucket: S3Bucket,
    s3_keys: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s3_server = s3_bucket.server
    impatient = protocol_store.RetryPolicy(tries=2, first_pause=0.01)
    monkeypatch.setattr(protocol_store, "RetryPolicy", lambda: impatient)
    monkeypatch.setattr(SinkOperator, "commit_patience", 0.0)
    endpoint = [f"http://127.0.0.1:{free_port()}"]

    def build(p: Pipeline) -> None:
        files.read(p).to_parquet("out", f"s3://{s3_bucket.name}/out", endpoint=endpoint[0], region=s3_server.region)

    files.add(1, 2)
    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    assert engine.exit_code == EXIT_FAILED, "nobody answers, so it does not begin"
    assert "operator 'out' failed: " in engine.status().message
    with CountingProxy(s3_server.endpoint) as proxy:
        endpoint[0] = proxy.endpoint
        engine = job.start()
        job.wait(lambda: engine.status().sources[0].rows == 2, "the rows")
        proxy.refuse()
        job.checkpoint()
        assert engine.exit_code == EXIT_FAILED
    message = engine.status().message
    assert f"operator 'out' failed: s3://{s3_bucket.name}/out: does not answer: check the endpoint" in message
    job.completed = job.issued  # the epoch is published: only its commit is missing
    endpoint[0] = s3_server.endpoint
    job.start()
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    written = s3_server.data_dir / s3_bucket.name / "out"
    assert ids(spark, written) == [1, 2]


def test_a_store_that_is_away_longer_than_anybody_waits(
    spark: SparkSession, files: Files, tmp_path: Path, s3_server: S3Server, s3_job: LocalJob
) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        job = through(proxy, s3_job)
        files.add(1, 2)
        engine = job.start()
        job.wait(lambda: engine.status().sources[0].rows == 2, "the rows")
        proxy.refuse()
        report = job.checkpoint()
        assert report.state is CheckpointState.FAILED
        assert report.message.startswith(("operator 'out': ", "operator 'rows': "))
        assert "does not answer: check the endpoint and the network" in report.message
        files.add(3)
        job.wait(lambda: engine.status().sources[0].rows == 3, "rows while the store is away")
        proxy.accept()
        assert job.checkpoint(then_stop=True).state is CheckpointState.READY
        assert engine.exit_code == EXIT_STOPPED
    assert ids(spark, tmp_path / "out") == [1, 2, 3]


@pytest.mark.spark
def test_a_full_store_fails_epochs_until_there_is_room(tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = run_with_small_disks("1m", [store], "tests.runtime.full_store", str(store), str(elsewhere), timeout=250)
    first, second, third, end, partial = done.stdout.splitlines()
    assert first.strip() == "Ready", done.stderr
    assert re.match(rf"Failed operator '(rows|out)': {re.escape(store.as_uri())}: is full, cannot create ", second)
    assert third.strip() == "Ready"
    assert end == f"{EXIT_STOPPED} [1, 2, 3]"
    assert partial == "[]", "what did not fit is gone"


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_names_every_test_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bad-data.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    here = Path(__file__).parent
    sources = {
        name: (here / f"{name}.py").read_text() for name in ("test_bad_data", "test_failures", "test_bad_graphs")
    }
    there = {test for text in sources.values() for test in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert named == there - {"test_the_page_names_every_test_and_no_other", "test_an_error_is_told_on_one_line"}
