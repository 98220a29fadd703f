"""Which aggregates can be merged, by the names that Spark gives them: how is in :mod:`epochal.operators.aggregates`.

SQL is planned by these names, so without Spark.
"""

TAKE_BACK = ("sum", "count", "avg", "mean", "bool_and", "bool_or")
"""Aggregates that a row can be taken out of again."""

MERGED = (
    *TAKE_BACK,
    "min",
    "max",
    "hll_sketch_agg",
    "stddev",
    "stddev_samp",
    "std",
    "stddev_pop",
    "variance",
    "var_samp",
    "var_pop",
)
"""Aggregates that are kept as partials. Of others the rows are kept."""
