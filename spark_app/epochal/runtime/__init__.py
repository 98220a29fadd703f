"""The engine on Spark: a graph of operators that batches and barriers flow through, and state as immutable runs."""
