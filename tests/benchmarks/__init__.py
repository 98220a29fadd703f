"""Tests of what the benchmarks compute from what they measure."""
