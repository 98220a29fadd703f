"""SELECT: FROM, joins, WHERE, GROUP BY, the select list and UNION ALL, each planned onto operators."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from epochal.connectors.declared_table import DeclaredTable, quoted
from epochal.sql.aggregation import aggregated
from epochal.sql.calls import aggregates_in
from epochal.sql.context import Context, Path
from epochal.sql.dialect import WindowCall
from epochal.sql.errors import RefusedError, only
from epochal.sql.joins import Side, how_of, joined
from epochal.sql.lookups import looked_up, window_joined
from epochal.sql.plan import SelectStep, UnionNode
from epochal.sql.ranking import distinct, first_rows, hidden, row_number_of, settled
from epochal.sql.relations import Relation, Scope, all_of, conjuncts, identity
from epochal.sql.selection import output_name
from epochal.sql.slices import check_name, function_name, is_own, piece_of, rewritten, written
from epochal.sql.windows import in_windows, window_spec

Lookup = Callable[[exp.Table], Relation]


@dataclass(slots=True)
class Names:
    """What FROM may name: CTEs, then what is outside. ``table`` gives the declaration of a table that is looked up."""

    outside: Lookup
    table: Callable[[exp.Table], DeclaredTable]
    planned: dict[str, Relation] = field(default_factory=dict)


def planned(ctx: Context, query: exp.Expr, names: Names, path: Path) -> Relation:
    """Plan any query."""
    names = _with_ctes(ctx, query, names, path)
    for word in ("order", "sort", "limit", "offset", "cluster", "distribute"):
        if (found := query.args.get(word)) is not None:
            raise RefusedError(found, _ENDLESS.get(word, _ENDLESS["order"]))
    if isinstance(query, exp.Subquery):
        only(query, "this", "alias", "with_")
        return planned(ctx, query.this, names, path)
    if isinstance(query, exp.Union):
        only(query, "with_", "this", "expression", "distinct")
        return _union(ctx, query, names, path)
    if isinstance(query, exp.SetOperation):
        raise RefusedError(
            query.right,
            f"{type(query).__name__.upper()} would have to take rows back: use a LEFT JOIN with a bound on time",
        )
    if not isinstance(query, exp.Select):
        raise RefusedError(query, "a SELECT is needed here")
    return _select(ctx, query, names, path)


_ENDLESS = {
    "order": "a stream has no end to be sorted at: use ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
    "ORDER BY …) <= n "
    "in a window, or sort where the result is read",
    "limit": "a stream has no end: for the first n of each window write ROW_NUMBER() OVER (PARTITION BY "
    "window_start, window_end "
    "ORDER BY …) <= n",
    "offset": "a stream has no beginning to count from: leave OFFSET out",
}


def _with_ctes(ctx: Context, query: exp.Expr, names: Names, path: Path) -> Names:
    with_ = query.args.get("with_")
    if with_ is None:
        return names
    if with_.args.get("recursive"):
        raise RefusedError(with_.expressions[0], "a recursive query cannot be streamed")
    only(with_, "expressions")
    for cte in with_.expressions:
        only(cte, "this", "alias")
        inner = planned(ctx, cte.this, names, (*path, cte.alias))
        columns = cte.args["alias"].args.get("columns") or []
        if columns:
            inner = _renamed(ctx, inner, [column.name for column in columns], cte.args["alias"], (*path, cte.alias))
        known = {**names.planned, cte.alias.lower(): inner}
        names = Names(names.outside, names.table, known)
    return names


def _renamed(ctx: Context, relation: Relation, new: list[str], at: exp.Expr, path: Path) -> Relation:
    if len(new) != len(relation.columns):
        raise RefusedError(at, f"{len(new)} names for {len(relation.columns)} columns: {', '.join(relation.columns)}")
    step = SelectStep(
        columns=tuple((check_name(name, at), quoted(old)) for name, old in zip(new, relation.columns, strict=True))
    )
    return ctx.transformed(relation, path, "renamed", step, at)


# --- UNION ALL --------------------------------------------------------------------------------------------------------


def _union(ctx: Context, query: exp.Union, names: Names, path: Path) -> Relation:
    parts = _parts(query)
    relations = [planned(ctx, part, names, path) for part in parts]
    first = relations[0]
    inputs, times = [first], set(range(len(first.columns)))
    for part, relation in zip(parts, relations, strict=True):
        settled(relation)
        if relation.updating:
            raise RefusedError(part, f"one part of the union changes ({relation.updating}): unite before aggregating")
        if len(relation.columns) != len(first.columns):
            raise RefusedError(
                part.expressions[0] if part.expressions else part,
                f"the parts of a UNION ALL need as many columns: {len(first.columns)} ({', '.join(first.columns)}) and "
                f"{len(relation.columns)} ({', '.join(relation.columns)})",
            )
        times &= {number for number, name in enumerate(relation.columns) if name in relation.times}
    inputs += [_renamed(ctx, relation, list(first.columns), query, path) for relation in relations[1:]]
    common = tuple(first.columns[number] for number in sorted(times))
    if common:
        inputs = [ctx.timed(relation, common[0], path, query) for relation in inputs]
    if len({relation.node for relation in inputs}) < len(inputs):
        inputs = [_copied(ctx, relation, number, path, query) for number, relation in enumerate(inputs)]
    node = UnionNode(
        name=ctx.name(path, "union", query),
        inputs=tuple(relation.node for relation in inputs),
        event_time=next(iter(common), None),
    )
    return Relation(node=ctx.add(node), columns=first.columns, times=common, event_time=next(iter(common), None))


def _copied(ctx: Context, relation: Relation, number: int, path: Path, at: exp.Expr) -> Relation:
    """The same rows once more, through an operator of their own: an input has one channel."""
    where = None if number % 2 else "true"
    return ctx.transformed(relation, path, "part", identity(relation.columns, where=where), at)


def _parts(query: exp.Expr) -> list[exp.Expr]:
    if isinstance(query, exp.Subquery) and not query.alias:
        return _parts(query.this)
    if not isinstance(query, exp.Union):
        return [query]
    if query.args.get("distinct"):
        raise RefusedError(
            query.right,
            "UNION would keep every row for ever to find duplicates: write UNION ALL, and SELECT DISTINCT around it "
            "if rows have an event time",
        )
    return [*_parts(query.left), *_parts(query.right)]


# --- FROM -------------------------------------------------------------------------------------------------------------


def _input(ctx: Context, source: exp.Expr, names: Names, path: Path) -> tuple[str, Relation]:
    """One item of FROM: what it is called, and its rows."""
    if isinstance(source, exp.Subquery):
        alias = source.alias
        relation = planned(ctx, source.this, names, (*path, alias) if alias else path)
        alias = alias or "__subquery"
    elif isinstance(source, exp.Table):
        call = _window_call(source)
        if call is not None:
            only(source, "this", "alias")
            relation = _window_input(call, names)
            alias = source.alias or call.args["table"].name
        else:
            relation = _named(source, names)
            alias = source.alias_or_name
    else:
        instead = "; instead of UNNEST write LATERAL VIEW explode(items) t AS item" if source.find(exp.Unnest) else ""
        raise RefusedError(source, f"FROM takes tables, views, subqueries and TABLE(TUMBLE(…)){instead}")
    columns = source.args["alias"].args.get("columns") if source.args.get("alias") else None
    if columns:
        relation = _renamed(ctx, relation, [column.name for column in columns], source, (*path, alias))
    return alias, relation


def _named(source: exp.Table, names: Names) -> Relation:
    only(source, "this", "alias", "db", "catalog")
    if not isinstance(source.this, exp.Identifier):
        raise RefusedError(
            source, f"{written(source.this)} is no table: FROM takes tables, views, subqueries and TABLE(TUMBLE(…))"
        )
    if not source.db and source.name.lower() in names.planned:
        return names.planned[source.name.lower()]
    return names.outside(source)


def _window_call(source: exp.Table) -> WindowCall | None:
    inner = source.this
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "TABLE" and len(inner.expressions) == 1:
        inner = inner.expressions[0]
        if not isinstance(inner, WindowCall):
            raise RefusedError(inner, "TABLE(…) takes TUMBLE, HOP or SESSION")
    return inner if isinstance(inner, WindowCall) else None


def _window_input(call: WindowCall, names: Names) -> Relation:
    table, arguments = call.args.get("table"), [_unnamed(argument) for argument in call.expressions]
    example = f"TABLE({call.name}(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    if table is None:
        raise RefusedError(call, f"write {example}")
    relation = _named(table, names)
    if (
        not arguments
        or not isinstance(arguments[0], exp.Anonymous)
        or arguments[0].name.upper() != "DESCRIPTOR"
        or len(arguments[0].expressions) != 1
    ):
        raise RefusedError(table, f"after the table comes its event time: {example}")
    scope = Scope()
    scope.add(table.name, {name: name for name in relation.columns}, table)
    column = arguments[0].expressions[0]
    time = scope.resolve(column).name
    partition_by = tuple(scope.resolve(one).name for one in call.args.get("partition_by") or ())
    if partition_by and call.name != "SESSION":
        raise RefusedError(
            call.args["partition_by"][0], f"{call.name} takes no PARTITION BY: add the columns to GROUP BY"
        )
    if relation.window is not None:
        raise RefusedError(table, "these rows are in windows already: group them first")
    spec = window_spec(call, relation, time, column, arguments[1:], partition_by)
    return replace(relation, window=spec)


def _unnamed(argument: exp.Expr) -> exp.Expr:
    return argument.expression if isinstance(argument, exp.Kwarg) else argument


# --- SELECT -----------------------------------------------------------------------------------------------------------


_CLAUSES = (
    "with_", "expressions", "hint", "distinct", "from_", "laterals", "joins", "where", "group", "having", "qualify",
)  # fmt: skip


def _select(ctx: Context, select: exp.Select, names: Names, path: Path) -> Relation:
    from_ = select.args.get("from_")
    if not select.expressions:
        raise RefusedError(select, "this SELECT chooses nothing: name columns, or write *")
    if from_ is None:
        raise RefusedError(select.expressions[0], "a streaming query needs FROM a table or view")
    only(select, *_CLAUSES)
    where = conjuncts(select.args["where"].this) if select.args.get("where") else []
    for condition in where:
        if found := aggregates_in(condition):
            raise RefusedError(
                found[0], "WHERE holds an aggregate: use HAVING, or a WHERE around the query that aggregates"
            )
    if select.args.get("qualify") is not None:
        return _qualified(ctx, select, names, path)
    alias, relation = _input(ctx, from_.this, names, path)
    scope = Scope()
    if relation.ranking is not None and not select.args.get("joins"):
        relation, where = first_rows(ctx, relation, where, path, from_.this)
    scope.add(alias, {name: name for name in relation.visible}, from_.this)
    relation, scope, where = _joins(ctx, select, relation, scope, names, path, where)
    for lateral in select.args.get("laterals") or ():
        _check_order(lateral, select)
        relation = _lateral(ctx, lateral, relation, scope, path)
    grouped = select.args.get("group") is not None or any(aggregates_in(item) for item in select.expressions)
    grouped = grouped or select.args.get("having") is not None
    if relation.updating and where and not grouped:
        raise RefusedError(
            where[0],
            f"a filter on a result that changes ({relation.updating}): a row that no longer holds could not be taken "
            "back. "
            "Filter before it, or where the result is read",
        )
    if grouped:
        result = aggregated(ctx, select, relation, scope, path, where)
    else:
        relation = in_windows(ctx, relation, path, select)
        result = _projected(ctx, select, relation, scope, path, where)
    if (once := select.args.get("distinct")) is not None:
        only(once)
        return distinct(ctx, result, path, select.expressions[0])
    return result


def _joins(
    ctx: Context,
    select: exp.Select,
    relation: Relation,
    scope: Scope,
    names: Names,
    path: Path,
    where: list[exp.Expr],
) -> tuple[Relation, Scope, list[exp.Expr]]:
    """All joins of a query, one after the other. WHERE may say what the last one needs to know."""
    joins = select.args.get("joins") or []
    own: list[exp.Expr] = []
    for join in joins:
        only(join, "this", "on", "using", "side", "kind", "method", "hint")
        left, last = Side(relation, scope, own), join is joins[-1]
        given = where if last else []
        if (table := _lookup_table(join, scope, names)) is not None:
            settled(relation)
            alias = join.this.alias_or_name
            _check_new(alias, scope, join)
            relation, scope, rest = looked_up(ctx, left, table, join, alias, path, given)
        else:
            alias, other = _input(ctx, join.this, names, path)
            _check_new(alias, scope, join)
            right = Side(other, Scope(), [])
            right.scope.add(alias, {name: name for name in other.visible}, join.this)
            how = window_joined if relation.window is not None or other.window is not None else joined
            relation, scope, rest = how(ctx, left, right, join, alias, path, given)
        # What is left of ON is a filter before the next join: an outer one may add rows that it does not hold for.
        own, where = ([], rest) if last else (rest, where)
    return relation, scope, where


def _check_order(lateral: exp.Lateral, select: exp.Select) -> None:
    """A lateral view before a join is as good as one after it, unless the join adds rows of its own."""
    for join in select.args.get("joins") or ():
        if how_of(join) in ("right", "full") and piece_of(lateral).start < piece_of(join).start:
            raise RefusedError(lateral, "write LATERAL VIEW after the outer join, or in a view of its own before it")


def _check_new(alias: str, scope: Scope, join: exp.Join) -> None:
    if alias.lower() in scope.sources:
        scope.add(alias, {}, join.this)


def _qualified(ctx: Context, select: exp.Select, names: Names, path: Path) -> Relation:
    """``QUALIFY ROW_NUMBER() OVER (…) <= n`` is a query around one that has the number as a column."""
    condition = select.args["qualify"].this.copy()
    windows = list(condition.find_all(exp.Window))
    if not windows and any(row_number_of(item) is not None for item in select.expressions):
        # The number is a column of the result: the filter stands around a query that has it.
        numbered = select.copy()
        numbered.set("qualify", None)
        found, rest = first_rows(ctx, _select(ctx, numbered, names, path), conjuncts(condition), path, condition)
        if rest:
            raise _only_a_number(rest[0])
        shown = [name for name in found.columns if not is_own(name)]
        return ctx.transformed(found, path, "qualified", identity(shown), select)
    if len(windows) != 1 or row_number_of(windows[0]) is None:
        raise RefusedError(condition, "QUALIFY takes ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n")
    number = exp.alias_(windows[0].copy(), "__number")
    inner = select.copy()
    inner.set("qualify", None)
    inner.append("expressions", number)
    windows[0].replace(exp.column("__number"))
    relation, rest = first_rows(ctx, _select(ctx, inner, names, path), conjuncts(condition), path, windows[0])
    if rest:
        raise _only_a_number(rest[0])
    shown = [name for name in relation.columns if not is_own(name)]
    return ctx.transformed(relation, path, "qualified", identity(shown), select)


def _only_a_number(at: exp.Expr) -> RefusedError:
    return RefusedError(at, "QUALIFY takes ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n and nothing else")


def _lookup_table(join: exp.Join, scope: Scope, names: Names) -> DeclaredTable | None:
    """The table of ``JOIN t FOR SYSTEM_TIME AS OF …``."""
    if not isinstance(join.this, exp.Table) or join.this.args.get("version") is None:
        return None
    only(join.this, "this", "alias", "db", "catalog", "version")
    version = join.this.args["version"]
    asked = version.expression
    plain = isinstance(asked, exp.Column) or (function_name(asked) and not asked.expressions)
    if version.name != "TIMESTAMP" or not plain:
        raise RefusedError(join.this, "a table is looked up as it is now: write FOR SYSTEM_TIME AS OF a column")
    if isinstance(asked, exp.Column):
        scope.resolve(asked)
    return names.table(join.this)


def _lateral(ctx: Context, lateral: exp.Lateral, relation: Relation, scope: Scope, path: Path) -> Relation:
    """The relation with the columns of a ``LATERAL VIEW``, which ``scope`` knows afterwards."""
    only(lateral, "this", "view", "outer", "alias")
    alias = lateral.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
    if not lateral.args.get("view") or not names:
        raise RefusedError(lateral, "write LATERAL VIEW explode(items) t AS item")
    taken = {name.lower() for name in relation.columns}
    for name in names:
        if check_name(name, lateral).lower() in taken:
            raise RefusedError(lateral, f"column {name} is there already: give the lateral view's another name")
    scope.sql(lateral.this)  # refuses what cannot be streamed
    plain = tuple((name, quoted(name)) for name in (*relation.columns, *names))
    step = SelectStep(columns=plain, lateral=f" {rewritten(lateral, scope.renamed)}")
    scope.add(alias.name if alias is not None else "", {name: name for name in names}, lateral)
    return ctx.transformed(relation, path, "lateral", step, lateral)


def _projected(
    ctx: Context, select: exp.Select, relation: Relation, scope: Scope, path: Path, where: list[exp.Expr]
) -> Relation:
    columns: list[tuple[str, str]] = []
    number: exp.Expr | None = None
    for item in select.expressions:
        if row_number_of(item) is not None:
            if number is not None:
                raise RefusedError(item, "one ROW_NUMBER() in a query: write another query around it for a second one")
            number = item
        elif isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            columns += _star(item, scope, [name for name, _ in columns])
        else:
            name = check_name(output_name(item, [name for name, _ in columns]), item)
            columns.append((name, scope.sql(item.unalias())))
    more: list[tuple[str, str]] = []
    ranking = None
    if number is not None and (window := row_number_of(number)) is not None:
        more, ranking = hidden(window, output_name(number, [name for name, _ in columns]), scope, columns)
    step = SelectStep(columns=(*columns, *more), where=all_of(scope.sql(condition) for condition in where))
    result = ctx.transformed(relation, path, "select", step, select)
    return replace(result, ranking=ranking)


def _star(item: exp.Expr, scope: Scope, taken: list[str]) -> list[tuple[str, str]]:
    if item.args.get("except_") or item.args.get("replace"):
        raise RefusedError(item, "* EXCEPT is not there: name the columns")
    table = item.args.get("table")
    wanted = table.name.lower() if table is not None else None
    if wanted is not None and wanted not in scope.sources:
        raise RefusedError(item, f"there is no input {wanted} here; there is {', '.join(scope.sources)}")
    columns: list[tuple[str, str]] = []
    for alias, known in scope.sources.items():
        for name, actual in known.items() if wanted in (None, alias) else ():
            if is_own(name):
                continue
            if actual in taken or any(actual == name for name, _ in columns):
                raise RefusedError(item, f"* brings column {actual} twice: name the columns")
            columns.append((actual, quoted(actual)))
    return columns
