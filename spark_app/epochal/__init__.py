"""Epochal: checkpoints for PySpark streaming that are separate from micro-batches."""

from importlib.metadata import version

__version__ = version("epochal")
