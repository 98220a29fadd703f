"""Orders into an Iceberg table. The catalog is one of SQLite here, which suits one machine; see docs/connectors.md."""

from epochal import Pipeline


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema("id long, country string, ordered_at timestamp, amount double").json(
            p.parameters["input"]
        ),
        bounded=True,
    )
    catalog = {"type": "sql", "uri": p.parameters["catalog"], "warehouse": p.parameters["warehouse"]}
    orders.to_iceberg("out", "shop.orders", catalog=catalog)
