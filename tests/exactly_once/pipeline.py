"""One pipeline with every kind of state, each kind with a sink of its own: a kill tests all of them at once."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal import Pipeline, Stream
from epochal.runtime.dataflow.operator import MAIN, Batch, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.state.tables import GlobalTable, KeyedTimeTable

ORDERS = "id long, country string, ordered_at timestamp, amount long"
PAYMENTS = "id long, paid_at timestamp"
DELAY = "40 seconds"
SINKS = ("windows", "totals", "paid", "numbered")


class NumberedOnce(Operator):
    """Passes each order on once, however often it was sent, with a number that counts up without a gap.

    Ids are kept in a table that expires; the last number given is in a small table.
    """

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return _NumberedOnce(ctx.empty(inputs[0]).select(F.lit(1).alias("number"), "id").schema)


class _NumberedOnce(BoundOperator):
    KEPT = 120 * 1_000_000

    def __init__(self, output: StructType) -> None:
        self._seen = KeyedTimeTable("seen")
        self._last = GlobalTable("last")
        super().__init__({MAIN: output}, [self._seen, self._last])

    def process(self, batch: Batch, out: Collector) -> None:
        new = batch.frame.select("id", "ordered_at").dropDuplicates(["id"])
        seen = self._seen.read()
        if seen is not None:
            new = new.join(seen.select("id"), "id", "left_anti")
        added = self._seen.append(new, F.col("ordered_at"))
        last = self._last.get("number", 0)
        if added.rows:
            place = F.row_number().over(Window.orderBy("id"))
            out.emit(added.frame.select((place + F.lit(last)).alias("number"), "id"))
            self._last.put("number", last + added.rows)
        self._seen.merge_small(lambda rows: rows, F.col("ordered_at"))

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        self._seen.expire(before=watermark - self.KEPT)


def build(p: Pipeline) -> None:
    # Each generation may find another number here: state carries no partition count.
    p.spark.conf.set("spark.sql.shuffle.partitions", Path(p.parameters["partitions"]).read_text().strip())
    orders = _source(p, "orders", ORDERS, "ordered_at")
    payments = _source(p, "payments", PAYMENTS, "paid_at")
    totals = {"n": F.count("*"), "total": F.sum("amount")}
    results = {
        "windows": orders.window("per_window", size="30 seconds", keys=["country"], aggregates=totals),
        "totals": orders.aggregate("per_country", keys=["country"], aggregates=totals),
        "paid": orders.join("orders_paid", payments, keys=["id"], within=("0 seconds", "10 seconds")),
        "numbered": orders.apply("once", NumberedOnce()),
    }
    for name, stream in results.items():
        stream.to_parquet(name, f"{p.parameters['output']}/{name}")


def _source(p: Pipeline, name: str, schema: str, event_time: str) -> Stream:
    if "kafka" in p.parameters:
        stream = (
            p.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", p.parameters["kafka"])
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 80)
            .load()
            .select(F.from_json(F.col("value").cast("string"), schema).alias("row"))
            .select("row.*")
        )
    else:
        stream = (
            p.spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .json(str(Path(p.parameters["input"]) / name))
        )
    return p.source(name, stream, event_time=event_time, delay=DELAY, bounded=True)
