"""Orders with the weather where they come from: a service is asked about each, many at a time. Orders that it cannot
tell about go elsewhere, with the reason."""

import asyncio
from typing import Any

from epochal import Pipeline

WEATHER = {"de": "rain", "fr": "sun"}


class Weather:
    """Made once in each task of an executor. A client's session (of aiohttp, httpx, …) is opened and closed here."""

    async def open(self) -> None:
        self.asked = 0

    async def __call__(self, order: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0)  # here the service would be asked
        return {"weather": WEATHER[order["country"]]}

    async def close(self) -> None:
        self.asked = 0


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders", p.spark.readStream.schema("id long, country string").json(p.parameters["input"]), bounded=True
    )
    told = orders.enrich_async(
        "weather",
        Weather,
        schema="weather string",
        concurrency=50,
        timeout="2 seconds",
        retries=1,
        on_error="side",
    )
    told.to_parquet("out", p.parameters["output"])
    told.failed.to_parquet("failed", p.parameters["failed"])
