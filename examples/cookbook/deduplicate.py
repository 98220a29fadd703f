"""Orders that were sent more than once, each once."""

from epochal import Pipeline

ORDERS = "id long, customer string, item string, amount long, at timestamp"


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema(ORDERS).json(p.parameters["input"] + "/repeated"),
        event_time="at",
        delay="10 seconds",
        bounded=True,
    )
    once = orders.deduplicate("once", keys=["id"], within="10 minutes")
    once.to_parquet("out", p.parameters["output"])
