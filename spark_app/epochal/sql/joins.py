"""Joins of two streams: what the condition says about keys and about time, and the operator for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.sql.context import Context, Path
from epochal.sql.dialect import micros_of
from epochal.sql.errors import RefusedError
from epochal.sql.plan import JoinNode, SelectStep
from epochal.sql.ranking import settled
from epochal.sql.relations import WINDOW_COLUMNS, Relation, Scope, all_of, check_stateless, conjuncts
from epochal.sql.slices import columns_in

ALL = "__all"
"""The one key of a join that has no other."""


@dataclass(slots=True)
class Side:
    """One input: its rows, what they are called, and the conditions that are on them alone."""

    relation: Relation
    scope: Scope
    own: list[exp.Expr]

    def has(self, tree: exp.Expr) -> bool:
        return all(column.meta["side"] == id(self) for column in columns_in(tree))


@dataclass(slots=True)
class Bound:
    """How far the right event time may be from the left one."""

    lower: int | None = None
    upper: int | None = None
    said: list[exp.Expr] = field(default_factory=list)
    """The conditions that say so."""

    def at_least(self, micros: int) -> None:
        self.lower = micros if self.lower is None else max(self.lower, micros)

    def at_most(self, micros: int) -> None:
        self.upper = micros if self.upper is None else min(self.upper, micros)


@dataclass(slots=True)
class JoinCondition:
    """An ON taken apart."""

    keys: list[tuple[exp.Expr, exp.Expr]]
    bounds: dict[tuple[str, str], Bound]
    rest: list[exp.Expr]
    same_window: bool = False


def how_of(join: exp.Join) -> str:
    if join.args.get("method"):
        raise RefusedError(join, f"{join.args['method']} JOIN is not there: write JOIN … ON")
    side, kind = (join.side or "").lower(), (join.kind or "").lower()
    if kind in ("semi", "anti"):
        raise RefusedError(join, f"{side} {kind} join".strip().upper() + " is not there: use INNER or LEFT JOIN")
    return side or "inner"


def joined(
    ctx: Context, left: Side, right: Side, join: exp.Join, alias: str, path: Path, where: list[exp.Expr]
) -> tuple[Relation, Scope, list[exp.Expr]]:
    """The joined relation, what its columns are called, and what is left of ``where``."""
    how = how_of(join)
    for side in (left, right):
        settled(side.relation)
        if side.relation.updating:
            raise RefusedError(
                join.this,
                f"one side of this join changes ({side.relation.updating}): matches that were emitted could not be "
                "taken "
                "back. Join first, or aggregate in windows",
            )
    condition, where = condition_of(join, left, right, how, where)
    times = _times(condition, left, right, join, how)
    bound = condition.bounds[times]
    assert bound.lower is not None
    assert bound.upper is not None
    if bound.lower > bound.upper:
        raise RefusedError(
            join.args.get("on") or join, "no two times satisfy this: the lower bound is above the upper one"
        )
    names = names_of(left, right, alias, join)
    keys = keys_of(condition, left, right, names, shared=how == "inner")
    inputs = [
        prepared(ctx, side, names[number], keys[number], times[number], (*path, "join", where_), join)
        for number, (side, where_) in enumerate(((left, "left"), (right, "right")))
    ]
    key_names = tuple(name for name, _ in keys[0])
    node = JoinNode(
        name=ctx.name(path, "join", join.this),
        inputs=tuple(side.node for side in inputs),
        event_time=names[0][times[0]],
        keys=key_names,
        lower=bound.lower,
        upper=bound.upper,
        how=how,
    )
    return (
        _result(ctx.add(node), left, names, inputs, bound, how),
        scope_of(left, right, names),
        [*condition.rest, *where],
    )


def condition_of(
    join: exp.Join, left: Side, right: Side, how: str, where: list[exp.Expr]
) -> tuple[JoinCondition, list[exp.Expr]]:
    """ON taken apart, and what of ``where`` is not part of it. Conditions on one side alone go to that side."""
    conditions = [*conjuncts(join.args.get("on")), *_using(join, left, right)]
    kept = list(where)
    if how == "inner":
        # WHERE of an inner join is as good as ON: FROM a, b WHERE a.k = b.k.
        conditions, kept = conditions + kept, []
    result = JoinCondition([], {}, [])
    for tree in conditions:
        check_stateless(tree)
        _mark(tree, left, right)
        if _same_window(tree, left, right):
            result.same_window = True
        elif any(_of_window(column, left, right) for column in columns_in(tree)):
            # A window's bounds are there when the join has been done.
            result.rest.append(_only_inner(tree, how))
        elif left.has(tree) and how in ("inner", "right"):
            left.own.append(tree)
        elif right.has(tree) and how in ("inner", "left"):
            right.own.append(tree)
        elif not _key(tree, left, right, result) and not _bounds(tree, left, right, result):
            result.rest.append(_only_inner(tree, how))
    return result, kept


def _only_inner(tree: exp.Expr, how: str) -> exp.Expr:
    """A condition that is left to a filter behind the join, which would also drop rows without a partner."""
    if how != "inner":
        raise RefusedError(
            tree,
            f"ON of a {how} join may hold equalities, a bound on time, and conditions on the other side "
            "only: filter before the join, in a view",
        )
    return tree


def _same_window(tree: exp.Expr, left: Side, right: Side) -> bool:
    """``a.window_start = b.window_start``, or the same of the windows' ends."""
    if not isinstance(tree, exp.EQ) or _sides(tree, left, right) is None:
        return False
    one, other = tree.this, tree.expression
    return (
        isinstance(one, exp.Column)
        and isinstance(other, exp.Column)
        and one.name.lower() == other.name.lower()
        and _of_window(one, left, right)
        and _of_window(other, left, right)
    )


