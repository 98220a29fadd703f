"""Avro values from a Kafka topic, by the schema that they were written with: no schema registry is asked.

`spark-avro` must be on the driver's and executors' class path, beside Spark's Kafka source; see docs/connectors.md.
The same in SQL is kafka_avro.sql.
"""

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from epochal import Pipeline

SCHEMA = """
{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"},
  {"name": "country", "type": ["null", "string"]},
  {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
]}
"""


def build(p: Pipeline) -> None:
    records = (
        p.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", p.parameters["kafka"])
        .option("subscribe", p.parameters["orders"])
        .option("startingOffsets", "earliest")
        .load()
    )
    # PERMISSIVE: a value that cannot be read is a row of nulls. Left out, it fails the job.
    rows = records.select(from_avro("value", SCHEMA, {"mode": "PERMISSIVE"}).alias("order")).select("order.*")
    orders = p.source("orders", rows, event_time="ordered_at", delay="10 seconds", bounded=True)
    good, bad = orders.split("readable", F.col("id").isNotNull())
    good.to_parquet("out", p.parameters["output"])
    bad.to_parquet("bad", p.parameters["output"] + "/bad")
