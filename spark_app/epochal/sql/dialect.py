"""The dialect: Spark SQL, and what Flink's adds to it for streams (``WATERMARK FOR``, windowing table functions)."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, cast

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.parsers.spark import SparkParser

from epochal.runtime.durations import to_micros
from epochal.runtime.errors import PipelineError
from epochal.sql.errors import RefusedError, SqlError
from epochal.sql.slices import PIECE, Edit, Piece, Source

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
            if None in partition_by:
                parser.raise_error("Expected a column to partition by")
        parser._match(TokenType.COMMA)
    arguments = parser._parse_csv(parser._parse_lambda)
    return WindowCall(this=name, table=table, partition_by=partition_by, expressions=arguments)


def _watermark(parser: Any) -> exp.Expr:
    parser._match(TokenType.FOR)
    column = parser._parse_column()
    parser._match(TokenType.ALIAS)
    return exp.WatermarkColumnConstraint(this=column, expression=parser._parse_disjunction())


def _with_words(name: str, words: tuple[str, ...], parser: Any) -> exp.Expr:
    """A call whose arguments stand between words: ``trim(BOTH 'x' FROM y)``, ``substring(x FROM 1 FOR 2)``."""
    arguments = []
    while parser._curr and not parser._match(TokenType.R_PAREN, advance=False):
        if parser._match_texts(words) or parser._match(TokenType.COMMA):
            continue
        begin = parser._index
        arguments.append(parser._parse_bitwise())
        if parser._index == begin:
            break
    return exp.Anonymous(this=name, expressions=arguments)


def _extract(parser: Any) -> exp.Expr:
    parser._advance()
    parser._match(TokenType.FROM)
    return exp.Anonymous(this="extract", expressions=[parser._parse_bitwise()])


_WORDS = {
    "trim": ("BOTH", "LEADING", "TRAILING", "FROM"),
    "substring": ("FROM", "FOR"),
    "substr": ("FROM", "FOR"),
    "overlay": ("PLACING", "FROM", "FOR"),
    "position": ("IN",),
}
Parse = Callable[[Parser], exp.Expr]


class _StreamingParser(SparkParser):
    """Calls stay calls: no function is known to it, so that none loses an argument to another dialect's idea of it."""

    source = Source("")
    FUNC_TOKENS = SparkParser.FUNC_TOKENS | {TokenType.SESSION}
    FUNCTIONS = {}
    FUNCTION_PARSERS = {
        "CAST": SparkParser.FUNCTION_PARSERS["CAST"],
        "TRY_CAST": SparkParser.FUNCTION_PARSERS["TRY_CAST"],
        "EXTRACT": cast(Parse, _extract),
        **{name.upper(): cast(Parse, partial(_with_words, name, words)) for name, words in _WORDS.items()},
        **{name: cast(Parse, partial(_window_call, name)) for name in WINDOWS},
    }
    NO_PAREN_FUNCTION_PARSERS = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
    CONSTRAINT_PARSERS = {**SparkParser.CONSTRAINT_PARSERS, "WATERMARK": _watermark}
    SCHEMA_UNNAMED_CONSTRAINTS = {*SparkParser.SCHEMA_UNNAMED_CONSTRAINTS, "WATERMARK"}