def _of_window(column: exp.Column, left: Side, right: Side) -> bool:
    side = left if column.meta["side"] == id(left) else right
    found = side.scope.resolve(column)
    return side.relation.window is not None and found.name in WINDOW_COLUMNS and found.name not in side.relation.columns


def _using(join: exp.Join, left: Side, right: Side) -> list[exp.Expr]:
    return [exp.EQ(this=_owned(name, left), expression=_owned(name, right)) for name in join.args.get("using") or ()]


def _owned(name: exp.Expr, side: Side) -> exp.Column:
    column = exp.Column(this=name.copy())
    side.scope.resolve(column)
    column.meta["side"] = id(side)
    return column


def _mark(tree: exp.Expr, left: Side, right: Side) -> None:
    """Note for each column which side it is of."""
    for column in columns_in(tree):
        if "side" in column.meta:
            continue
        owners = [side for side in (left, right) if side.scope.knows(column)]
        if len(owners) == 2:
            raise RefusedError(
                column,
                f"column {column.name} is on both sides of the join: write which one, such as "
                f"{next(iter(left.scope.sources))}.{column.name}",
            )
        if not owners:
            both = Scope({**left.scope.sources, **right.scope.sources})
            both.resolve(column)
        column.meta["side"] = id(owners[0])


def _sides(tree: exp.Binary, left: Side, right: Side) -> tuple[exp.Expr, exp.Expr] | None:
    """The operands, the left side's first; None if they are not of one side each."""
    one, other = tree.this, tree.expression
    if isinstance(one, exp.Predicate | exp.Not) or isinstance(other, exp.Predicate | exp.Not):
        return None  # a.x = b.y > 1 is (a.x = b.y) > 1 for Spark
    if not list(columns_in(one)) or not list(columns_in(other)):
        return None
    if left.has(one) and right.has(other):
        return one, other
    return (other, one) if right.has(one) and left.has(other) else None


def _key(tree: exp.Expr, left: Side, right: Side, condition: JoinCondition) -> bool:
    if not isinstance(tree, exp.EQ) or (sides := _sides(tree, left, right)) is None:
        return False
    linear = _linear(sides[0], left), _linear(sides[1], right)
    if linear[0] is not None and linear[1] is not None:
        bound = condition.bounds.setdefault((linear[0][0], linear[1][0]), Bound())
        distance = linear[0][1] - linear[1][1]
        bound.at_least(distance)
        bound.at_most(distance)
        bound.said.append(tree)
    else:
        condition.keys.append(sides)
    return True


