"""The dialect: Spark SQL, and what Flink's adds to it for streams (``WATERMARK FOR``, windowing table functions)."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.parsers.spark import SparkParser

from epochal.runtime.durations import to_micros
from epochal.runtime.errors import PipelineError
from epochal.sql.errors import RefusedError, SqlError

WINDOWS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")

# It warns of what it cannot read; such statements are refused in our own words.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class WindowCall(exp.Expression):
    """``TUMBLE(…)``, ``HOP(…)``, ``SESSION(…)``: with a ``table`` one that makes rows, without one that groups them."""

    arg_types = {"this": True, "table": False, "partition_by": False, "expressions": False}


def _window_call(name: str, parser: Any) -> exp.Expr:
    begin = parser._index
    if parser._match_text_seq("DATA") and not parser._match(TokenType.FARROW):
        parser._retreat(begin)
    table = partition_by = None
    if parser._match(TokenType.TABLE):
        table = parser._parse_table_parts()
        if parser._match(TokenType.PARTITION_BY):
            partition_by = [parser._parse_column()]
            while parser._match(TokenType.COMMA) and parser._curr.text.upper() not in ("DESCRIPTOR", "TIMECOL"):
                partition_by.append(parser._parse_column())
        parser._match(TokenType.COMMA)
    arguments = parser._parse_csv(parser._parse_lambda)
    return WindowCall(this=name, table=table, partition_by=partition_by, expressions=arguments)


def _watermark(parser: Any) -> exp.Expr:
    parser._match(TokenType.FOR)
    column = parser._parse_column()
    parser._match(TokenType.ALIAS)
    return exp.WatermarkColumnConstraint(this=column, expression=parser._parse_disjunction())


class _StreamingParser(SparkParser):
    FUNC_TOKENS = SparkParser.FUNC_TOKENS | {TokenType.SESSION}
    FUNCTION_PARSERS = {
        **SparkParser.FUNCTION_PARSERS,
        **{name: cast(Callable[[Parser], exp.Expr], partial(_window_call, name)) for name in WINDOWS},
    }
    CONSTRAINT_PARSERS = {**SparkParser.CONSTRAINT_PARSERS, "WATERMARK": _watermark}
    SCHEMA_UNNAMED_CONSTRAINTS = {*SparkParser.SCHEMA_UNNAMED_CONSTRAINTS, "WATERMARK"}


class StreamingSpark(Spark):
    """sqlglot's Spark dialect with the additions above."""

    Parser = _StreamingParser


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement and from where to where in the text its first word stands."""

    tree: exp.Expr
    start: int
    end: int


def read(text: str) -> list[Statement]:
    """The statements of a text; :class:`SqlError` where it is no SQL."""
    dialect = StreamingSpark()
    try:
        tokens = dialect.tokenize(text)
    except TokenError as error:
        start = _unclosed(text)
        raise SqlError(
            "a quote or comment that begins here has no end", text=text, start=start, end=start + 1
        ) from error
    begins = []
    fresh = True
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            fresh = True
        elif fresh:
            begins.append(token)
            fresh = False
    try:
        trees = [tree for tree in dialect.parse(text) if tree is not None and not isinstance(tree, exp.Semicolon)]
    except ParseError as error:
        raise _unreadable(error, text) from error
    return [Statement(tree, token.start, token.end + 1) for tree, token in zip(trees, begins, strict=True)]


def _unreadable(error: ParseError, text: str) -> SqlError:
    found = error.errors[0] if error.errors else {}
    lines = text.split("\n")
    line, column = int(found.get("line") or 1), int(found.get("col") or 1)
    highlight = str(found.get("highlight") or "")
    end = sum(len(before) + 1 for before in lines[: line - 1]) + column
    said = _MISSING.sub("something is missing", str(found.get("description") or error)).rstrip(".")
    near = f" at {highlight!r}" if highlight else ""
    return SqlError(f"this cannot be read{near}: {said}", text=text, start=max(0, end - len(highlight)), end=end)


def _unclosed(text: str) -> int:
    """Where the quote or comment begins that the text ends in."""
    start = 0
    for part in _QUOTED.finditer(text):
        start = part.start()
    return start


_MISSING = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]+'>")
_QUOTED = re.compile(r"--[^\n]*|/\*.*?(?:\*/|$)|'(?:[^'\\]|\\.|'')*(?:'|$)|\"[^\"]*(?:\"|$)|`[^`]*(?:`|$)", re.DOTALL)


def spark_sql(tree: exp.Expr) -> str:
    """As Spark reads it."""
    return tree.sql(dialect=Spark, normalize_functions=False, comments=False)


def micros_of(interval: exp.Expr | None, at: exp.Expr) -> int:
    """An ``INTERVAL '10' SECOND`` in microseconds."""
    if not isinstance(interval, exp.Interval):
        raise RefusedError(interval or at, "an interval is needed here, such as INTERVAL '10' SECOND")
    unit = interval.args.get("unit")
    number = interval.this.name if interval.this is not None else ""
    if isinstance(unit, exp.IntervalSpan):
        raise RefusedError(interval, "write the interval with one unit, such as INTERVAL '90' SECOND")
    words = f"{number} {unit.name}" if unit is not None else number
    if any(word in words.upper() for word in ("MONTH", "YEAR", "QUARTER")):
        raise RefusedError(interval, "months and years are not equally long: write days, such as INTERVAL '30' DAY")
    try:
        return to_micros(words)
    except PipelineError as error:
        raise RefusedError(interval, f"{words!r} is no interval: write for example INTERVAL '10' SECOND") from error
