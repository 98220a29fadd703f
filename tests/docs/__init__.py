"""Tests of the pages themselves."""
