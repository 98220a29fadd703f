"""Measurements; each module is a program: `python -m benchmarks.<name>`."""
