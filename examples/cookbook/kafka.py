"""From one Kafka topic to another, exactly once: JSON in the values, and where a record comes from in a header.

Spark's Kafka source must be on the driver's and executors' class path; see docs/connectors.md.
"""

from pyspark.sql import functions as F

from epochal import Pipeline, Stream

SCHEMA = "id long, country string, ordered_at timestamp, amount long"


def orders(p: Pipeline) -> Stream:
    records = (
        p.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", p.parameters["kafka"])
        .option("subscribe", p.parameters["orders"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", p.parameters.get("recordsPerBatch", "10000"))
        .option("includeHeaders", True)
        .load()
    )
    origin = F.filter("headers", lambda header: header["key"] == "origin")[0]["value"].cast("string")
    rows = records.select(
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"), origin.alias("origin")
    ).select("row.*", "origin")
    return p.source("orders", rows, event_time="ordered_at", delay="10 seconds", bounded=True)


def to_topic(p: Pipeline, stream: Stream) -> None:
    """Records with equal keys stay in order: they meet in one partition."""
    stream.to_kafka("kafka_out", p.parameters["kafka"], p.parameters["topic"], key="id")


def build(p: Pipeline) -> None:
    to_topic(p, orders(p))
