"""The item that brought the most in each minute."""

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
    items = orders.window("items", size="1 minute", keys=["item"], aggregates={"total": F.sum("amount")})
    best = items.top_n("best", n=1, order_by=[F.col("total").desc()])
    best.to_parquet("out", p.parameters["output"])
