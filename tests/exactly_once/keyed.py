"""A pipeline whose state is looked up by key, over a source that Spark reads by one task."""

from pyspark.sql import functions as F

from epochal import Pipeline
from tests.exactly_once.pipeline import ORDERS


def build(p: Pipeline) -> None:
    rows = p.spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", 1).json(p.parameters["input"] + "/orders")
    orders = p.source("orders", rows, event_time="ordered_at", delay="40 seconds", bounded=True)
    totals = orders.aggregate("per_country", keys=["country"], aggregates={"n": F.count("*"), "total": F.sum("amount")})
    totals.to_parquet("totals", p.parameters["output"] + "/totals")
    orders.deduplicate("once", keys=["id"]).to_parquet("paid", p.parameters["output"] + "/paid")
