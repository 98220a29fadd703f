"""The graph at work: sources, operators, sinks, and the batches, watermarks and barriers between them.

May use state and Spark; knows nothing of the store, and of checkpoints only the account that each one keeps.
"""