def _linear(tree: exp.Expr, side: Side) -> tuple[str, int] | None:
    """An event time and what is added to it."""
    if isinstance(tree, exp.Paren):
        return _linear(tree.this, side)
    if isinstance(tree, exp.Column):
        found = side.scope.resolve(tree)
        return (found.name, 0) if not found.fields and found.name in side.relation.times else None
    if isinstance(tree, exp.Add | exp.Sub) and isinstance(tree.expression, exp.Interval):
        inner = _linear(tree.this, side)
        micros = micros_of(tree.expression, tree)
        return None if inner is None else (inner[0], inner[1] + (micros if isinstance(tree, exp.Add) else -micros))
    return None


def _bounds(tree: exp.Expr, left: Side, right: Side, condition: JoinCondition) -> bool:
    if isinstance(tree, exp.Between):
        # New nodes around parts of the tree, which stay where they are in it.
        low, high = exp.GTE(), exp.LTE()
        low.args.update({"this": tree.this, "expression": tree.args["low"]})
        high.args.update({"this": tree.this, "expression": tree.args["high"]})
        taken = [_bound(one, tree, left, right, condition) for one in (low, high)]
        return all(taken)
    return _bound(tree, tree, left, right, condition)


def _bound(tree: exp.Expr, said: exp.Expr, left: Side, right: Side, condition: JoinCondition) -> bool:
    """Whether ``tree`` bounds one event time by the other; ``said`` is the condition that it is, or is part of."""
    if not isinstance(tree, exp.GT | exp.GTE | exp.LT | exp.LTE) or (sides := _sides(tree, left, right)) is None:
        return False
    linear = _linear(sides[0], left), _linear(sides[1], right)
    if linear[0] is None or linear[1] is None:
        return False
    bound = condition.bounds.setdefault((linear[0][0], linear[1][0]), Bound())
    # left + a OP right + b: right - left against a - b
    distance = linear[0][1] - linear[1][1]
    strict = 1 if isinstance(tree, exp.GT | exp.LT) else 0
    left_is_smaller = isinstance(tree, exp.LT | exp.LTE) == (sides[0] is tree.this)
    if left_is_smaller:
        bound.at_least(distance + strict)
    else:
        bound.at_most(distance - strict)
    if not any(one is said for one in bound.said):
        bound.said.append(said)
    return True


def _times(condition: JoinCondition, left: Side, right: Side, join: exp.Join, how: str) -> tuple[str, str]:
    complete = [
        times for times, bound in condition.bounds.items() if bound.lower is not None and bound.upper is not None
    ]
    if complete:
        for times, bound in condition.bounds.items():
            if times == complete[0]:
                continue
            # One pair of times is what the join goes by; what is said of others holds as well.
            for tree in bound.said:
                if isinstance(tree, exp.EQ) and (sides := _sides(tree, left, right)) is not None:
                    condition.keys.append(sides)
                elif not any(one is tree for one in condition.rest):
                    condition.rest.append(_only_inner(tree, how))
        return complete[0]
    for side in (left, right):
        if not side.relation.times:
            name = next(reversed(side.scope.sources))
            raise RefusedError(
                join.this,
                f"a join of streams needs event time, and {name} has none: declare WATERMARK FOR … in CREATE TABLE, "
                "and select the column in views. A table whose rows are looked up, whenever they came, is joined with "
                "JOIN t FOR SYSTEM_TIME AS OF ts",
            )
    one, other = next(iter(left.scope.sources)), next(reversed(right.scope.sources))
    mine, theirs = left.relation.times[0], right.relation.times[0]
    half = " on both sides" if condition.bounds else ""
    raise RefusedError(
        join.args.get("on") or join.this,
        f"without a bound on time{half} every row would be kept for ever: add "
        f"{other}.{theirs} BETWEEN {one}.{mine} AND {one}.{mine} + INTERVAL '1' HOUR",
    )


