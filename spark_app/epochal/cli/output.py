"""How commands print what they found: a table for people, JSON or YAML for programs."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

FORMATS = ("table", "wide", "json", "yaml")
_NUMBERS = ("epoch", "generation", "size", "operators", "rows", "runs", "restarts", "executors", "rows/s")


def format_option(command: Any) -> Any:
    """Adds ``-o`` and gives the command ``how``."""
    return click.option(
        "-o", "--output", "how", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format."
    )(command)


def plain_table(*columns: str) -> Table:
    """A table that reads well and can be cut up by other programs: no frames, and never folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column.lower() in _NUMBERS else "left", no_wrap=True)
    return table


def filled_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    return table


def console() -> Console:
    """As wide as the terminal; where there is none, as wide as the content."""
    out = Console()
    return out if out.is_terminal else Console(width=10_000)


def print_data(data: Any, how: str) -> None:
    if how == "json":
        click.echo(json.dumps(data, indent=2, default=str))
    else:
        yaml.safe_dump(json.loads(json.dumps(data, default=str)), sys.stdout, sort_keys=False, allow_unicode=True)


def moment(micros: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(micros / 1_000_000))


def age(stamp: object, now: float | None = None) -> str:
    """How long ago a moment of Kubernetes was, as ``kubectl`` has it; empty if there is none."""
    if not isinstance(stamp, str) or not stamp:
        return ""
    seconds = max(0, int((now or time.time()) - seconds_of_stamp(stamp)))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def seconds_of_stamp(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(UTC).timestamp()
