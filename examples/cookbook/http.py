"""Large orders to a web server, at least once: it can tell a request that comes again by its Idempotency-Key."""

from epochal import Pipeline


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema("id long, country string, ordered_at timestamp, amount double").json(
            p.parameters["input"]
        ),
        bounded=True,
    )
    large = orders.transform("large", lambda frame: frame.where("amount >= 100"))
    large.to_http("out", p.parameters["url"], headers={"Authorization": f"Bearer {p.parameters['token']}"})
