"""Durations as people write them."""

from datetime import timedelta

import pytest

from epochal.runtime.durations import Duration, to_micros
from epochal.runtime.errors import PipelineError


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        ("100 ms", 100_000),
        ("1 us", 1),
        ("7 s", 7_000_000),
        ("2 m", 120_000_000),
        ("3 mins", 180_000_000),
        ("10 seconds", 10_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("-0.5 Seconds", -500_000),
        ("1 week", 7 * 86_400_000_000),
        (1.5, 1_500_000),
        (timedelta(milliseconds=3), 3_000),
    ],
)
def test_a_duration_is_what_it_says(written: Duration, micros: int) -> None:
    assert to_micros(written) == micros


@pytest.mark.parametrize("written", ["soon", "10", "5 parsecs", "", "ms"])
def test_what_is_no_duration_is_told(written: str) -> None:
    with pytest.raises(PipelineError, match="is not a duration"):
        to_micros(written)
