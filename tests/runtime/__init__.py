"""Tests of the engine on Spark and its control server."""
