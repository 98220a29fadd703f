"""Orders into a Delta Lake table, a directory for each country."""

from epochal import Pipeline


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema("id long, country string, ordered_at timestamp, amount double").json(
            p.parameters["input"]
        ),
        bounded=True,
    )
    orders.to_delta("out", p.parameters["table"], partition_by=["country"])
