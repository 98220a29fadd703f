"""Each customer's two largest orders so far, whenever they change."""

from pyspark.sql import functions as F

from epochal import Pipeline

ORDERS = "id long, customer string, item string, amount long, at timestamp"


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema(ORDERS).json(p.parameters["input"] + "/orders"),
        event_time="at",
        delay="10 seconds",
        bounded=True,
    )
    largest = orders.running_top_n("largest", n=2, order_by=[F.col("amount").desc()], keys=["customer"])
    largest.to_parquet("out", p.parameters["output"])
