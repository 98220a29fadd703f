"""Orders with their payment, if one came within a minute; without one, when it can come no more."""

from epochal import Pipeline

ORDERS = "id long, customer string, item string, amount long, at timestamp"
PAYMENTS = "id long, paid_at timestamp"


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema(ORDERS).json(p.parameters["input"] + "/orders"),
        event_time="at",
        delay="10 seconds",
        bounded=True,
    )
    payments = p.source(
        "payments",
        p.spark.readStream.schema(PAYMENTS).json(p.parameters["input"] + "/payments"),
        event_time="paid_at",
        delay="10 seconds",
        bounded=True,
    )
    paid = orders.join("paid", payments, keys=["id"], within=("0 seconds", "1 minute"), how="left")
    paid.to_parquet("out", p.parameters["output"])
