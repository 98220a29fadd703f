"""What a text declares: tables over connectors, views, functions."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from epochal.connectors.declared_table import DeclaredTable, Watermark
from epochal.sql.dialect import PARAMETER, micros_of, unknown_parameter
from epochal.sql.errors import RefusedError, only
from epochal.sql.slices import check_name, columns_in, written


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A Python function, ``module:function``. ``returns`` is a Spark type; None if the function says it itself."""

    name: str
    module: str
    function: str
    returns: str | None


def read_table(create: exp.Create, parameters: Mapping[str, str]) -> DeclaredTable:
    schema = create.this
    name = schema.this if isinstance(schema, exp.Schema) else schema
    if create.expression is not None:
        raise RefusedError(
            name, "CREATE TABLE … AS SELECT is not there: declare the table, then INSERT INTO it (or CREATE VIEW … AS)"
        )
    only(create, "this", "kind", "properties", "exists", "replace")
    parts = schema.expressions if isinstance(schema, exp.Schema) else []
    for part in parts:
        if not isinstance(part, exp.ColumnDef | exp.PrimaryKey | exp.WatermarkColumnConstraint):
            raise RefusedError(part, "a table takes columns, a WATERMARK and a PRIMARY KEY: leave this out")
    columns = _columns(parts)
    options = _options(create, name, parameters)
    connector = options.pop("connector", "")
    if not connector:
        raise RefusedError(name, f"table {name.name} needs WITH ('connector' = '…', …): it says where its rows are")
    return DeclaredTable(
        name=name.name,
        columns=tuple(columns.items()),
        computed=tuple(_computed(parts, columns).items()),
        watermark=_watermark(parts),
        primary_key=_primary_key(parts),
        connector_name=connector,
        options=options,
    )


def _columns(parts: list[exp.Expr]) -> dict[str, str]:
    columns: dict[str, str] = {}
    seen: set[str] = set()
    for part in parts:
        if not isinstance(part, exp.ColumnDef):
            continue
        if part.name.lower() in seen:
            raise RefusedError(part, f"column {part.name} is declared twice")
        seen.add(part.name.lower())
        check_name(part.name, part)
        kind = part.args.get("kind")
        if kind is not None:
            columns[part.name] = " ".join((written(kind), *_of_type(part)))
        elif _expression_of(part) is None:
            raise RefusedError(part, f"column {part.name} needs a type, such as {part.name} BIGINT")
    return columns


_OF_COLUMNS = (
    exp.NotNullColumnConstraint
    | exp.PrimaryKeyColumnConstraint
    | exp.CommentColumnConstraint
    | exp.ComputedColumnConstraint
)


def _of_type(column: exp.ColumnDef) -> Iterator[str]:
    """What belongs to a column's type. What a source or a sink would have to do by itself is refused."""
    for constraint in column.args.get("constraints") or ():
        if isinstance(constraint.kind, exp.CollateColumnConstraint):
            yield f"COLLATE {written(constraint.kind.this)}"
        elif not isinstance(constraint.kind, _OF_COLUMNS):
            raise RefusedError(constraint, f"column {column.name} takes a type only: leave this out")


def _expression_of(column: exp.ColumnDef) -> exp.Expr | None:
    found = column.find(exp.ComputedColumnConstraint)
    return None if found is None else found.this


def _computed(parts: list[exp.Expr], columns: Mapping[str, str]) -> dict[str, str]:
    computed: dict[str, str] = {}
    known = {name.lower() for name in columns}
    for part in parts:
        if not isinstance(part, exp.ColumnDef) or (expression := _expression_of(part)) is None:
            continue
        for column in columns_in(expression):
            if column.parts[0].name.lower() not in known:
                raise RefusedError(
                    column, f"there is no column {column.parts[0].name} in this table to compute {part.name} from"
                )
        computed[part.name] = written(expression)
        known.add(part.name.lower())
    return computed


def _watermark(parts: list[exp.Expr]) -> Watermark | None:
    found = [part for part in parts if isinstance(part, exp.WatermarkColumnConstraint)]
    if not found:
        return None
    if len(found) > 1:
        raise RefusedError(found[1], "a table has one watermark")
    watermark = found[0]
    column, expression = watermark.this, watermark.expression
    if column is None or expression is None:
        raise RefusedError(watermark, "write WATERMARK FOR ts AS ts - INTERVAL '10' SECOND")
    names = {part.name.lower(): part for part in parts if isinstance(part, exp.ColumnDef)}
    declared = names.get(column.name.lower())
    if declared is None:
        raise RefusedError(column, f"the watermark is for {column.name}, which is no column of this table")
    kind = declared.args.get("kind")
    if isinstance(kind, exp.DataType) and kind.this not in exp.DataType.TEMPORAL_TYPES:
        raise RefusedError(
            column,
            f"event time {column.name} must be a TIMESTAMP, not {written(kind)}: add a computed column, such as "
            f"{column.name}_at AS timestamp_millis({column.name})",
        )
    if isinstance(expression, exp.Column) and expression.name.lower() == column.name.lower():
        return Watermark(declared.name, 0)
    if isinstance(expression, exp.Sub) and expression.this == column:
        delay = micros_of(expression.expression, expression)
        if delay < 0:
            raise RefusedError(expression, f"a watermark is not ahead of its column: write {column.name} - INTERVAL …")
        return Watermark(declared.name, delay)
    raise RefusedError(
        expression, f"a watermark is its column less a fixed interval: write {column.name} - INTERVAL '10' SECOND"
    )


def _primary_key(parts: list[exp.Expr]) -> tuple[str, ...]:
    keys = next((part for part in parts if isinstance(part, exp.PrimaryKey)), None)
    if keys is not None:
        return tuple(key.name for key in keys.expressions)
    return tuple(
        part.name for part in parts if isinstance(part, exp.ColumnDef) and part.find(exp.PrimaryKeyColumnConstraint)
    )


def _options(create: exp.Create, at: exp.Expr, parameters: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    properties = create.args.get("properties")
    for item in properties.expressions if properties is not None else ():
        if type(item) is not exp.Property or not item.args["value"].is_string or not item.this.is_string:
            raise RefusedError(
                item if item.args.get("this") else at, "write options as 'name' = 'value', both in quotes"
            )
        key = item.this.name
        if key in options:
            raise RefusedError(item, f"option {key!r} is set twice")
        options[key] = filled(item.args["value"], parameters)
    return options


def filled(literal: exp.Expr, parameters: Mapping[str, str]) -> str:
    """A string with its ``${parameter}``s replaced."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in parameters:
            raise RefusedError(literal, unknown_parameter(match[1], parameters))
        return parameters[match[1]]

    return PARAMETER.sub(value, literal.name)


def read_function(create: exp.Create) -> PythonFunction:
    defined = create.this
    if isinstance(defined, exp.UserDefinedFunction):
        defined = defined.this
    body = create.expression
    if not isinstance(body, exp.Literal) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", body.name):
        raise RefusedError(body or defined, f"write CREATE FUNCTION {defined.name} AS 'module:function' RETURNS type")
    returns = create.find(exp.ReturnsProperty)
    module, _, function = body.name.partition(":")
    return PythonFunction(
        name=defined.name,
        module=module,
        function=function,
        returns=written(returns.this) if returns is not None else None,
    )
