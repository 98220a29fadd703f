"""Waiting for executors, where it matters: state stays where it is first put, so most of them should be there then.

Spark would wait for them before it does anything; a job is described and its generation claimed meanwhile. And what
Spark knows of those that are gone.
"""

import math
import time

from pyspark.sql import SparkSession

from epochal.runtime.spark.placement import blocks_held_by, removed_executors

SHARE = 0.8
"""Of all executors: Spark's own measure on Kubernetes."""

LONGEST_WAIT = 30.0
"""Seconds; as Spark. Then the job begins with those that are there, and its tasks wait for the first."""


def await_executors(spark: SparkSession, share: float = SHARE) -> None:
    """``share``: of all executors, and at least one."""
    instances = int(spark.sparkContext.getConf().get("spark.executor.instances") or 0)
    wanted = min(instances, max(1, math.ceil(share * instances)))
    deadline = time.monotonic() + LONGEST_WAIT
    # The driver is among those that hold blocks.
    while wanted and blocks_held_by(spark) - 1 < wanted and time.monotonic() < deadline:
        time.sleep(0.05)


def out_of_memory(spark: SparkSession) -> str:
    """Which executors Kubernetes has killed for want of memory, and what to do about it; empty if none."""
    killed = [one for one, why in removed_executors(spark).items() if "OOMKilled" in why]
    if not killed:
        return ""
    return f"executors out of memory (OOMKilled): {', '.join(killed)}; raise spec.executor.memory"
