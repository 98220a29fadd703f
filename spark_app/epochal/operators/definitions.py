"""What an operator's state means, in words that a manifest keeps and a person can compare.

A definition must read the same as long as state means the same, in every release: a change of words here refuses state
that is as good as ever.
"""

import re
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from epochal.operators.aggregates import is_distinct

_SEEDED = re.compile(r"\b(rand|randn|randstr|uniform|uuid|shuffle)\([^()]*\)")
_VARIABLE = re.compile(r"\b([a-z]+)_\d+\b")


def expression(column: Column) -> str:
    """An expression as Spark shows it, without what is another number each time: seeds, and variables of lambdas."""
    text = str(column).removeprefix("Column<'").removesuffix("'>")
    text = _SEEDED.sub(r"\1()", text)
    text = _VARIABLE.sub(r"\1", text) if "->" in text else text
    return f"distinct {text}" if is_distinct(column) else text


def expressions(columns: Iterable[Column]) -> str:
    return ", ".join(map(expression, columns))


def named_expressions(columns: Mapping[str, Column], types: StructType) -> str:
    """Aggregates by name, with the types of their results: in any order they are the same."""
    return ", ".join(
        f"{name} = {expression(columns[name])} ({types[name].dataType.simpleString()})" for name in sorted(columns)
    )


def typed(names: Iterable[str], frame: DataFrame | StructType) -> str:
    schema = frame.schema if isinstance(frame, DataFrame) else frame
    return ", ".join(f"{name} {schema[name].dataType.simpleString()}" for name in names) or "none"


def seconds(micros: int) -> str:
    return f"{micros / 1_000_000:.15g} seconds"
