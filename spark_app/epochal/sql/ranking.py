"""The first rows of groups: ``ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n``, and SELECT DISTINCT."""

from dataclasses import replace

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.sql.context import Context, Path
from epochal.sql.errors import RefusedError, only
from epochal.sql.plan import DeduplicateNode, RunningTopNode, SelectStep, TopNode
from epochal.sql.relations import Relation, RowNumber, Scope
from epochal.sql.slices import columns_in, function_name

RANK = "rank"
"""What the operators call a row's number."""

ALL = "__all"
"""The one group of a ranking without PARTITION BY."""


def row_number_of(item: exp.Expr) -> exp.Window | None:
    """The ``ROW_NUMBER() OVER (…)`` that an item of the select list is."""
    inner = item.unalias()
    return inner if isinstance(inner, exp.Window) and function_name(inner.this) == "row_number" else None


def hidden(
    window: exp.Window, name: str, scope: Scope, columns: list[tuple[str, str]]
) -> tuple[list[tuple[str, str]], RowNumber]:
    """What a ranking goes by that is not among the ``columns`` of its rows yet, and the ranking."""
    partition = window.args.get("partition_by") or []
    order = window.args["order"].expressions if window.args.get("order") is not None else []
    if not order:
        raise RefusedError(
            window.this, "ROW_NUMBER() needs OVER (PARTITION BY … ORDER BY …): which rows are the first?"
        )
    only(window, "this", "partition_by", "order", "over")
    for item in order:
        only(item, "this", "desc", "nulls_first")
    known = {sql: name for name, sql in columns}
    more: list[tuple[str, str]] = []

    def column(tree: exp.Expr, what: str) -> str:
        sql = scope.sql(tree)
        if sql not in known:
            known[sql] = f"__{what}_{len(more)}"
            more.append((known[sql], sql))
        return known[sql]

    ranking = RowNumber(
        name=name,
        partition_by=tuple(dict.fromkeys(column(tree, "partition") for tree in partition)),
        order_by=tuple(
            (column(item.this, "order"), bool(item.args.get("desc")), bool(item.args.get("nulls_first")))
            for item in order
        ),
        at=window.this,
    )
    return more, ranking


def settled(relation: Relation, at: exp.Expr | None = None) -> Relation:
    """The relation, which must not wait for a filter on a ROW_NUMBER()."""
    if relation.ranking is not None:
        name = relation.ranking.name
        raise RefusedError(
            at or relation.ranking.at,
            f"{name} numbers rows without an end: keep the first ones with a query around it, WHERE {name} <= 3",
        )
    return relation


def limit_of(condition: exp.Expr, ranking: RowNumber) -> int | None:
    """The n of ``rn <= n`` and its like; None if the condition is about something else."""
    if not any(_is_number(column, ranking) for column in columns_in(condition)):
        return None
    match condition:
        case exp.LTE(this=exp.Column(), expression=exp.Literal() as number) if number.is_int:
            return int(number.name)
        case exp.LT(this=exp.Column(), expression=exp.Literal() as number) if number.is_int:
            return int(number.name) - 1
        case exp.EQ(this=exp.Column(), expression=exp.Literal() as number) if number.name == "1":
            return 1
    raise RefusedError(condition, f"the first rows are asked for as {ranking.name} <= n, < n or = 1, with a number")


def _is_number(column: exp.Column, ranking: RowNumber) -> bool:
    return len(column.parts) <= 2 and column.name.lower() == ranking.name.lower()


def first_rows(
    ctx: Context, relation: Relation, where: list[exp.Expr], path: Path, at: exp.Expr
) -> tuple[Relation, list[exp.Expr]]:
    """The relation with only the first rows of each group and their rank, and what is left of ``where``."""
    ranking = relation.ranking
    assert ranking is not None
    limits = {id(condition): limit_of(condition, ranking) for condition in where}
    numbers = [number for number in limits.values() if number is not None]
    if not numbers:
        settled(relation)
    if (n := min(numbers)) < 1:
        raise RefusedError(at, f"{ranking.name} begins at 1: this keeps no row")
    if RANK in relation.columns:
        raise RefusedError(ranking.at, f"column {RANK} is there already: give it another name in the subquery")
    rest = [condition for condition in where if limits[id(condition)] is None]
    ranked = _ranked(ctx, relation, ranking, n, path)
    named = SelectStep(columns=tuple((ranking.name if name == RANK else name, quoted(name)) for name in ranked.columns))
    return ctx.transformed(ranked, path, "ranked", named, at), rest


def _ranked(ctx: Context, relation: Relation, ranking: RowNumber, n: int, path: Path) -> Relation:
    columns = (*relation.columns, RANK)
    groups = [name for name in ranking.partition_by if name in relation.times]
    if groups:
        # The group ends with its event time: its rows come out once, when it is over.
        timed = ctx.timed(relation, groups[0], path, ranking.at)
        per = tuple(name for name in ranking.partition_by if name != groups[0])
        top = TopNode(
            name=ctx.name(path, "top", ranking.at),
            inputs=(timed.node,),
            event_time=groups[0],
            n=n,
            order_by=ranking.order_by,
            per=per,
        )
        return replace(timed, node=ctx.add(top), columns=columns, ranking=None)
    if relation.updating:
        raise RefusedError(
            ranking.at, f"this would rank a result that changes ({relation.updating}): rank the rows of windows"
        )
    keys = ranking.partition_by
    if not keys:
        step = SelectStep(columns=(*((name, quoted(name)) for name in relation.columns), (ALL, "1")))
        relation = ctx.transformed(relation, path, "input", step, ranking.at)
        keys, columns = (ALL,), (*relation.columns, RANK)
    running = RunningTopNode(
        name=ctx.name(path, "top", ranking.at), inputs=(relation.node,), n=n, order_by=ranking.order_by, keys=keys
    )
    return Relation(node=ctx.add(running), columns=columns, updating="ROW_NUMBER() of groups that never end")


def distinct(ctx: Context, relation: Relation, path: Path, at: exp.Expr) -> Relation:
    """Each row once. Equal rows have equal event times: what the watermark has passed can be forgotten."""
    settled(relation, at)
    if relation.updating:
        raise RefusedError(at, f"SELECT DISTINCT of a result that changes ({relation.updating}): leave DISTINCT out")
    if not relation.times:
        raise RefusedError(
            at,
            "SELECT DISTINCT without event time would keep every row for ever: select the event time, too, or "
            "window_start and window_end of a window, or use GROUP BY",
        )
    timed = ctx.timed(relation, relation.event_time or relation.times[0], path, at)
    node = DeduplicateNode(
        name=ctx.name(path, "distinct", at), inputs=(timed.node,), event_time=timed.event_time, keys=relation.columns
    )
    return replace(timed, node=ctx.add(node))