def names_of(left: Side, right: Side, alias: str, at: exp.Join) -> tuple[dict[str, str], dict[str, str]]:
    """What each side's columns are called in the result: the right side's get its name where both have one."""
    mine = {name: name for name in left.relation.columns}
    taken = {name.lower() for name in mine}
    theirs = {}
    for name in right.relation.columns:
        new = name if name.lower() not in taken else f"{alias.lower()}__{name}"
        if new.lower() in taken:
            raise RefusedError(at.this, f"the joined rows would have two columns {new}: rename one in a view")
        taken.add(new.lower())
        theirs[name] = new
    return mine, theirs


Keys = list[tuple[str, str]]


def keys_of(
    condition: JoinCondition, left: Side, right: Side, names: tuple[dict[str, str], dict[str, str]], *, shared: bool
) -> tuple[Keys, Keys]:
    """The keys of both sides as columns of the same names. Where a partner is certain, a plain column is kept
    once and stands for both sides' (``names`` then says so)."""
    if not condition.keys:
        return [(ALL, "1")], [(ALL, "1")]
    sides: tuple[Keys, Keys] = ([], [])
    for number, pair in enumerate(condition.keys):
        expressions = [side.scope.sql(tree) for tree, side in zip(pair, (left, right), strict=True)]
        mine, theirs = (_plain(tree, side) for tree, side in zip(pair, (left, right), strict=True))
        new = f"__key_{number}"
        if shared and mine and theirs and not any(names[0][mine] == key for key, _ in sides[0]):
            new = names[1][theirs] = names[0][mine]
        for keys, sql in zip(sides, expressions, strict=True):
            keys.append((new, sql))
    return sides


def _plain(tree: exp.Expr, side: Side) -> str | None:
    """The column of a side that a key is; None if it is computed."""
    if not isinstance(tree, exp.Column):
        return None
    found = side.scope.resolve(tree)
    return None if found.fields or found.name not in side.relation.columns else found.name


def prepared(
    ctx: Context, side: Side, names: Mapping[str, str], keys: Keys, time: str | None, path: Path, at: exp.Join
) -> Relation:
    """Filtered, renamed, with the keys as columns and ``time`` as event time."""
    given = {name for name, _ in keys}
    columns = (*keys, *((new, quoted(name)) for name, new in names.items() if new not in given))
    step = SelectStep(columns=columns, where=all_of(side.scope.sql(condition) for condition in side.own))
    timed = side.relation if time is None else ctx.timed(side.relation, time, path, at)
    return ctx.transformed(timed, path, "", step, at)


def _result(
    node: str,
    left: Side,
    names: tuple[dict[str, str], dict[str, str]],
    inputs: list[Relation],
    bound: Bound,
    how: str,
) -> Relation:
    # Of a row without a partner the other side's time is null.
    kept = {"inner": inputs[0], "left": inputs[0], "right": inputs[1]}.get(how)
    times = [kept.event_time] if kept is not None and kept.event_time else []
    if how == "inner" and bound.lower is not None and bound.lower >= 0 and inputs[1].event_time:
        # Never older than the left time, which the watermark goes by.
        times.append(inputs[1].event_time)
    windowed = left.relation.windowed if how in ("inner", "left") and bound.lower == bound.upper == 0 else None
    if windowed is not None and windowed.start not in times:
        windowed = None
    return Relation(
        node=node,
        columns=tuple(dict.fromkeys((*names[0].values(), *names[1].values()))),
        times=tuple(times),
        event_time=times[0] if times else None,
        windowed=windowed,
    )


def scope_of(left: Side, right: Side, names: tuple[dict[str, str], dict[str, str]]) -> Scope:
    scope = Scope()
    for side, renamed in zip((left, right), names, strict=True):
        for alias, columns in side.scope.sources.items():
            scope.sources[alias] = {name: renamed[actual] for name, actual in columns.items() if actual in renamed}
    return scope
