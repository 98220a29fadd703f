"""Durations as people write them: "10 seconds", "1 minute 30 seconds", "500 ms", or seconds as a number."""

import re
from datetime import timedelta

from epochal.runtime.errors import PipelineError

Duration = str | int | float | timedelta

_UNITS = {
    "us": 1, "microsecond": 1, "ms": 1_000, "millisecond": 1_000, "s": 10**6, "second": 10**6, "m": 60 * 10**6,
    "min": 60 * 10**6, "minute": 60 * 10**6, "h": 3600 * 10**6, "hour": 3600 * 10**6, "d": 86400 * 10**6,
    "day": 86400 * 10**6, "week": 7 * 86400 * 10**6,
}  # fmt: skip
_PART = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def to_micros(duration: Duration) -> int:
    """Microseconds. A number is seconds."""
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1e6)
    if isinstance(duration, int | float):
        return round(duration * 1e6)
    total, position = 0, 0
    while position < len(duration):
        match = _PART.match(duration, position)
        unit = None if match is None else _unit(match[2].lower())
        if match is None or unit is None:
            raise PipelineError(
                f"{duration!r} is not a duration: write for example '10 seconds', '5 minutes' or '1 hour'"
            )
        total += round(float(match[1]) * unit)
        position = match.end()
    if position == 0:
        raise PipelineError("an empty string is not a duration: write for example '10 seconds'")
    return total


def _unit(name: str) -> int | None:
    """A unit, also in the plural. The name as it is comes first: "ms" is no plural of "m"."""
    return _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
