"""The JVM that Spark runs in, by py4j. Only modules beside this one use it."""

from collections.abc import Iterable, Iterator
from typing import Any

import py4j
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

SPARK_ERRORS = (PySparkException, Py4JError)
"""What a job of Spark's fails with, however it failed."""

JAVA_BRIDGE = py4j
"""The library that calls the JVM. Its logger, of the same name, tells of each call."""


def active_context() -> Any:
    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError("Spark is not running")
    return context


def jvm() -> Any:
    """The packages of the JVM of this process's Spark."""
    return active_context()._jvm


def jvm_exit_code() -> int | None:
    """How this process's JVM ended, a signal as a negative number; None while it lives, or if there never was one."""
    process = getattr(SparkContext._gateway, "proc", None)
    code: int | None = None if process is None else process.poll()
    return code


def log_errors_only(*loggers: str) -> None:
    """Let these loggers of the JVM, and those below them, say nothing but errors."""
    log4j = jvm().org.apache.logging.log4j
    for name in loggers:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def scala_context(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc()


def scala_frame(frame: DataFrame) -> Any:
    java: Any = frame._jdf
    return java


def scala_column(column: Column) -> Any:
    java: Any = column._jc
    return java


def python_frame(java: Any, spark: SparkSession) -> DataFrame:
    return ClassicDataFrame(java, spark)


def python_column(java: Any) -> Column:
    return ClassicColumn(java)


def scala_seq(items: Iterable[Any]) -> Any:
    return _to_seq(active_context(), list(items))


def scala_object(name: str) -> Any:
    """A Scala object, given the name that it has there."""
    return getattr(getattr(jvm(), f"{name}$"), "MODULE$")


def class_name(java: Any) -> str:
    return str(java.getClass().getSimpleName())


def iterate(items: Any) -> Iterator[Any]:
    """What a Scala iterator gives."""
    while items.hasNext():
        yield items.next()


def milliseconds(duration: str) -> int:
    """A duration as Spark's settings have it."""
    return int(jvm().org.apache.spark.network.util.JavaUtils.timeStringAsMs(duration))
