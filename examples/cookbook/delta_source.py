"""New rows of a Delta Lake table, as they are added, each once; and their countries' names out of another one.

Delta's archives must be on the driver's and executors' class path; see docs/connectors.md. The same in SQL is
delta_source.sql.
"""

from epochal import Pipeline


def build(p: Pipeline) -> None:
    rows = p.spark.readStream.format("delta").option("maxFilesPerTrigger", 100).load(p.parameters["table"])
    orders = p.source("orders", rows)
    named = orders.lookup(
        "named",
        lambda spark: spark.read.format("delta").load(p.parameters["countries"]),
        keys=["country"],
        how="left",
        refresh="10 minutes",
    )
    named.to_parquet("out", p.parameters["output"])
