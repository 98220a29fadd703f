"""What a connector says of itself. SQL, the methods of a stream and the tables of the documentation are made of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from epochal.connectors.declared_table import DeclaredTable
from epochal.runtime.durations import to_micros
from epochal.runtime.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from epochal.connectors.registry import AllConnectors

EXACTLY_ONCE = "exactly once"

Wrong = Callable[[str, str], str | None]
"""What is wrong with an option's value, given its name and value; None if nothing is."""


def whole_number(name: str, value: str) -> str | None:
    return None if value.isdigit() else f"{name!r} is a whole number, not {value!r}"


def duration(name: str, value: str) -> str | None:
    try:
        to_micros(value)
    except PipelineError as error:
        return f"{name!r}: {error}"
    return None


def one_of(what: str, *known: str) -> Wrong:
    """``what`` completes "there …", as in "is no format"."""

    def wrong(_: str, value: str) -> str | None:
        return None if value in known else f"there {what} {value!r}: write {', '.join(known)}"

    return wrong


def true_or_false(name: str, value: str) -> str | None:
    return None if value in ("true", "false") else f"{name!r} is 'true' or 'false', not {value!r}"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of ``WITH (…)``: what it is for, and what is wrong with a value."""

    about: str
    wrong: Wrong | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a table's options."""

    option: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A row of the table in docs/connectors.md. ``how`` says by what; ``tests`` are files below ``tests/``."""

    guarantee: str
    how: str
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakingBack:
    """A row of the table of what can be taken back. ``case``: where it depends on how the sink is used."""

    how: str
    able: bool = False
    case: str = ""
    refused_if: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """A connector that is a source. In Python a pipeline takes any streaming frame: this is what SQL needs.

    ``table`` gives the rows; ``lookup`` the table as it is now, for ``JOIN t FOR SYSTEM_TIME AS OF …``. ``columns`` are
    those of a source that declares none. ``options`` are those that only a source has.
    """

    table: Callable[["SparkSession", DeclaredTable], "DataFrame"]
    lookup: Callable[["SparkSession", DeclaredTable], "DataFrame"] | None = None
    columns: tuple[str, ...] = ()
    promise: Promise | None = None
    from_python: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """A connector that is a sink: by a ``method`` of a stream, and with ``table`` in SQL, too."""

    method: str = ""
    table: Callable[["AllConnectors", str, DeclaredTable], None] | None = None
    promise: Promise | None = None
    taking_back: tuple[TakingBack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """``name`` is that of ``'connector' = …`` and of the folder. Options that begin with one of ``prefixes`` are handed
    on as they are. ``wrong`` looks at all options together. ``extra`` is the one of ``pip install 'epochal[…]'``,
    ``jars`` are Spark's packages."""

    name: str
    title: str = ""
    reads: Reads | None = None
    writes: Writes | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    wrong: Callable[[DeclaredTable], Problem | None] | None = None
    extra: str = ""
    jars: tuple[str, ...] = ()

    @property
    def in_sql(self) -> bool:
        return self.reads is not None or (self.writes is not None and self.writes.table is not None)


SOURCE_OPTIONS: Mapping[str, Option] = {
    "bounded": Option("true: read all records available now, then finish; default false", true_or_false),
    "max-ahead": Option("rows whose event time is further ahead of the clock count as late; default 1 hour", duration),
    "idle-after": Option("without rows for this long it holds back no watermark; default 30 seconds", duration),
    "trigger": Option("the time between micro-batches; default as short as possible", duration),
}
"""What every source takes."""
