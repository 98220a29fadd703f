"""Windows whose rows are sent somewhere: what was sent cannot be taken back."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from epochal import Pipeline


def build(p: Pipeline) -> None:
    rows = p.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    numbers = p.source("numbers", rows, trigger="1 second")
    numbers.transform("few", lambda frame: frame.select(F.col("value"))).for_each_epoch("out", send)


def send(rows: DataFrame, epoch: int) -> None:
    print(f"epoch {epoch}: {rows.count()} rows sent", flush=True)
