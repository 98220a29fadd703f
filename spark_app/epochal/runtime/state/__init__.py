"""Tables, their immutable runs, and both of a run's forms: with executors, and as Parquet in the store.

Knows nothing of graphs and barriers.
"""
