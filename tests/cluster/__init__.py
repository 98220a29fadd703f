"""Tests of the cluster harness."""
