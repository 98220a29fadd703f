"""Tests; the directory of each mirrors what it tests."""
