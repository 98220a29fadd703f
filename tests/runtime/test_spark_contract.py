"""What is needed of Spark beyond its public API: a test for each function of ``epochal.runtime.spark``.

When Spark changes, this file fails and names the function. ``make newest-sparks`` runs it with newer Sparks than ours.
"""

import importlib
import inspect
import pickle
import pkgutil
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from epochal.runtime import spark as package
from epochal.runtime.spark import beside, expressions, held, jvm, placement, progress_fs, stream_plans
from epochal.runtime.spark.executors import await_executors, out_of_memory
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import Observed, PlanMetrics, executed_metrics, micros

pytestmark = pytest.mark.spark

WITHOUT_SPARK = {"background", "one_row"}
"""Modules that use nothing of Spark's own."""


def test_every_module_that_touches_the_jvm_is_tested_here() -> None:
    """And every function of it that others call."""
    tested = Path(__file__).read_text()
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(found.name)
        for name, one in inspect.getmembers(module, lambda one: inspect.isfunction(one) or inspect.isclass(one)):
            own = one.__module__ == found.name and not name.startswith("_") and not issubclass_of_error(one)
            if own and found.name.rsplit(".", 1)[1] not in WITHOUT_SPARK:
                assert re.search(rf"\b{name}\b", tested), f"{found.name}.{name} has no contract test"


def issubclass_of_error(one: Any) -> bool:
    return inspect.isclass(one) and issubclass(one, Exception)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(10, numPartitions=3).withColumn("key", F.col("id") % 2)


@pytest.fixture
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    frame, _ = held.hold(rows, PlanMetrics({"rows": F.count(F.lit(1))}), replicas=1)
    yield frame
    held.unpersist(frame)


# --- jvm ---


def test_the_jvm_is_reached(spark: SparkSession, rows: DataFrame) -> None:
    assert jvm.active_context() is spark.sparkContext
    assert jvm.jvm().java.lang.Math.max(1, 2) == 2
    assert jvm.scala_context(spark).applicationId() == spark.sparkContext.applicationId
    assert jvm.class_name(jvm.jvm().java.util.ArrayList()) == "ArrayList"
    assert jvm.scala_seq([1, 2]).mkString(",") == "1,2"
    assert list(jvm.iterate(jvm.scala_seq(["a", "b"]).iterator())) == ["a", "b"]
    assert jvm.class_name(jvm.scala_object("scala.collection.immutable.Nil")) == "Nil$"
    assert (jvm.milliseconds("3s"), jvm.milliseconds("2min"), jvm.milliseconds("7d")) == (3000, 120_000, 604_800_000)


def test_frames_and_columns_go_there_and_back(spark: SparkSession, rows: DataFrame) -> None:
    assert jvm.python_frame(jvm.scala_frame(rows), spark).columns == ["id", "key"]
    column = jvm.python_column(jvm.scala_column(F.col("id") + 1))
    assert rows.select(column.alias("x")).first() == (1,)


def test_what_a_job_fails_with_is_known(rows: DataFrame) -> None:
    with pytest.raises(jvm.SPARK_ERRORS) as caught:
        rows.select(F.raise_error(F.lit("no"))).collect()
    assert isinstance(caught.value, PySparkException)


KILLED_JVM = """
import time
from pyspark import SparkContext
from epochal.runtime.spark.jvm import jvm_exit_code

assert jvm_exit_code() is None, "there was no JVM yet"
SparkContext._ensure_initialized()
assert jvm_exit_code() is None, "it lives"
SparkContext._gateway.proc.kill()
SparkContext._gateway.proc.wait()
print("ended by", jvm_exit_code())
"""


def test_how_the_jvm_ended_is_known() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_JVM], capture_output=True, text=True, check=False)
    assert f"ended by {-signal.SIGKILL}" in done.stdout, done.stderr[-2000:]


def test_a_logger_says_errors_only(spark: SparkSession) -> None:
    log4j = jvm.jvm().org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("test.noisy", log4j.Level.WARN)
    logger = log4j.LogManager.getLogger("test.noisy.below")
    assert logger.isWarnEnabled()
    jvm.log_errors_only("test.noisy")
    assert not logger.isWarnEnabled()
    assert logger.isErrorEnabled()


def test_functions_of_modules_beside_a_program_are_sent_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lies_beside.py").write_text("def twice(x):\n    return 2 * x\n")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "meta_path", list(sys.meta_path))
        beside.find_modules_in(tmp_path)
        sent = cloudpickle.dumps(importlib.import_module("lies_beside").twice)  # type: ignore[no-untyped-call]
    # An executor has no such file.
    del sys.modules["lies_beside"]
    assert pickle.loads(sent)(2) == 4


# --- columns and metrics ---


