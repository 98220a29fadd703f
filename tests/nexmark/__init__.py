"""Tests of the Nexmark generator and queries."""
