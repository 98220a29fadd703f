"""What is needed of Spark beyond its public API, each piece behind a function of its own.

Nothing else may touch py4j or names of Spark that begin with an underscore.
"""
