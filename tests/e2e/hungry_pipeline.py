"""Takes more memory than its pod may have: the driver's when it is described, or an executor's when it runs."""

from collections.abc import Iterator

import pyarrow as pa

from epochal import Pipeline

MORE = 8 << 30


def build(p: Pipeline) -> None:
    where = p.parameters["where"]
    if where == "driver":
        take()
    rows = p.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    numbers = p.source("numbers", rows, trigger="1 second")
    numbers.transform("hungry", lambda frame: frame.mapInArrow(hungry, frame.schema)).to_parquet(
        "out", p.parameters["output"]
    )


def hungry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        take()
        yield batch


def take() -> None:
    memory = bytearray(MORE)
    # Memory counts when it is written to.
    for at in range(0, MORE, 4096):
        memory[at] = 1
