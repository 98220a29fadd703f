"""The examples of Spark's own documentation of its functions, as queries of a stream."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from epochal import Pipeline
from epochal.connectors.connector import Connector, Writes
from epochal.connectors.registry import CONNECTORS
from epochal.sql.build import build_sql
from epochal.sql.plan import Plan, TransformNode
from epochal.sql.script import plan_text
from tests.runtime.streaming import FedJob

TABLE = """\
CREATE TABLE one (__n BIGINT) WITH ('connector' = 'files', 'path' = '/one');
CREATE TABLE out WITH ('connector' = 'console');
"""
_FROM_VALUES = re.compile(
    r"(SELECT (?:(?! FROM ).)*?) FROM (VALUES .*?[ )](?:AS )?(\w+)\(([a-z]\w*(?:, [a-z]\w*)*)\))"
    r"((?: GROUP BY .*| WHERE .*)?)",
    re.DOTALL | re.IGNORECASE,
)
_BY_CHANCE = re.compile(
    r"\b(uuid|rand|randn|random|randstr|shuffle|monotonically_increasing_id|spark_partition_id|current_\w+|now|uniform|"
    r"localtimestamp|curdate|randomUUID|aes_encrypt|input_file_\w+|version|user|session_user|kll_\w+|\w+_sketch_\w+)\b|"
    r"\bunix_timestamp\(\)"
)


@dataclass(frozen=True, slots=True)
class Example:
    function: str
    sql: str

    @property
    def by_chance(self) -> bool:
        """Whether it gives something else each time, or at another place."""
        return _BY_CHANCE.search(self.sql) is not None


def examples(spark: SparkSession) -> list[Example]:
    """All of them, each text once."""
    state: Any = spark._jsparkSession.sessionState()
    found: dict[str, Example] = {}
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    names = state.functionRegistry().listFunction()
    tables = state.tableFunctionRegistry().listFunction()
    for listed in (names, tables):
        for name in sorted(listed.apply(number).funcName() for number in range(listed.size())):
            told = state.catalog().lookupFunctionInfo(identifier(name))
            for text in told.getExamples().split("  > ")[1:]:
                sql = text.split(";\n")[0].strip()
                found.setdefault(sql, Example(name, sql))
    return list(found.values())


class Parser:
    """Spark's."""

    def __init__(self, spark: SparkSession) -> None:
        self._parser: Any = spark._jsparkSession.sessionState().sqlParser()

    def expression(self, sql: str) -> Any:
        return self._parser.parseExpression(sql)

    def same(self, one: Any, other: Any) -> bool:
        """Whether two expressions are the same but for the numbers that Spark gives to names."""
        return bool(one.equals(other)) or _without_ids(one.toJSON()) == _without_ids(other.toJSON())

    def projected(self, sql: str) -> list[tuple[str, Any]] | None:
        """The items of a SELECT without FROM: their texts without an alias, and Spark's expressions of them."""
        plan = self._parser.parsePlan(sql)
        if plan.nodeName() != "Project" or plan.child().nodeName() != "OneRowRelation":
            return None
        listed = plan.projectList()
        items = [_unnamed(listed.apply(number)) for number in range(listed.size())]
        if len(items) == 1 and listed.apply(0).nodeName() == "UnresolvedAlias":
            return [(sql[len("SELECT ") :].strip(), items[0])]
        return [(_slice(item, sql), item) for item in items]


def _unnamed(named: Any) -> Any:
    return named.child() if named.nodeName() in ("Alias", "MultiAlias", "UnresolvedAlias") else named


def _slice(tree: Any, sql: str) -> str:
    return sql[tree.origin().startIndex().get() : tree.origin().stopIndex().get() + 1]


def _without_ids(json: str) -> str:
    return re.sub(r'"(id|jvmId)":("[^"]*"|\d+)', "", json)


def plan_of_items(items: list[str]) -> Plan:
    listed = ", ".join(f"{item} AS c{number}" for number, item in enumerate(items))
    return plan_text(f"{TABLE}INSERT INTO out SELECT {listed} FROM one;")


