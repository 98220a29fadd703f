"""Makes a JVM load what drivers and executors load, so that it can write an archive of those classes at its end.

A JVM that starts from such an archive has them without looking through 300 jars: drivers and executors are up in
little more than half the time. For the images, and for the tests.
"""
# ruff: noqa: INP001, SLF001  a program that stands for itself; Spark has no public way to load a class

import os
import sys
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

EXECUTOR = (
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend$",
)
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def start(master: str, settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("warm-up")
    for key, value in (QUIET | settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def batch(rows: DataFrame, _: int) -> None:
    """Work of the kind that operators do: shuffles, joins, Python, state that is kept."""
    rows.createOrReplaceTempView("rows")
    sums = rows.selectExpr("value % 7 AS key", "value").groupBy("key").agg({"value": "sum"})
    kept = sums.localCheckpoint()
    kept.mapInArrow(same, kept.schema).join(rows.selectExpr("value AS key"), "key", "left").collect()


def stream(archive: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = {
            "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": directory,
        }
        spark = start("local[2]", settings)
        for name in EXECUTOR:
            spark.sparkContext._jvm.java.lang.Class.forName(name)
        query = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 100)
            .load()
            .writeStream.foreachBatch(batch)
            .option("checkpointLocation", f"{directory}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        spark.stop()


def ask_for_executors() -> None:
    """Load the client of Kubernetes, on the way to an API server that is not there."""
    try:
        start("k8s://http://127.0.0.1:1", {"spark.kubernetes.container.image": "none"}).stop()
    except Exception as error:
        print(f"no API server, as expected: {str(error).splitlines()[0]}")


def main(archive: str) -> None:
    # For the JVM, which is started once; it would look for a Python of its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["KUBERNETES_REQUEST_RETRY_BACKOFFLIMIT"] = "0"
    stream(archive)
    jvm = SparkContext._gateway.proc
    # Last, because Spark may end the JVM over it.
    ask_for_executors()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    main(sys.argv[1])
