"""Spark as a driver sets it up, for benchmarks that run in one process with it."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from epochal.driver import JVM, PARTITIONS, SPARK_DEFAULTS

MEMORY = "4g"

OPENED = "--add-opens=java.management/com.sun.jmx.mbeanserver=ALL-UNNAMED"
"""Through this the JVM can be asked which objects are alive."""


def spark_session(name: str, conf: Mapping[str, str] | None = None, *, defaults: bool = True) -> SparkSession:
    """``defaults``: with the settings of Epochal's driver. The JVM's are as good for plain Spark."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The heap is fixed when the JVM starts, so it cannot be set on the builder.
    memory = (conf or {}).get("spark.driver.memory", MEMORY)
    options = " ".join([OPENED, *JVM])
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {memory} --driver-java-options '{options}' pyspark-shell"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        PARTITIONS: "2",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    builder = SparkSession.builder.master((conf or {}).get("spark.master", "local[2]")).appName(name)
    for key, value in (settings | (SPARK_DEFAULTS if defaults else {}) | dict(conf or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
