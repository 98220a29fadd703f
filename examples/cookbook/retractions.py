"""How many customers have ordered once, twice, three times: an aggregate of an aggregate. When a customer orders again,
the first one takes back its old row, so the second one counts that customer once."""

from pyspark.sql import functions as F

from epochal import Pipeline


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema("customer string").option("maxFilesPerTrigger", 1).json(p.parameters["input"]),
        bounded=True,
    )
    per_customer = orders.aggregate(
        "per-customer", keys=["customer"], aggregates={"orders": F.count("*")}, retractions=True
    )
    customers = per_customer.aggregate(
        "customers", keys=["orders"], aggregates={"customers": F.count("*")}, retractions=True
    )
    customers.to_parquet("out", p.parameters["output"])
