"""Aggregates in expressions: which ones there are, and what they are called."""

import re
from hashlib import sha256

from sqlglot import exp

from epochal.sql.dialect import spark_sql
from epochal.sql.errors import RefusedError
from epochal.sql.plan import AggregateCall
from epochal.sql.relations import Scope

_OTHER_AGGREGATES = {
    "hll_sketch_agg", "kurtosis", "skewness", "every", "some", "any", "bit_and", "bit_or", "bit_xor", "try_sum",
    "try_avg", "mode", "listagg", "string_agg", "histogram_numeric", "regr_count", "regr_slope", "percentile",
    "first", "last", "first_value", "last_value", "std", "mean", "bool_and", "bool_or",
}  # fmt: skip
_IGNORE_NULLS = {"sum", "count", "min", "max", "avg", "mean", "stddev", "stddev_samp", "variance", "collect_list"}
_SIMPLE = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


def is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _OTHER_AGGREGATES
    inside = isinstance(node.parent, exp.Filter | exp.Window)
    return isinstance(node, exp.Filter) or (isinstance(node, exp.AggFunc) and not inside)


def aggregates_in(tree: exp.Expr) -> list[exp.Expr]:
    """The outermost aggregates of an expression, without those that OVER (…) makes window functions or that a subquery
    has for itself."""
    if isinstance(tree, exp.Window | exp.Query):
        return []
    if is_aggregate(tree):
        return [tree]
    return [found for child in tree.iter_expressions() for found in aggregates_in(child)]


def call_of(tree: exp.Expr, scope: Scope) -> AggregateCall:
    """The call over the input's columns. A FILTER becomes a CASE, so that partials are enough for state."""
    for inner in tree.iter_expressions():
        nested = aggregates_in(inner) if not isinstance(tree, exp.Filter) else []
        if nested:
            raise RefusedError(
                nested[0], "an aggregate inside an aggregate: aggregate in a view first, then aggregate the view"
            )
    rewritten = scope.rewritten(tree)
    condition = None
    if isinstance(rewritten, exp.Filter):
        condition = spark_sql(rewritten.expression.this)
        rewritten = rewritten.this
    whole = spark_sql(rewritten)
    match = _SIMPLE.fullmatch(whole)
    arguments = rewritten.this if isinstance(rewritten.this, exp.Distinct) else rewritten
    distinct = isinstance(arguments, exp.Distinct)
    function = match[1].lower() if match else ""
    if distinct:
        listed = [spark_sql(argument) for argument in arguments.expressions]
    elif isinstance(rewritten, exp.Anonymous):
        listed = [spark_sql(argument) for argument in rewritten.expressions]
    else:
        listed = [spark_sql(argument) for argument in rewritten.iter_expressions()]
    plain = match is not None and match[2] == ("DISTINCT " if distinct else "") + ", ".join(listed)
    if condition is None:
        if plain:
            return AggregateCall(function=function, arguments=tuple(listed), distinct=distinct)
        return AggregateCall(expression=whole)
    if plain and function in _IGNORE_NULLS and len(listed) == 1:
        value = "1" if listed[0] == "*" else listed[0]
        return AggregateCall(
            function=function, arguments=(f"CASE WHEN {condition} THEN {value} END",), distinct=distinct
        )
    return AggregateCall(expression=f"{whole} FILTER (WHERE {condition})")


def name_of(call: AggregateCall) -> str:
    return words_of(str(call))


def words_of(sql: str) -> str:
    """A name made of an expression: the same expression has the same name, whatever it is called in the result."""
    words = re.sub(r"[^a-z0-9]+", "_", sql.replace("*", "all").lower()).strip("_")
    return words if len(words) <= 40 else f"{words[:31].strip('_')}_{sha256(sql.encode()).hexdigest()[:8]}"
