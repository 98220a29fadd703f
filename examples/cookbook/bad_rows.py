"""Lines that are no orders go to a place of their own."""

from pyspark.sql import functions as F

from epochal import Pipeline

ORDERS = "id long, customer string, item string, amount long, at timestamp"


def build(p: Pipeline) -> None:
    lines = p.source("lines", p.spark.readStream.text(p.parameters["input"] + "/raw"), bounded=True)
    parsed = lines.transform("parsed", lambda rows: rows.withColumn("order", F.from_json("value", ORDERS)))
    good, bad = parsed.split("good", F.col("order.id").isNotNull())
    good.transform("orders", lambda rows: rows.select("order.*")).to_parquet("out", p.parameters["output"])
    bad.transform("lines_only", lambda rows: rows.select("value")).to_parquet("bad", p.parameters["output"] + "/bad")
