"""From a text to a plan: tables, views, functions and INSERTs, in the order of the text."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from epochal.connectors.declared_table import DeclaredTable, quoted
from epochal.connectors.registry import CONNECTORS, problem_of
from epochal.sql.changes import carried
from epochal.sql.context import Context, folded
from epochal.sql.dialect import Statement, read
from epochal.sql.errors import RefusedError, SqlError, only
from epochal.sql.plan import Plan, SelectStep, SinkNode, SourceNode, UnionNode
from epochal.sql.queries import Names, planned
from epochal.sql.ranking import settled
from epochal.sql.relations import Relation
from epochal.sql.slices import span
from epochal.sql.tables import PythonFunction, filled, read_function, read_table

STATEMENTS = "CREATE TABLE, CREATE VIEW, CREATE FUNCTION and INSERT INTO"


def plan_text(text: str, parameters: Mapping[str, str] | None = None) -> Plan:
    """The plan of a text; :class:`SqlError` with the place of what cannot be done."""
    statements = read(text, parameters)
    script = _Script(Context(parameters or {}))
    for statement in statements:
        try:
            script.take(statement.tree)
        except RefusedError as refused:
            raise _placed(refused, statement, text) from refused
    if not script.inserts:
        end = len(text.rstrip())
        raise SqlError(
            "nothing is written anywhere: add INSERT INTO a table with SELECT …",
            text=text,
            start=max(0, end - 1),
            end=end,
        )
    try:
        script.finish()
    except RefusedError as refused:
        raise _placed(refused, statements[-1], text) from refused
    return folded(carried(script.ctx.plan))


def _placed(refused: RefusedError, statement: Statement, text: str) -> SqlError:
    start, end = span(refused.at)
    if end == 0:
        start, end = statement.start, statement.end
    return SqlError(refused.reason, text=text, start=start, end=end)


@dataclass(slots=True)
class _Declared:
    """A table, and how it is used."""

    table: DeclaredTable
    relation: Relation | None = None


@dataclass(slots=True)
class _Script:
    ctx: Context
    tables: dict[str, _Declared] = field(default_factory=dict)
    views: dict[str, Relation] = field(default_factory=dict)
    functions: dict[str, PythonFunction] = field(default_factory=dict)
    inserts: dict[str, list[tuple[Relation, exp.Expr]]] = field(default_factory=dict)

    def take(self, tree: exp.Expr) -> None:
        _fill(tree, self.ctx.parameters)
        match tree:
            case exp.Create(kind="TABLE"):
                self._table(tree)
            case exp.Create(kind="VIEW"):
                self._view(tree)
            case exp.Create(kind="FUNCTION"):
                function = read_function(tree)
                self._new(function.name, tree.this)
                self.functions[function.name.lower()] = function
                self.ctx.plan.functions.append(function)
            case exp.Insert():
                self._insert(tree)
            case exp.Query():
                raise RefusedError(
                    tree,
                    "nobody reads the result of a SELECT: write INSERT INTO a table before it, or CREATE VIEW … AS",
                )
            case _:
                what = tree.name.upper() if isinstance(tree, exp.Command) else tree.key.upper()
                raise RefusedError(tree, f"{what} is not a statement of a streaming job: it takes {STATEMENTS}")

    def _new(self, name: str, at: exp.Expr) -> None:
        if name.lower() in {**self.tables, **self.views, **self.functions}:
            raise RefusedError(at, f"{name} is there already: state is kept by name, so each needs a name of its own")

    def _table(self, create: exp.Create) -> None:
        table = read_table(create, self.ctx.parameters)
        self._new(table.name, create.this)
        if problem := problem_of(table):
            raise RefusedError(_option_at(create, problem.option), problem.reason)
        self.tables[table.name.lower()] = _Declared(table)

    def _view(self, create: exp.Create) -> None:
        only(create, "this", "kind", "expression", "properties", "replace", "exists")
        name = create.this.this if isinstance(create.this, exp.Schema) else create.this
        self._new(name.name, name)
        if not isinstance(create.expression, exp.Query):
            raise RefusedError(name, f"write CREATE VIEW {name.name} AS SELECT …")
        relation = planned(self.ctx, create.expression, Names(self._named, self._declared), (name.name.lower(),))
        if isinstance(create.this, exp.Schema):
            raise RefusedError(name, "name a view's columns in its SELECT, with AS")
        self.views[name.name.lower()] = relation

    def _named(self, table: exp.Table) -> Relation:
        """What a table or view gives; the first use of a table makes its source."""
        name = table.name.lower()
        if table.db:
            raise RefusedError(
                table, "tables of other databases are not there: declare a table with CREATE TABLE … WITH (…)"
            )
        if name in self.views:
            return self.views[name]
        declared = self.tables.get(name)
        if declared is None:
            known = [*self.tables, *self.views]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f": did you mean {close[0]}?" if close else f"; there is {', '.join(known) or 'none yet'}"
            raise RefusedError(table, f"there is no table or view {table.name} before this line{hint}")
        if declared.relation is None:
            declared.relation = self._source(declared.table, table)
        return declared.relation

    def _declared(self, table: exp.Table) -> DeclaredTable:
        """A table that is looked up."""
        declared = self.tables.get(table.name.lower())
        if declared is None:
            raise RefusedError(table, f"{table.name} is no table: FOR SYSTEM_TIME AS OF looks rows up in a table")
        return declared.table

    def _source(self, table: DeclaredTable, at: exp.Table) -> Relation:
        connector = CONNECTORS[table.connector_name]
        if connector.reads is None:
            raise RefusedError(
                at, f"{table.name} can only be written to: connector {table.connector_name!r} does not read"
            )
        if table.name.lower() in self.inserts:
            raise RefusedError(at, f"{table.name} is written to in this job: read the view that it is written from")
        event_time = table.watermark.column if table.watermark else None
        columns = table.all_columns or connector.reads.columns
        if not columns:
            raise RefusedError(
                at, f"table {table.name} is read, so it needs columns: CREATE TABLE {table.name} (id BIGINT, …)"
            )
        node = SourceNode(name=self.ctx.name((table.name,), "", at), event_time=event_time, table=table)
        times = (event_time,) if event_time else ()
        return Relation(node=self.ctx.add(node), columns=columns, times=times, event_time=event_time)

    # --- INSERT ---

    def _insert(self, insert: exp.Insert) -> None:
        schema = insert.this
        target = schema.this if isinstance(schema, exp.Schema) else schema
        name = target.name.lower()
        if not name:
            raise RefusedError(insert, "INSERT INTO needs the name of a table")
        declared = self.tables.get(name)
        if declared is None:
            what = "is a view" if name in self.views else "is not declared before this line"
            raise RefusedError(
                target,
                f"{target.name} {what}: INSERT INTO takes a table, CREATE TABLE {target.name} (…) WITH ('connector' "
                "= '…')",
            )
        table = declared.table
        writes = CONNECTORS[table.connector_name].writes
        if writes is None or writes.table is None:
            raise RefusedError(
                target, f"{table.name} can only be read: connector {table.connector_name!r} does not write"
            )
        if declared.relation is not None:
            raise RefusedError(target, f"{table.name} is read in this job: a job cannot read what it writes")
        if insert.args.get("overwrite"):
            raise RefusedError(target, "a stream only adds: write INSERT INTO")
        only(insert, "this", "expression")
        only(target, "this", "db", "catalog")
        if not isinstance(insert.expression, exp.Query):
            raise RefusedError(target, "INSERT INTO takes a SELECT: rows come from a stream")
        number = len(self.inserts.get(name, ())) + 1
        path = (name,) if number == 1 else (f"{name}-{number}",)
        relation = settled(planned(self.ctx, insert.expression, Names(self._named, self._declared), path))
        listed = [column.name for column in schema.expressions] if isinstance(schema, exp.Schema) else []
        fitted = self._fitted(relation, table, listed, insert, path)
        self.inserts.setdefault(name, []).append((fitted, target))

    def _fitted(
        self, relation: Relation, table: DeclaredTable, listed: list[str], insert: exp.Insert, path: tuple[str, ...]
    ) -> Relation:
        """The query's columns, by position, as the table's, with its types."""
        columns = dict(table.columns)
        if not columns:
            return relation
        wanted = listed or list(columns)
        small = {name.lower(): name for name in columns}
        for number, name in enumerate(wanted):
            if name.lower() in {one.lower() for one in wanted[:number]}:
                raise RefusedError(insert.this, f"column {name} is named twice: each takes one value")
            if name.lower() not in small:
                raise RefusedError(insert.this, f"table {table.name} has no column {name}; it has {', '.join(columns)}")
        if len(wanted) != len(relation.columns):
            first = insert.expression.expressions[0] if insert.expression.expressions else insert.this
            raise RefusedError(
                first,
                f"{table.name} takes {len(wanted)} columns ({', '.join(wanted)}), and the query gives "
                f"{len(relation.columns)} ({', '.join(relation.columns)})",
            )
        given = {small[name.lower()]: column for name, column in zip(wanted, relation.columns, strict=True)}
        step = SelectStep(
            columns=tuple(
                (name, f"CAST({quoted(given[name]) if name in given else 'NULL'} AS {kind})")
                for name, kind in columns.items()
            )
        )
        return self.ctx.transformed(relation, path, "fitted", step, insert.this)

    def finish(self) -> None:
        """One sink for each table that is written, whatever the number of INSERTs."""
        for name, parts in self.inserts.items():
            table, at = self.tables[name].table, parts[0][1]
            relations = [relation for relation, _ in parts]
            columns = {relation.columns for relation in relations}
            if len(columns) > 1:
                raise RefusedError(
                    parts[1][1],
                    f"the INSERTs into {table.name} have different columns: declare its columns in CREATE TABLE",
                )
            node = relations[0].node
            if len(relations) > 1:
                inputs = tuple(relation.node for relation in relations)
                node = self.ctx.add(UnionNode(name=self.ctx.name((name,), "union", at), inputs=inputs))
            self.ctx.add(SinkNode(name=self.ctx.name((name,), "", at), inputs=(node,), table=table))


def _fill(tree: exp.Expr, parameters: Mapping[str, str]) -> None:
    for literal in tree.find_all(exp.Literal):
        if literal.is_string and not isinstance(literal.parent, exp.Property):
            literal.set("this", filled(literal, parameters))


def _option_at(create: exp.Create, option: str) -> exp.Expr:
    for item in create.find_all(exp.Property):
        if item.name == option or (item.this is not None and item.this.name == option):
            return item
    named: exp.Expr = create.this
    return named
