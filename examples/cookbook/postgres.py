"""Orders into a table of PostgreSQL, and totals that are kept up to date there by key.

CREATE TABLE orders (id bigint, country text, ordered_at timestamptz, amount double precision);
CREATE TABLE totals (country text PRIMARY KEY, orders bigint, revenue double precision);
"""

from pyspark.sql import functions as F

from epochal import Pipeline


def build(p: Pipeline) -> None:
    orders = p.source(
        "orders",
        p.spark.readStream.schema("id long, country string, ordered_at timestamp, amount double").json(
            p.parameters["input"]
        ),
        event_time="ordered_at",
        bounded=True,
    )
    # Without a password: PostgreSQL's client takes it from PGPASSWORD, or from a passfile.
    dsn = p.parameters["dsn"]
    orders.to_postgres("orders_out", dsn, "orders")
    totals = orders.aggregate(
        "totals", keys=["country"], aggregates={"orders": F.count("*"), "revenue": F.sum("amount")}
    )
    totals.to_postgres("totals_out", dsn, "totals", mode="upsert", keys=["country"])
