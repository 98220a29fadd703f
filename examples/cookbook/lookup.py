"""Orders with their customer's country, from a table that is read again every ten minutes."""

from pyspark.sql import DataFrame, SparkSession

from epochal import Pipeline

ORDERS = "id long, customer string, item string, amount long, at timestamp"


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema(ORDERS).json(p.parameters["input"] + "/orders"),
        event_time="at",
        delay="10 seconds",
        bounded=True,
    )

    def customers(spark: SparkSession) -> DataFrame:
        return spark.read.schema("customer string, country string").json(p.parameters["input"] + "/customers")

    with_country = orders.lookup("countries", customers, keys=["customer"], how="left", refresh="10 minutes")
    with_country.to_parquet("out", p.parameters["output"])
