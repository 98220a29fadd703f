"""Tables that the tests of SQL are about."""

from epochal.sql.plan import Plan
from epochal.sql.script import plan_text

TABLES = """\
CREATE TABLE orders (id BIGINT, country STRING, amount DOUBLE, at TIMESTAMP,
  item STRUCT<name: STRING, tags: ARRAY<STRING>>,
  WATERMARK FOR at AS at - INTERVAL '10' SECOND) WITH ('connector' = 'files', 'path' = '/orders');
CREATE TABLE payments (id BIGINT, paid_at TIMESTAMP, country STRING,
  WATERMARK FOR paid_at AS paid_at) WITH ('connector' = 'files', 'path' = '/payments');
CREATE TABLE plain (id BIGINT, country STRING, at TIMESTAMP) WITH ('connector' = 'files', 'path' = '/plain');
CREATE TABLE out WITH ('connector' = 'parquet', 'path' = '/out');
CREATE TABLE typed (country STRING, n BIGINT) WITH ('connector' = 'console');
"""


def plan_of(text: str, **parameters: str) -> Plan:
    return plan_text(TABLES + text, parameters)


def told(plan: Plan) -> list[str]:
    """The plan in lines: name, kind, inputs and what is done."""
    return [
        f"{node.name} {node.kind} <- {', '.join(node.inputs)}: {'; '.join(node.details)}"
        for node in plan.nodes.values()
        if node.inputs
    ]
