"""Functions that revenue.sql uses."""

NAMES = {"de": "Germany", "fr": "France", "in": "India", "jp": "Japan", "us": "United States"}


def name_of(code: str | None) -> str | None:
    """A country's name; its code if that is unknown."""
    return None if code is None else NAMES.get(code, code)
