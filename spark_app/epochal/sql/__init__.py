"""Pipelines as SQL text: read with sqlglot, planned onto the operators of :mod:`epochal.api.pipeline`, the rest left to
Spark SQL. See docs/sql.md."""
