"""A table as ``CREATE TABLE`` declares it: what a connector learns of it."""

from collections.abc import Mapping
from dataclasses import dataclass

SPARK = "spark."
"""Options that begin so are handed to Spark's reader as they are, without this."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """The event time column, and by how much rows may be out of order (microseconds)."""

    column: str
    delay: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A table over a connector. ``columns`` are (name, Spark type) as stored, ``computed`` (name, Spark SQL)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    computed: tuple[tuple[str, str], ...]
    watermark: Watermark | None
    primary_key: tuple[str, ...]
    connector_name: str
    options: Mapping[str, str]

    @property
    def schema(self) -> str:
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self.columns)

    @property
    def all_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in (*self.columns, *self.computed))

    def option(self, name: str, default: str = "") -> str:
        return self.options.get(name, default)

    def options_of(self, prefix: str) -> dict[str, str]:
        """The options that begin with ``prefix``, without it."""
        return {name.removeprefix(prefix): value for name, value in self.options.items() if name.startswith(prefix)}


def quoted(name: str) -> str:
    """A column's name as Spark reads it."""
    return "`" + name.replace("`", "``") + "`"
