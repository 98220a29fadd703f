"""Numbers by key, on executors. With ``sinks: away`` they go to a database and a broker that nobody runs, and whose
passwords come by environment."""

import os

from pyspark.sql import functions as F

from epochal import Pipeline


def build(p: Pipeline) -> None:
    rows = p.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "100").option("numPartitions", "2")
    keyed = rows.load().select("timestamp", (F.col("value") % 7).alias("key"), "value")
    events = p.source("events", keyed, event_time="timestamp", trigger="500 milliseconds")
    totals = events.aggregate("totals", keys=["key"], aggregates={"n": F.count("*"), "total": F.sum("value")})
    if p.parameters.get("sinks") != "away":
        totals.to_parquet("out", p.parameters["output"])
        return
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "job",
        "sasl.password": os.environ["BROKER_PASSWORD"],
    }
    text = F.to_json(F.struct("key", "n", "total"))
    totals.to_kafka("broker", "127.0.0.1:1", "totals", value=text, options=login)
    events.to_postgres("database", os.environ["DATABASE"], "numbers")
