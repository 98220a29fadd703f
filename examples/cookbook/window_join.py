"""Orders that were paid in the same minute of the clock."""

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
    same_minute = orders.window_join("same_minute", payments, size="1 minute", keys=["id"])
    same_minute.to_parquet("out", p.parameters["output"])
