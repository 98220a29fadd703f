"""What becomes of baskets: ordered, or left because the customer did nothing for ten minutes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from epochal import KeyContext, KeyedFunction, Pipeline, Timer, list_state, value_state


class Baskets(KeyedFunction):
    """State is the customer's own: what is in the basket, and until when it is waited for."""

    def process(self, key: Any, rows: pa.Table, ctx: KeyContext) -> Iterator[dict[str, Any]]:
        (customer,) = key
        items, deadline = ctx.list("items"), ctx.value("deadline")
        for row in rows.to_pylist():
            if deadline.exists():
                ctx.delete_timer(deadline.get())
            if row["action"] == "order":
                yield {"customer": customer, "became": "ordered", "items": items.get(), "at": row["at"]}
                ctx.clear()
            else:
                items.append(row["item"])
                deadline.update(row["at"] + timedelta(minutes=10))
                ctx.register_timer(deadline.get())

    def on_timer(self, key: Any, timer: Timer, ctx: KeyContext) -> pa.Table:
        (customer,) = key
        items = ctx.list("items").get()
        ctx.clear()
        return pa.table({"customer": [customer], "became": ["left"], "items": [items], "at": [timer.at]})


def build(p: Pipeline) -> None:
    clicks = p.source(
        "clicks",
        p.spark.readStream.schema("customer string, action string, item string, at timestamp").json(
            p.parameters["input"]
        ),
        event_time="at",
        delay="1 minute",
        bounded=True,
    )
    baskets = clicks.apply_in_arrow(
        "baskets",
        Baskets,
        keys=["customer"],
        schema="customer string, became string, items array<string>, at timestamp",
        state={"items": list_state("string"), "deadline": value_state("timestamp", ttl="7 days")},
    )
    baskets.to_parquet("out", p.parameters["output"])