def test_columns_are_described_once(rows: DataFrame) -> None:
    assert Prepared([F.col("key"), (F.col("id") * 2).alias("twice")]).select(rows).columns == ["key", "twice"]
    sums = Prepared([F.sum("id").alias("total"), F.count(F.lit(1)).alias("n")])
    assert sorted(sums.aggregate(rows, Prepared([F.col("key")])).collect()) == [(0, 20, 5), (1, 25, 5)]


def test_metrics_are_learnt_on_the_way(rows: DataFrame) -> None:
    metrics = PlanMetrics({"rows": F.count(F.lit(1)), "newest": F.max("id")})
    observed = Observed(rows, metrics)
    observed.frame.write.format("noop").mode("overwrite").save()
    assert observed.get() == {"rows": 10, "newest": 9}
    assert metrics.computed(rows) == {"rows": 10, "newest": 9}


def test_metrics_of_a_plan_that_is_held_are_there_at_once(rows: DataFrame) -> None:
    seen = Observed(rows, PlanMetrics({"newest": F.max("id")}))
    frame, found = held.hold(seen.frame, PlanMetrics({"rows": F.count(F.lit(1))}), replicas=1)
    assert found == {"rows": 10}
    assert seen._seen == {"newest": 9}, "the listener bus is not needed"
    assert not executed_metrics(frame).contains("epochal")
    held.unpersist(frame)


def test_times_are_microseconds(spark: SparkSession) -> None:
    row = spark.sql("SELECT timestamp '1970-01-01 00:00:01.000002Z' AS at").select(micros(F.col("at"))).first()
    assert row == (1_000_002,)


# --- frames that are held ---


def test_rows_are_held_until_they_are_let_go(spark: SparkSession, rows: DataFrame) -> None:
    before = blocks(spark)
    metrics = PlanMetrics({"rows": F.count(F.lit(1)), "most": F.max("id")})
    frame, found = held.hold(rows.withColumn("spare", F.lit(1)), metrics, replicas=1, without="spare")
    assert found == {"rows": 10, "most": 9}
    assert frame.columns == ["id", "key"]
    assert blocks(spark) == before + 1
    held.unpersist(frame)
    assert blocks(spark) == before


def blocks(spark: SparkSession) -> int:
    return int(jvm.scala_context(spark).getPersistentRDDs().size())


def test_what_is_empty_by_its_plan_is_counted(rows: DataFrame) -> None:
    assert held.hold(rows.where("false"), PlanMetrics({"rows": F.count(F.lit(1))}), replicas=1)[1] == {"rows": 0}


def test_columns_of_what_is_held_are_told_from_what_is_computed(rows: DataFrame, kept: DataFrame) -> None:
    assert held.only_columns(kept.select("key", F.col("id").alias("i")))
    assert held.only_columns(kept.withColumn("s", F.struct("id")).select("id")) is False
    assert not held.only_columns(kept.select(F.col("id") + 1))
    assert not held.only_columns(kept.where("id > 1"))
    assert not held.only_columns(rows.select("id"))


def test_the_tasks_of_what_is_held_are_known(rows: DataFrame, kept: DataFrame) -> None:
    assert held.tasks_of(kept) == 3
    assert held.tasks_of(rows) is None


# --- where tasks run ---


def test_where_blocks_are(spark: SparkSession, kept: DataFrame) -> None:
    """In one process; ``tests/exactly_once/test_several_executors.py`` has several."""
    assert placement.is_local(spark)
    assert placement.blocks_held_by(spark) == 1
    assert placement.executor_hosts(spark) == {}, "the driver is none"
    assert placement.executor_ids(spark) <= {"", "driver"}
    kept.count()
    assert placement.partition_owners(kept, 3) == ["driver"] * 3
    assert placement.partition_owners(kept, 4) is None, "nobody has a fourth"
    await_executors(spark)
    assert placement.removed_executors(spark) == {}
    assert out_of_memory(spark) == ""


