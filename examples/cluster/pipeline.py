"""Orders and their payments, both made by a generator: joined, then counted by shop in windows of 10 seconds.

The generator's rows are a pure function of the batch's number, so `expected.py` can say what must come out, however
often driver and executors were lost on the way. Each micro-batch brings 5 seconds of event time.
"""

from pyspark.sql import functions as F

from epochal import Pipeline, Stream


def build(p: Pipeline) -> None:
    orders = _generated(p, "orders", seconds_later=0)
    if p.parameters.get("join", "false") == "true":
        payments = _generated(p, "payments", seconds_later=2).transform(
            "paid", lambda frame: frame.select("order", F.col("at").alias("paid_at")), event_time="paid_at"
        )
        orders = orders.join("settled", payments, keys=["order"], within=("0 seconds", "5 seconds"))
    revenue = orders.window(
        "revenue",
        size="10 seconds",
        keys=["shop"],
        aggregates={"orders": F.count("*"), "total": F.sum("amount")},
    )
    revenue.to_parquet("out", p.parameters["output"])


def _generated(p: Pipeline, name: str, *, seconds_later: int) -> Stream:
    """Order 0, 1, 2, …: a thing of `amount` bought in `shop` at `at`."""
    rows = (
        p.spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", p.parameters.get("rowsPerBatch", "100"))
        .option("numPartitions", "1")
        .option("startTimestamp", str(1_000 * seconds_later))
        .option("advanceMillisPerBatch", "5000")
        .load()
    )
    shop, amount = F.col("value") % 4, F.col("value") % 1000
    named = rows.select(
        F.col("value").alias("order"), F.col("timestamp").alias("at"), shop.alias("shop"), amount.alias("amount")
    )
    trigger = p.parameters.get("trigger", "500 milliseconds")
    # The generator never rests: a source without batches is one that is held up, and the other must wait for it.
    return p.source(name, named, event_time="at", trigger=trigger, idle_after="1 day")
