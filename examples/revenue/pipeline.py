"""Revenue per country and minute, of orders that were paid within two minutes: two streams, a join, windows."""

from pyspark.sql import functions as F

from epochal import Pipeline

ORDERS = "order_id long, country string, ordered_at timestamp, amount decimal(10,2)"
PAYMENTS = "order_id long, paid_at timestamp"


def build(p: Pipeline) -> None:
    files = {"maxFilesPerTrigger": p.parameters.get("filesPerBatch", "1")}
    orders = p.source(
        "orders",
        p.spark.readStream.schema(ORDERS).options(**files).json(p.parameters["input"] + "/orders"),
        event_time="ordered_at",
        delay="20 seconds",
        bounded=True,
    )
    payments = p.source(
        "payments",
        p.spark.readStream.schema(PAYMENTS).options(**files).json(p.parameters["input"] + "/payments"),
        event_time="paid_at",
        delay="20 seconds",
        bounded=True,
    )
    paid = orders.join("paid", payments, keys=["order_id"], within=("0 seconds", "2 minutes"))
    revenue = paid.window(
        "revenue",
        size="1 minute",
        keys=["country"],
        aggregates={"orders": F.count("*"), "revenue": F.sum("amount"), "largest": F.max("amount")},
    )
    revenue.to_parquet("out", p.parameters["output"])
