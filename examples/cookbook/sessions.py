"""Visits: a customer's orders, none more than two minutes after the one before."""

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
    visits = orders.session_window(
        "visits",
        gap="2 minutes",
        keys=["customer"],
        aggregates={"orders": F.count("*"), "total": F.sum("amount")},
    )
    visits.to_parquet("out", p.parameters["output"])
