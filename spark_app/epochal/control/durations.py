"""Durations as manifests write them: ``500ms``, ``10s``, ``1m30s``."""

import re

_PART = re.compile(r"(\d+)(ms|s|m|h)")
_WHOLE = re.compile(r"(?:\d+(?:ms|s|m|h))+")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds; ValueError for anything else than the CRD's pattern allows."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: write 500ms, 10s, 5m, 1h or 1m30s")
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def format_duration(seconds: float) -> str:
    """For people: ``0.4s``, ``12s``, ``3m05s``, ``2h10m``."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 120:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 120:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