def test_what_runs_and_what_is_held_is_known(spark: SparkSession, kept: DataFrame, rows: DataFrame) -> None:
    slow = threading.Thread(target=lambda: suppressed(rows.mapInPandas(_slow, "id long").collect), daemon=True)
    slow.start()
    deadline = time.monotonic() + 60
    while not placement.running_tasks(spark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert placement.running_tasks(spark) > 0
    spark.sparkContext.cancelAllJobs()
    slow.join(timeout=60)
    while placement.running_tasks(spark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert placement.running_tasks(spark) == 0
    kept.count()
    rows.cache().count()
    assert jvm.scala_context(spark).getPersistentRDDs().size() >= 2
    held.unpersist_all(spark)
    assert jvm.scala_context(spark).getPersistentRDDs().size() == 0


def suppressed(call: Callable[[], object]) -> None:
    with suppress(*jvm.SPARK_ERRORS):
        call()


def _slow(frames: Iterator[Any]) -> Iterator[Any]:
    time.sleep(30)
    yield from frames


def test_an_empty_frame_has_the_partitions_and_places_that_it_is_given(spark: SparkSession) -> None:
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), "id long").repartition(2, "id")
    frame = placement.located(empty, [["executor_here_1"], []])
    rdd = jvm.scala_frame(frame).queryExecution().logical().rdd()
    assert [rdd.preferredLocations(one).mkString() for one in rdd.partitions()] == ["executor_here_1", ""]
    assert frame.columns == ["id"]
    assert frame.collect() == []
    plan = jvm.scala_frame(frame).queryExecution().executedPlan()
    assert "hashpartitioning(id" in plan.outputPartitioning().toString()


# --- expressions ---


def test_calls_of_functions_are_taken_apart(rows: DataFrame) -> None:
    call = expressions.function_call(F.sum(F.col("id") + 1).alias("total"))
    assert call is not None
    assert (call.name, call.distinct) == ("sum", False)
    assert rows.select(call.arguments[0].alias("x")).first() == (1,)
    distinct = expressions.function_call(F.count_distinct("id"))
    assert distinct == expressions.FunctionCall("count", distinct.arguments if distinct else [], distinct=True)
    assert expressions.function_call(F.sum("id") + 1) is None or expressions.function_call(F.sum("id") + 1) != call
    assert expressions.function_call(F.col("id")) is None


def test_a_star_is_known() -> None:
    call = expressions.function_call(F.count("*"))
    assert call is not None
    assert [expressions.is_star(one) for one in (F.col("*"), F.col("id"))] == [True, False]


def test_decimals_are_divided_as_an_average_does(spark: SparkSession) -> None:
    rows = spark.sql("SELECT CAST(x AS DECIMAL(38, 18)) AS x FROM VALUES (1), (1), (2) AS t(x)")
    totals = rows.agg(F.sum("x").alias("s"), F.count("x").cast("decimal(20,0)").alias("n"), F.avg("x").alias("a"))
    kind = totals.schema["a"].dataType
    assert isinstance(kind, DecimalType)
    both = totals.select(expressions.divided(F.col("s"), F.col("n"), kind, ansi=True).alias("d"), "a").first()
    assert both is not None
    assert both.d == both.a


# --- streams ---


def test_the_options_of_file_sources_are_read(spark: SparkSession, tmp_path: Path) -> None:
    files = spark.readStream.schema("id long").option("maxFileAge", "3d").json(str(tmp_path))
    [options] = stream_plans.file_source_options(files.where("id > 1"))
    assert options["maxfileage"] == "3d"
    assert stream_plans.file_source_options(spark.readStream.format("rate").load()) == []


def test_records_of_kafka_keep_their_partition(spark: SparkSession) -> None:
    assert stream_plans.with_kafka_columns(spark.readStream.format("rate").load(), {"p": "partition"}) is None
    try:
        source = spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": "b:1", "subscribe": "t"}).load()
    except PySparkException as error:
        pytest.skip(f"this Spark has no Kafka connector: {str(error).splitlines()[0]}")
    upper = source.selectExpr("upper(value) AS text").where("text > ''")
    marked = stream_plans.with_kafka_columns(upper, {"p": "partition"})
    assert isinstance(marked, DataFrame)
    assert marked.columns == ["text", "p"]
    joined = stream_plans.with_kafka_columns(source.join(spark.range(1)), {"p": "partition"})
    assert joined == stream_plans.HiddenKafka("Join")


# --- files ---


def test_progress_logs_are_written_where_they_are_told(spark: SparkSession, tmp_path: Path) -> None:
    progress_fs.list_by_name(spark)
    uri = progress_fs.local_uri(spark, tmp_path / "log")
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", uri).trigger(availableNow=True).start()
    query.awaitTermination()
    written = {path.name for path in (tmp_path / "log" / "commits").iterdir()}
    assert "0" in written
    assert not [name for name in written if name.endswith(".crc")]


def test_directories_are_listed_by_name(spark: SparkSession, tmp_path: Path) -> None:
    progress_fs.list_by_name(spark)
    for name in ("b", "a", "d", "c"):
        (tmp_path / name).write_text(name)
    java = jvm.jvm()
    system = java.org.apache.hadoop.fs.FileSystem.get(
        java.java.net.URI.create("file:///"), jvm.scala_context(spark).hadoopConfiguration()
    )
    listed = system.listStatus(java.org.apache.hadoop.fs.Path(str(tmp_path)))
    assert [one.getPath().getName() for one in listed] == ["a", "b", "c", "d"]