def _recorded(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which notes from where to where in the text what it has read stands."""

    @wraps(method)
    def parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = self._curr
        node = method(self, *args, **kwargs)
        if isinstance(node, exp.Expr) and first and self._prev and first.start <= self._prev.end:
            node.meta[PIECE] = Piece(self.source, first.start, self._prev.end + 1).with_(node.meta.get(PIECE))
        return node

    return parse


# What one of them returns stands where it has read; but for this one, which reads the parentheses around it, too.
for _name in dir(SparkParser):
    if _name.startswith("_parse_") and _name != "_parse_wrapped":
        setattr(_StreamingParser, _name, _recorded(getattr(SparkParser, _name)))


_parse_window = _recorded(SparkParser._parse_window)


def _after_call(self: Any, this: exp.Expr | None, *args: Any, **kwargs: Any) -> Any:
    """What follows a call, such as FILTER: the call itself ends before it."""
    if isinstance(this, exp.Anonymous) and "start" in this.meta:
        this.meta[PIECE] = Piece(self.source, this.meta["start"], self._prev.end + 1)
    return _parse_window(self, this, *args, **kwargs)


setattr(_StreamingParser, "_parse_window", _after_call)  # noqa: B010


class StreamingSpark(Spark):
    """sqlglot's Spark dialect with the additions above."""

    Parser = _StreamingParser


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement and from where to where in the text its first word stands."""

    tree: exp.Expr
    start: int
    end: int


def read(text: str, parameters: Mapping[str, str] | None = None) -> list[Statement]:
    """The statements of a text; :class:`SqlError` where it is no SQL."""
    tokens = _tokens(text)
    source = Source(text, tuple(_fills(text, tokens, parameters or {})))
    try:
        trees = [tree for tree in _parsed(tokens, source) if tree is not None and not isinstance(tree, exp.Semicolon)]
    except ParseError as error:
        raise _unreadable(error, text) from error
    found = {tree.meta[PIECE].start: tree for tree in trees if PIECE in tree.meta}
    for token in _begins(tokens):
        if token.start not in found:
            raise SqlError(f"this cannot be read at {token.text!r}", text=text, start=token.start, end=token.end + 1)
    return [Statement(found[token.start], token.start, token.end + 1) for token in _begins(tokens)]


def _begins(tokens: list[Token]) -> Iterator[Token]:
    """The first words of the statements."""
    fresh = True
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            fresh = True
        elif fresh:
            yield token
            fresh = False


def _parsed(tokens: list[Token], source: Source) -> list[exp.Expr | None]:
    parser = cast(_StreamingParser, StreamingSpark().parser())
    parser.source = source
    return parser.parse(tokens, source.text)


def _tokens(text: str) -> list[Token]:
    """The words of a text, with those of Spark that sqlglot does not know as one: ``>>>`` and ``X 'FF'``."""
    try:
        tokens = StreamingSpark().tokenize(text)
    except TokenError as error:
        start = _unclosed(text)
        raise SqlError(
            "a quote or comment that begins here has no end", text=text, start=start, end=start + 1
        ) from error
    found: list[Token] = []
    for token in tokens:
        kind, before = token.token_type, found[-1] if found else None
        if kind is TokenType.STRING and before is not None and before.text in ("x", "X"):
            found[-1] = _as_one(TokenType.STRING, before, token)
        elif kind is TokenType.GT and len(found) > 1 and text[token.start - 2 : token.end + 1] == ">>>":
            found[-2:] = [_as_one(TokenType.AMP, found[-2], token)]
        else:
            found.append(token)
    return found


def _as_one(kind: TokenType, first: Token, last: Token) -> Token:
    return Token(kind, last.text, last.line, last.col, first.start, last.end, first.comments)


def _fills(text: str, tokens: list[Token], parameters: Mapping[str, str]) -> Iterator[Edit]:
    """Strings that hold ``${parameter}``s, with their values: a value that has quotes in it stays one string."""
    for token in tokens:
        raw = text[token.start : token.end + 1]
        if token.token_type not in (TokenType.STRING, TokenType.RAW_STRING) or "${" not in raw:
            continue
        plain = raw[0] in "'\""
        for match in PARAMETER.finditer(raw):
            if match[1] not in parameters:
                raise SqlError(unknown_parameter(match[1], parameters), text=text, start=token.start, end=token.end + 1)
            value = parameters[match[1]]
            if plain:
                value = value.replace("\\", "\\\\").replace(raw[0], f"\\{raw[0]}").replace("$", "\\u0024")
            elif raw[-1] in value or "$" in value:
                raise SqlError(
                    f"parameter {match[1]!r} holds {raw[-1]} or $, which a raw string cannot: leave out the r",
                    text=text,
                    start=token.start,
                    end=token.end + 1,
                )
            yield Edit(token.start + match.start(), token.start + match.end(), value)


PARAMETER = re.compile(r"\$\{([^}]*)\}")


def unknown_parameter(name: str, parameters: Mapping[str, str]) -> str:
    return f"there is no parameter {name!r}: spec.pipeline.parameters has {', '.join(sorted(parameters)) or 'none'}"


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


def micros_of(interval: exp.Expr | None, at: exp.Expr) -> int:
    """An ``INTERVAL '10' SECOND`` in microseconds."""
    if not isinstance(interval, exp.Interval):
        raise RefusedError(interval or at, "an interval is needed here, such as INTERVAL '10' SECOND")
    unit = interval.args.get("unit")
    amount = interval.this
    negative = isinstance(amount, exp.Neg)
    amount = amount.this if isinstance(amount, exp.Neg) else amount
    if not isinstance(amount, exp.Literal):
        raise RefusedError(interval, "an interval needs a fixed length here, such as INTERVAL '10' SECOND")
    number = f"-{amount.name}" if negative else amount.name
    if isinstance(unit, exp.IntervalSpan):
        raise RefusedError(interval, "write the interval with one unit, such as INTERVAL '90' SECOND")
    words = f"{number} {unit.name}" if unit is not None else number
    if any(word in words.upper() for word in ("MONTH", "YEAR", "QUARTER")):
        raise RefusedError(interval, "months and years are not equally long: write days, such as INTERVAL '30' DAY")
    try:
        return to_micros(words)
    except PipelineError as error:
        raise RefusedError(interval, f"{words!r} is no interval: write for example INTERVAL '10' SECOND") from error
