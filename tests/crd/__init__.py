"""Tests of the CRD against a real API server."""
