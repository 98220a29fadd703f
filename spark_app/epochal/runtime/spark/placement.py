"""Where Spark's tasks run, and where it holds what they gave."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from epochal.runtime.spark.jvm import iterate, jvm, python_frame, scala_context, scala_frame, scala_object


def is_local(spark: SparkSession) -> bool:
    """Whether all is done by one process."""
    return bool(scala_context(spark).isLocal())


def blocks_held_by(spark: SparkSession) -> int:
    """How many processes hold blocks; the driver is one of them."""
    return int(scala_context(spark).getExecutorMemoryStatus().size())


def executor_ids(spark: SparkSession) -> set[str]:
    """The executors that are there."""
    return set(scala_context(spark).getExecutorIds().mkString(",").split(","))


def executor_hosts(spark: SparkSession) -> dict[str, str]:
    """The hosts of the executors that hold blocks, by the executors' ids."""
    manager = scala_context(spark).env().blockManager()
    managers = iterate(manager.master().getMemoryStatus().keysIterator())
    there = {str(one.executorId()): str(one.host()) for one in managers}
    there.pop(str(manager.blockManagerId().executorId()))
    return there


def running_tasks(spark: SparkSession) -> int:
    """How many tasks run on executors that are there, also of jobs that were told to end."""
    return sum(map(int, iterate(scala_context(spark).taskScheduler().runningTasksByExecutors().valuesIterator())))


def removed_executors(spark: SparkSession) -> dict[str, str]:
    """The executors that are gone, each with why, as far as Spark knows."""
    found = iterate(scala_context(spark).statusStore().executorList(False).iterator())
    return {str(one.id()): str(one.removeReason().get()) for one in found if one.removeReason().isDefined()}


def partition_owners(held: DataFrame, partitions: int) -> list[str] | None:
    """The executor that holds each partition of a frame; None unless that is one for each."""
    number = scala_frame(held).queryExecution().logical().rdd().id()
    master = scala_context(held.sparkSession).env().blockManager().master()
    block = jvm().org.apache.spark.storage.RDDBlockId
    found = [master.getLocations(block(number, partition)) for partition in range(partitions)]
    if any(one.size() != 1 for one in found):
        return None
    return [str(one.apply(0).executorId()) for one in found]


def located(like: DataFrame, locations: Sequence[Sequence[str]]) -> DataFrame:
    """An empty frame with a given partitioning, and preferred locations for each partition."""
    java, spark = jvm(), like.sparkSession
    collections = java.scala.jdk.javaapi.CollectionConverters
    preferred = java.java.util.HashMap()
    for number, places in enumerate(locations):
        preferred.put(number, collections.asScala(java.java.util.ArrayList(places)).toSeq())
    row = java.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    rdd = java.org.apache.spark.rdd.ParallelCollectionRDD(
        scala_context(spark),
        collections.asScala(java.java.util.ArrayList()).toSeq(),
        len(locations),
        collections.asScala(preferred),
        java.scala.reflect.ClassTag.apply(row),
    )
    frame = scala_frame(like)
    plan = scala_object("org.apache.spark.sql.execution.LogicalRDD").fromDataset(rdd, frame, False)
    return python_frame(scala_object("org.apache.spark.sql.classic.Dataset").ofRows(frame.sparkSession(), plan), spark)
