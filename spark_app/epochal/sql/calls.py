"""Aggregates in expressions: which ones there are, and what they are called."""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from epochal.sql.errors import RefusedError
from epochal.sql.plan import AggregateCall
from epochal.sql.relations import Scope
from epochal.sql.slices import children, form, function_name, piece_of, tidy

AGGREGATES = {
    "any", "any_value", "approx_count_distinct", "approx_percentile", "approx_top_k", "approx_top_k_accumulate",
    "approx_top_k_combine", "array_agg", "avg", "bit_and", "bit_or", "bit_xor", "bitmap_and_agg",
    "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or", "collect_list", "collect_set", "corr", "count",
    "count_if", "count_min_sketch", "covar_pop", "covar_samp", "every", "first", "first_value", "grouping",
    "grouping_id", "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "kll_merge_agg_bigint",
    "kll_merge_agg_double", "kll_merge_agg_float", "kll_sketch_agg_bigint", "kll_sketch_agg_double",
    "kll_sketch_agg_float", "kurtosis", "last", "last_value", "listagg", "max", "max_by", "mean", "measure", "median",
    "min", "min_by", "mode", "percentile", "percentile_approx", "percentile_cont", "percentile_disc", "regr_avgx",
    "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "skewness", "some", "std", "stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "theta_intersection_agg",
    "theta_sketch_agg", "theta_union_agg", "try_avg", "try_sum", "tuple_intersection_agg_double",
    "tuple_intersection_agg_integer", "tuple_sketch_agg_double", "tuple_sketch_agg_integer", "tuple_union_agg_double",
    "tuple_union_agg_integer", "var_pop", "var_samp", "variance",
}  # fmt: skip
"""All that Spark has; a test asks it."""

_IGNORE_NULLS = {"sum", "count", "min", "max", "avg", "mean", "stddev", "stddev_samp", "variance", "collect_list"}
_AROUND = exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls
"""What may follow a call: the aggregate is the call with it."""

_MORE_THAN_A_VALUE = (
    exp.Kwarg | exp.Alias | exp.Order | exp.IgnoreNulls | exp.RespectNulls | exp.Limit | exp.HavingMax | exp.Lambda
)
_BEGIN = re.compile(r"\w+ ?\( ?(DISTINCT)?", re.IGNORECASE)
_CALL = re.compile(r"\w+(?=\()")
_ALL = re.compile(r"ALL\s", re.IGNORECASE)


def call_in(node: exp.Expr) -> exp.Expr:
    """The call itself, without what follows it."""
    while isinstance(node, _AROUND):
        node = node.this
    return node


def is_aggregate(node: exp.Expr) -> bool:
    return function_name(call_in(node)) in AGGREGATES


def aggregates_in(tree: exp.Expr) -> list[exp.Expr]:
    """The outermost aggregates of an expression, without those that OVER (…) makes window functions or that a subquery
    has for itself."""
    if isinstance(tree, exp.Window | exp.Query):
        return []
    if is_aggregate(tree):
        return [tree]
    return [found for child in children(tree) for found in aggregates_in(child)]


def call_of(tree: exp.Expr, scope: Scope) -> AggregateCall:
    """The call over the input's columns. A FILTER becomes a CASE, so that partials are enough for state."""
    for part in children(call_in(tree)):
        if nested := aggregates_in(part):
            raise RefusedError(
                nested[0], "an aggregate inside an aggregate: aggregate in a view first, then aggregate the view"
            )
    plain = _plain(call_in(tree), scope)
    if plain is not None and tree is call_in(tree):
        return plain
    if (
        plain is not None
        and isinstance(tree, exp.Filter)
        and tree.this is call_in(tree)
        and plain.function in _IGNORE_NULLS
        and len(plain.arguments) == 1
    ):
        value = "1" if plain.arguments[0] == "*" else plain.arguments[0]
        condition = tidy(scope.sql(tree.expression.this))
        return AggregateCall(
            function=plain.function,
            arguments=(f"CASE WHEN {condition} THEN {value} END",),
            distinct=plain.distinct,
        )
    return AggregateCall(expression=tidy(scope.sql(tree)))


def _plain(call: exp.Expr, scope: Scope) -> AggregateCall | None:
    """A call that is its arguments and nothing else; None for one that has, for example, an ORDER BY inside."""
    arguments = call.expressions
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    arguments = arguments[0].expressions if distinct else arguments
    whole, at = piece_of(call), None
    for argument in arguments:
        piece = piece_of(argument)
        between = tidy(whole.source.text[whole.start if at is None else at : piece.start])
        wanted = _BEGIN.fullmatch(between) if at is None else between.strip() == ","
        star = argument.is_star and not (
            isinstance(argument, exp.Star) and not distinct and function_name(call) == "count"
        )
        if not wanted or star or isinstance(argument, _MORE_THAN_A_VALUE) or _ALL.match(piece.text):
            return None
        at = piece.end
    rest = tidy(whole.source.text[whole.start if at is None else at : whole.end])
    if rest.strip() != ")" or not arguments:
        return None
    return AggregateCall(
        function=function_name(call),
        arguments=tuple("*" if isinstance(one, exp.Star) else tidy(scope.sql(one)) for one in arguments),
        distinct=distinct,
    )


# --- names ------------------------------------------------------------------------------------------------------------


def words_of(sql: str) -> str:
    """What an expression may be called. Others may have the same words: see :func:`named_apart`."""
    text = _as_named(sql)
    words = re.sub(r"[^a-z0-9]+", "_", text.replace("*", " all ").lower()).strip("_")
    return words if len(words) <= 40 else f"{words[:31].strip('_')}_{_fingerprint(text)}"


def _as_named(sql: str) -> str:
    """The spelling that names are made of. State is kept by them, so it has to stay what it has always been: sqlglot's,
    with the aggregate in small letters. Nothing is computed from it."""
    try:
        text = sqlglot.parse_one(sql, dialect="spark").sql(dialect="spark", normalize_functions=False, comments=False)
    except SqlglotError:
        return tidy(sql)
    call = _CALL.match(sql)
    return text if call is None or call[0] not in AGGREGATES else _CALL.sub(call[0], text, count=1)


def named_apart(expressions: Mapping[int, str], taken: Iterable[str]) -> dict[int, str]:
    """A name for each expression, by where it stands: the same for the same expression, never the same for two.

    The words of an expression are its name as long as nothing else has them. So a new alias or another order of the
    select list leaves names, and with them state, as they are. What shares its words with another one, or with
    something in ``taken``, is told apart by all of its text."""
    others = {name.lower() for name in taken}
    sharing: dict[str, set[tuple[str, ...]]] = {}
    for sql in expressions.values():
        sharing.setdefault(words_of(sql), set()).add(form(sql))
    names: dict[tuple[str, ...], str] = {}
    for sql in expressions.values():
        words, whole = words_of(sql), form(sql)
        if whole in names:
            continue
        alone = len(sharing[words]) == 1 and not _clashes(words, others)
        name = words if alone and words else f"{words or 'value'}_{_fingerprint(chr(0).join(whole))}"
        while _clashes(name, {*others, *names.values()}):
            name += "_"
        names[whole] = name
    return {place: names[form(sql)] for place, sql in expressions.items()}


def _clashes(name: str, others: Iterable[str]) -> bool:
    """Operators keep the parts of an aggregate as columns that begin with its name and two underscores."""
    return any(other == name or other.startswith(f"{name}__") for other in others)


def _fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
