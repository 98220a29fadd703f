"""Expressions as Spark has them: taken apart, and made where its API has no name for them."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql.types import DecimalType

from epochal.runtime.spark.jvm import class_name, jvm, python_column, scala_column


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A plain call of a function, such as ``sum(amount)``."""

    name: str
    """In small letters."""
    arguments: list[Column]
    distinct: bool


def function_call(column: Column) -> FunctionCall | None:
    """An expression as a plain call of a function, whatever it is named; None for anything else."""
    node = scala_column(column).node()
    if class_name(node) == "Alias":
        node = node.child()
    if class_name(node) != "UnresolvedFunction":
        return None
    made, arguments = jvm().org.apache.spark.sql.Column, node.arguments()
    columns = [python_column(made(arguments.apply(index))) for index in range(arguments.size())]
    return FunctionCall(str(node.functionName()).lower(), columns, bool(node.isDistinct()))


def is_star(column: Column) -> bool:
    return class_name(scala_column(column).node()) == "UnresolvedStar"


def divided(one: Column, other: Column, kind: DecimalType, *, ansi: bool) -> Column:
    """A decimal divided by another as Spark's own average does it, to the last digit."""
    java = jvm().org.apache.spark.sql
    expressions = java.classic.ExpressionUtils
    quotient = java.catalyst.expressions.DecimalDivideWithOverflowCheck(
        expressions.expression(scala_column(one)),
        expressions.expression(scala_column(other)),
        java.types.DecimalType(kind.precision, kind.scale),
        None,
        not ansi,
    )
    return python_column(expressions.column(quotient))
