"""The orders of `examples/cluster`, from a generator or from a topic of Kafka, counted by shop in windows of 10
seconds: into a table of PostgreSQL or a topic of Kafka. `examples/cluster/expected.py` knows what must come out."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal import Pipeline


def build(p: Pipeline) -> None:
    kafka = p.parameters.get("kafka")
    numbers = _from_topic(p, kafka) if kafka else _generated(p)
    orders = p.source("orders", _orders(numbers), event_time="at", trigger="3 seconds", idle_after="1 day")
    counts = {"orders": F.count("*"), "total": F.sum("amount")}
    revenue = orders.window("revenue", size="10 seconds", keys=["shop"], aggregates=counts)
    if kafka:
        revenue.to_kafka("out", kafka, p.parameters["output"], key="shop", value=_value())
    else:
        revenue.to_postgres("out", p.parameters["postgres"], p.parameters["output"])


def _orders(numbers: DataFrame) -> DataFrame:
    number, each = F.col("value"), F.lit(5).cast("long")
    # Each micro-batch of the generator has 5 seconds of event time, whatever batches a topic is read in.
    at = F.timestamp_seconds(F.floor(number / F.col("per_batch")) * each)
    return numbers.select(at.alias("at"), (number % 4).alias("shop"), (number % 1000).alias("amount"))


def _generated(p: Pipeline) -> DataFrame:
    rows = p.parameters["rows"]
    options = {"rowsPerBatch": rows, "numPartitions": "1", "startTimestamp": "0", "advanceMillisPerBatch": "5000"}
    numbers = p.spark.readStream.format("rate-micro-batch").options(**options).load()
    return numbers.select("value", F.lit(int(rows)).alias("per_batch"))


def _from_topic(p: Pipeline, kafka: str) -> DataFrame:
    rows = p.parameters["rows"]
    options = {"subscribe": p.parameters["input"], "startingOffsets": "earliest", "maxOffsetsPerTrigger": rows}
    records = p.spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka).options(**options).load()
    number = F.col("value").cast("string").cast("long")
    return records.select(number.alias("value"), F.lit(int(rows)).alias("per_batch"))


def _value() -> Column:
    return F.to_json(F.struct(F.unix_seconds("window_start").alias("window_start"), "shop", "orders", "total"))
