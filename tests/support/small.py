"""Settings of Spark for tables of a few rows."""

SMALL_DELTA = {
    # Delta reads a table's log by a job of so many tasks, 50 by default: for a few lines.
    "spark.databricks.delta.snapshotPartitions": "1",
}
