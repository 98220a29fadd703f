"""Events of a generator that Spark reads by one task: a count and a sum of each key, and the first event of each key.
Both are state that is looked up by key."""

from pyspark.sql import functions as F

from epochal import Pipeline


def build(p: Pipeline) -> None:
    rows = p.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "200").option("numPartitions", "1")
    events = p.source(
        "events",
        rows.load().select("timestamp", (F.col("value") % 90).alias("key"), "value"),
        event_time="timestamp",
        trigger="500 milliseconds",
    )
    counts = {"n": F.count("*"), "total": F.sum("value")}
    totals = events.aggregate("totals", keys=["key"], aggregates=counts)
    totals.to_parquet("updates", p.parameters["output"] + "/totals")
    pairs = events.transform("pairs", lambda frame: frame.withColumn("id", F.floor(F.col("value") / 2)))
    pairs.deduplicate("once", keys=["id"]).to_parquet("first", p.parameters["output"] + "/first")