def handed_on(plan: Plan) -> list[str]:
    """What a plan of one projection gives to Spark."""
    node = next(node for node in plan.nodes.values() if isinstance(node, TransformNode))
    assert len(node.steps) == 1
    return [sql for _, sql in node.steps[0].columns]


@dataclass(frozen=True, slots=True)
class Grouped:
    """An example over rows: ``select`` stands before FROM, ``tail`` after it."""

    example: Example
    select: str
    values: str
    table: str
    columns: tuple[str, ...]
    tail: str

    def statements(self, number: int, schema: str, connector: str) -> str:
        """The same over a stream of its own."""
        name, sink = f"t{number}", f"o{number}"
        select = re.sub(rf"\b{self.table}\.", f"{name}.", self.select)
        return (
            f"CREATE TABLE {name} ({schema}) WITH ('connector' = 'files', 'path' = '${{nothing}}');\n"
            f"CREATE TABLE {sink} WITH ({connector});\n"
            f"INSERT INTO {sink} {select} FROM {name}{self.tail};\n"
        )


def grouped(found: list[Example]) -> Iterator[Grouped]:
    """The examples over VALUES with a name."""
    for example in found:
        if match := _FROM_VALUES.fullmatch(example.sql):
            select, values, table, columns, tail = match.groups()
            yield Grouped(example, select, values, table, tuple(name.strip() for name in columns.split(",")), tail)


def schema_of(spark: SparkSession, one: Grouped) -> str:
    """The columns of its rows. One that is always null has no type: any will do."""
    fields = spark.sql(f"SELECT * FROM {one.values}").schema
    kinds = {field.name: field.dataType.simpleString() for field in fields}
    return ", ".join(f"`{name}` {'string' if kind == 'void' else kind}" for name, kind in kinds.items())


# --- run as a stream ---

ONE_ROW = "VALUES (1) AS one(__n)"
_PLAIN = ("string", "int", "bigint", "double", "boolean", "date", "timestamp")


def runnable(spark: SparkSession, found: list[Example]) -> list[str]:
    """Expressions that give one value, the same each time. Types that a sink may not take are shown as text."""
    parser, texts = Parser(spark), []
    for example in found:
        items = None if example.by_chance else parser.projected(example.sql)
        for text, _ in items or ():
            try:
                kind = spark.sql(f"SELECT {text} FROM {ONE_ROW}").schema[0].dataType.simpleString()
                shown = text if kind in _PLAIN else f"CAST(({text}) AS STRING)"
                frame = spark.sql(f"SELECT {shown} AS x FROM {ONE_ROW}")
                if not _generates(frame) and frame.collect():
                    texts.append(shown)
            except (PySparkException, ValueError, OverflowError):
                continue  # An example of an error, or of several columns.
    return texts


def _generates(frame: DataFrame) -> bool:
    """Whether it makes rows: of such there may be one in a query."""
    execution: Any = frame._jdf.queryExecution()
    return "Generate " in execution.analyzed().toString()


def runs_as_stream(spark: SparkSession, texts: list[str], directory: Path) -> list[Any]:
    """What a job gives for one row, fifty expressions a query."""
    groups = [texts[begin : begin + 50] for begin in range(0, len(texts), 50)]

    def build(p: Pipeline, job: FedJob) -> None:
        p.parameters = {"nothing": str(directory)}
        sql = ["CREATE TABLE one (__n BIGINT) WITH ('connector' = 'files', 'path' = '${nothing}');"]
        for number, group in enumerate(groups):
            listed = ", ".join(f"{text} AS c{column}" for column, text in enumerate(group))
            sql.append(f"CREATE TABLE o{number} WITH ('connector' = 'collected');")
            sql.append(f"INSERT INTO o{number} SELECT {listed} FROM one;")
        writes = Writes(table=lambda stream, name, _: job.collect(name, stream))
        collected = Connector(name="collected", writes=writes)
        with mock.patch.dict(CONNECTORS, {"collected": collected}):
            build_sql(p, "\n".join(sql))

    job = FedJob(spark, build, directory)
    job.start()
    job.feed("one", [(1,)])
    job.finish()
    return [value for number in range(len(groups)) for value in job.exact(f"o{number}")[0]]
