"""A job whose sinks do not survive the commit of its last epoch, as often as it is told."""

import os
import signal
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from epochal import Pipeline

SCHEMA = "id long, country string"


def build(p: Pipeline) -> None:
    rows = p.source("rows", p.spark.readStream.schema(SCHEMA).json(p.parameters["input"]), bounded=True)
    counts = rows.aggregate("per_country", keys=["country"], aggregates={"n": F.count("*")})
    fate = Path(p.parameters["fate"])

    def write(epoch_rows: DataFrame, epoch: int) -> None:
        """The next line of the file ``fate`` says what becomes of this commit."""
        how, *left = (fate.read_text().splitlines() if fate.exists() else []) or [""]
        fate.write_text("\n".join(left))
        if how == "kill before":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "fail":
            raise OSError("the target is away")
        target = Path(p.parameters["output"]) / "counts" / f"{epoch}.json"
        target.parent.mkdir(exist_ok=True)
        partial = target.with_suffix(".partial")
        partial.write_text("\n".join(f"{row['country']} {row['n']}" for row in epoch_rows.collect()))
        partial.rename(target)
        if how == "kill after":
            os.kill(os.getpid(), signal.SIGKILL)

    # Sinks commit in the order in which they were described: one is done, one is in the middle, one has not begun.
    rows.to_parquet("before", p.parameters["output"] + "/before")
    counts.for_each_epoch("counts", write)
    rows.to_parquet("after", p.parameters["output"] + "/after")
