"""What people who write wrong SQL are told; writes docs/bad-sql.md.

python -m tests.sql.bad_sql --write
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from epochal.sql.errors import SqlError
from epochal.sql.script import plan_text
from tests.sql.making import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "bad-sql.md"

INTRODUCTION = f"""\
# Bad SQL

What has been tried, and what `epochal validate`, `epochal run` and a driver answer. Before each text stand these
tables, whose lines do not count:

```sql
{TABLES.strip()}
```

Written by `python -m tests.sql.bad_sql --write`; the tests in `tests/sql` keep it true.
"""


@dataclass(frozen=True)
class Case:
    """``says`` must be in the answer."""

    sql: str
    says: str


TUMBLE = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE))"
IN_AN_HOUR = "p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR"

SECTIONS: dict[str, list[Case]] = {
    "No SQL, or not of a stream": [
        Case("-- nothing", "nothing is written anywhere"),
        Case("SELEC * FROM orders", "this cannot be read"),
        Case("INSERT INTO out SELECT a b c FROM orders", "this cannot be read at 'c'"),
        Case("INSERT INTO out SELECT (id FROM orders", "this cannot be read"),
        Case("INSERT INTO out SELECT 'x FROM orders", "a quote or comment that begins here has no end"),
        Case("INSERT INTO out SELECT * FROM orders WHERE id IN (FROM payments)", "a subquery inside an expression"),
        Case(
            "INSERT INTO out SELECT count(*) AS n\n"
            "FROM TABLE(SESSION(TABLE orders PARTITION BY id,, DESCRIPTOR(at), INTERVAL '5' SECOND))\n"
            "GROUP BY window_start, window_end, id",
            "this cannot be read",
        ),
        Case("CREATE VIEW v AS SELECT FROM orders; INSERT INTO out SELECT * FROM v", "this SELECT chooses nothing"),
        Case(
            "INSERT INTO FROM WITH x AS (SELECT * FROM orders) SELECT * FROM x", "INSERT INTO needs the name of a table"
        ),
        Case("INSERT INTO out SELECT * FROM orders;\nAS", "this cannot be read"),
        Case("SELECT * FROM orders", "nobody reads the result of a SELECT"),
        Case("CREATE VIEW v AS SELECT * FROM orders", "nothing is written anywhere"),
        Case("DELETE FROM orders WHERE id = 1", "DELETE is not a statement of a streaming job"),
        Case("UPDATE orders SET id = 1", "UPDATE is not a statement of a streaming job"),
        Case("DROP TABLE orders", "DROP is not a statement of a streaming job"),
        Case("SET x = 1", "SET is not a statement of a streaming job"),
        Case("EXPLAIN SELECT * FROM orders", "EXPLAIN is not a statement of a streaming job"),
        Case("INSERT INTO out VALUES (1)", "INSERT INTO takes a SELECT"),
        Case("INSERT OVERWRITE out SELECT * FROM orders", "a stream only adds"),
        Case("CREATE TABLE copy AS SELECT * FROM orders", "CREATE TABLE … AS SELECT is not there"),
    ],
    "Tables, views and functions": [
        Case("CREATE TABLE t (id BIGINT)", "table t needs WITH ('connector' = '…', …)"),
        Case("CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafak')", "did you mean 'kafka'?"),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka', 'servers' = 'k:9092')",
            "give one of 'topic', 'topic-pattern' and 'partitions', to say which records",
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka', 'servers' = 'k', 'topic' = 'a', 'topic-pattern' = "
            "'b.*')",
            "give one of 'topic', 'topic-pattern' and 'partitions', not topic and topic-pattern",
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka', 'servers' = 'k', 'topic' = 'a', 'start-time' = "
            "'yesterday')",
            "'start-time' is such as 2026-01-01T00:00:00Z, not 'yesterday'",
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka', 'servers' = 'k', 'topic' = 'a', 'format' = "
            "'avro')",
            "the format 'avro' needs 'avro-schema'",
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka', 'servers' = 'k', 'topic' = 'a', 'format' = 'csv')",
            "there is no format 'csv': write json, avro, protobuf, text, raw",
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'kafka', 'servers' = 'k', 'topic' = 'a', 'format' = 'raw')",
            "a raw record has no column id; it has key, value, topic",
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'carrier-pigeon')", "there is blackhole, console, delta, "
        ),
        Case("CREATE TABLE t (id BIGINT) WITH ('connector' = 'files')", "needs the option 'path'"),
        Case("CREATE TABLE t (id BIGINT) WITH ('connector' = 'postgres', 'table' = 't')", "needs the option 'dsn'"),
        Case("CREATE TABLE t (id BIGINT) WITH ('connector' = 'console', 'rows' = 'all')", "'rows' is a whole number"),
        Case("CREATE TABLE t (id BIGINT) WITH ('connector' = 'files', 'pth' = '/x')", "did you mean 'path'?"),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'files', 'path' = '/x', 'format' = 'xml')",
            "no format 'xml'",
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'files', 'path' = '/x', 'bounded' = 'yes')",
            "'bounded' is 'true' or 'false'",
        ),
        Case("CREATE TABLE t (id BIGINT) WITH ('connector' = 'files', 'path' = '/x', 'path' = '/y')", "set twice"),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'rate', 'trigger' = 'often')", "'often' is not a duration"
        ),
        Case(
            "CREATE TABLE t (id BIGINT) WITH ('connector' = 'nexmark', 'events' = 'bids')",
            "there are no events 'bids': write person, auction, bid",
        ),
        Case("CREATE TABLE t (id BIGINT) WITH (connector = files)", "write options as 'name' = 'value'"),
        Case("CREATE TABLE t (id BIGINT) WITH ('connector' = 'files', 'path' = '${where}')", "no parameter 'where'"),
        Case("CREATE TABLE t (id BIGINT, ID STRING) WITH ('connector' = 'console')", "column ID is declared twice"),
        Case("CREATE TABLE t (id NUMBR) WITH ('connector' = 'console')", "this cannot be read at 'NUMBR'"),
        Case(
            "CREATE TABLE t (id BIGINT, WATERMARK FOR at AS at) WITH ('connector' = 'files', 'path' = '/x')",
            "the watermark is for at, which is no column of this table",
        ),
        Case(
            "CREATE TABLE t (ms BIGINT, WATERMARK FOR ms AS ms) WITH ('connector' = 'files', 'path' = '/x')",
            "event time ms must be a TIMESTAMP, not BIGINT",
        ),
        Case(
            "CREATE TABLE t (at TIMESTAMP, WATERMARK FOR at AS now()) WITH ('connector' = 'files', 'path' = '/x')",
            "a watermark is its column less a fixed interval",
        ),
        Case(
            "CREATE TABLE t (at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1' MONTH)\n"
            "WITH ('connector' = 'files', 'path' = '/x')",
            "months and years are not equally long",
        ),
        Case(
            "CREATE TABLE t (id BIGINT, twice AS idd * 2) WITH ('connector' = 'files', 'path' = '/x')",
            "there is no column idd in this table",
        ),
        Case("CREATE TABLE orders (id BIGINT) WITH ('connector' = 'console')", "orders is there already"),
        Case("CREATE VIEW typed AS SELECT * FROM orders", "typed is there already"),
        Case("CREATE FUNCTION f AS 'functions.py'", "write CREATE FUNCTION f AS 'module:function' RETURNS type"),
        Case(
            "CREATE VIEW `my view` AS SELECT id FROM orders; INSERT INTO out SELECT * FROM `my view`", "is not allowed"
        ),
    ],
    "Names": [
        Case(
            "INSERT INTO out SELECT * FROM ordres",
            "there is no table or view ordres before this line: did you mean orders?",
        ),
        Case("INSERT INTO nowhere SELECT * FROM orders", "nowhere is not declared before this line"),
        Case("INSERT INTO out SELECT amont FROM orders", "there is no column amont: did you mean amount?"),
        Case("INSERT INTO out SELECT o.amont FROM orders o", "there is no column amont in o"),
        Case("INSERT INTO out SELECT p.id FROM orders o", "there is no input p here"),
        Case(
            f"INSERT INTO out SELECT country FROM orders o JOIN payments p ON o.id = p.id AND {IN_AN_HOUR}",
            "column country is in more than one input: write o.country or p.country",
        ),
        Case("INSERT INTO out SELECT id, amount AS id FROM orders", "two columns of the result are called id"),
        Case("INSERT INTO out SELECT * FROM typed", "typed can only be written to"),
        Case("INSERT INTO orders SELECT * FROM payments", "orders can only be read"),
        Case(
            "INSERT INTO typed SELECT country FROM orders", "typed takes 2 columns (country, n), and the query gives 1"
        ),
        Case("INSERT INTO typed (country, m) SELECT country, id FROM orders", "table typed has no column m"),
        Case("INSERT INTO typed (n, N) SELECT id, amount FROM orders", "column N is named twice"),
        Case("INSERT INTO out SELECT * FROM warehouse.orders", "tables of other databases are not there"),
    ],
    "What has no end": [
        Case("INSERT INTO out SELECT * FROM orders ORDER BY amount", "a stream has no end to be sorted at"),
        Case("INSERT INTO out SELECT * FROM orders LIMIT 10", "a stream has no end"),
        Case("INSERT INTO out SELECT id FROM orders UNION SELECT id FROM payments", "write UNION ALL"),
        Case(
            "INSERT INTO out SELECT id FROM orders EXCEPT SELECT id FROM payments",
            "EXCEPT would have to take rows back",
        ),
        Case(
            "INSERT INTO out SELECT id FROM orders UNION ALL SELECT id, country FROM payments", "need as many columns"
        ),
        Case(
            "INSERT INTO out SELECT * FROM orders WHERE id IN (SELECT id FROM payments)",
            "a subquery inside an expression",
        ),
        Case(
            "INSERT INTO out SELECT id, sum(amount) OVER (ORDER BY at) AS s FROM orders", "OVER (…) would need all rows"
        ),
        Case("INSERT INTO out SELECT 1 AS one", "a streaming query needs FROM"),
        Case("INSERT INTO out WITH RECURSIVE r AS (SELECT id FROM orders) SELECT * FROM r", "a recursive query"),
    ],
    "Windows": [
        Case(
            "INSERT INTO out SELECT count(*) AS n\n"
            "FROM TABLE(TUMBLE(TABLE plain, DESCRIPTOR(at), INTERVAL '1' MINUTE))\n"
            "GROUP BY window_start, window_end",
            "at is not the event time of this input; it has none",
        ),
        Case(
            "INSERT INTO out SELECT count(*) AS n\n"
            "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(id), INTERVAL '1' MINUTE))\n"
            "GROUP BY window_start, window_end",
            "id is not the event time of this input; its event time is at",
        ),
        Case(
            "INSERT INTO out SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE orders, INTERVAL '1' MINUTE))\n"
            "GROUP BY window_start, window_end",
            "after the table comes its event time",
        ),
        Case(
            "INSERT INTO out SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), 60))\n"
            "GROUP BY window_start, window_end",
            "an interval is needed here",
        ),
        Case(
            "INSERT INTO out SELECT count(*) AS n FROM orders GROUP BY HOP(at, INTERVAL '1' MINUTE)",
            "HOP takes 2 intervals after the column",
        ),
        Case(
            "INSERT INTO out SELECT count(*) AS n FROM orders\n"
            "GROUP BY HOP(at, INTERVAL '10' MINUTE, INTERVAL '1' MINUTE)",
            "a window needs 0 < slide <= size",
        ),
        Case(
            f"INSERT INTO out SELECT country, count(*) AS n FROM {TUMBLE}\nGROUP BY country", "grouped by their windows"
        ),
        Case("INSERT INTO out SELECT TUMBLE(at, INTERVAL '1' MINUTE) AS w FROM orders", "TUMBLE belongs into GROUP BY"),
        Case("INSERT INTO out SELECT * FROM range(10)", "is no table"),
        Case(
            "INSERT INTO out SELECT country, count(*) AS n\n"
            "FROM TABLE(SESSION(TABLE orders PARTITION BY country, DESCRIPTOR(at), INTERVAL '5' MINUTE))\n"
            "GROUP BY window_start, window_end, id",
            "SESSION is partitioned by country: group by the same",
        ),
        Case(
            "INSERT INTO out SELECT *\nFROM TABLE(SESSION(TABLE orders, DESCRIPTOR(at), INTERVAL '5' MINUTE))",
            "which session a row is in is known when the session is over",
        ),
    ],
    "The first rows of groups": [
        Case(
            "INSERT INTO out SELECT id, ROW_NUMBER() OVER (PARTITION BY country ORDER BY at) AS n FROM orders",
            "keep the first ones with a query around it, WHERE n <= 3",
        ),
        Case(
            "INSERT INTO out SELECT * FROM (\n"
            "  SELECT id, ROW_NUMBER() OVER (PARTITION BY country ORDER BY at) AS n FROM orders) WHERE n > 3",
            "the first rows are asked for as n <= n",
        ),
        Case(
            "INSERT INTO out SELECT * FROM (\n"
            "  SELECT id, ROW_NUMBER() OVER (PARTITION BY country) AS n FROM orders) WHERE n = 1",
            "which rows are the first?",
        ),
        Case(
            "INSERT INTO out SELECT * FROM (\n"
            "  SELECT id, RANK() OVER (PARTITION BY country ORDER BY at) AS n FROM orders) WHERE n = 1",
            "only ROW_NUMBER() with a filter",
        ),
        Case(
            "CREATE VIEW v AS SELECT country, count(*) AS n FROM orders GROUP BY country;\n"
            "INSERT INTO out SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS place FROM v) WHERE place = 1",
            "this would rank a result that changes",
        ),
        Case("INSERT INTO out SELECT DISTINCT country FROM orders", "SELECT DISTINCT without event time"),
    ],
    "Aggregates": [
        Case(
            "INSERT INTO out SELECT country, amount FROM orders GROUP BY country",
            "column amount is neither in GROUP BY",
        ),
        Case(
            "INSERT INTO out SELECT country FROM orders WHERE count(*) > 1 GROUP BY country", "WHERE holds an aggregate"
        ),
        Case(
            "INSERT INTO out SELECT sum(max(amount)) AS s FROM orders GROUP BY id", "an aggregate inside an aggregate"
        ),
        Case("INSERT INTO out SELECT * FROM orders GROUP BY id", "SELECT * with GROUP BY"),
        Case("INSERT INTO out SELECT country, count(*) AS n FROM orders GROUP BY 3", "the select list has 2 items"),
        Case("INSERT INTO out SELECT id, count(*) AS n FROM orders GROUP BY ROLLUP (id)", "ROLLUP cannot be streamed"),
        Case(
            "INSERT INTO out SELECT country, count(*) AS n FROM orders GROUP BY country, window(at, '1 minute')",
            "window(…) would be a key that is kept for ever: write TUMBLE",
        ),
        Case(
            "INSERT INTO out SELECT window_start, count(*) AS n FROM TABLE(CUMULATE(TABLE orders, DESCRIPTOR(at), "
            "INTERVAL '1' MINUTE, INTERVAL '1' HOUR)) GROUP BY window_start, window_end",
            "CUMULATE is not there: write TUMBLE",
        ),
        Case(
            "INSERT INTO out SELECT id, (SELECT max(amount) FROM orders) AS most FROM orders",
            "a subquery inside an expression cannot be streamed",
        ),
        Case(
            "INSERT INTO out SELECT id, tag FROM orders CROSS JOIN UNNEST(item.tags) AS t(tag)",
            "instead of UNNEST write LATERAL VIEW explode(items) t AS item",
        ),
        Case(
            "INSERT INTO out SELECT country, count(*) AS n FROM orders GROUP BY country HAVING count(*) < 5",
            "HAVING on a result that changes",
        ),
        Case(
            "CREATE VIEW v AS SELECT country, count(*) AS n FROM orders GROUP BY country;\n"
            "INSERT INTO out SELECT max(n) AS most FROM v",
            "max(n) of a result that changes (GROUP BY without a window)",
        ),
        Case(
            "CREATE VIEW v AS SELECT country, collect_list(id) AS ids FROM orders GROUP BY country;\n"
            "INSERT INTO out SELECT count(*) AS n FROM v",
            "collect_list(id) in that result does not keep its old value",
        ),
        Case(
            "CREATE VIEW v AS SELECT country, id, place FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY country "
            "ORDER BY amount) AS place FROM orders) WHERE place = 1;\n"
            "INSERT INTO out SELECT count(*) AS n FROM v",
            "this would aggregate a result that changes (ROW_NUMBER() of groups that never end)",
        ),
        Case(
            "CREATE VIEW v AS SELECT country, count(*) AS n FROM orders GROUP BY country;\n"
            "INSERT INTO out SELECT * FROM v WHERE n > 5",
            "a filter on a result that changes",
        ),
    ],
    "Joins": [
        Case(
            "INSERT INTO out SELECT o.id FROM orders o JOIN payments p ON o.id = p.id",
            "every row would be kept for ever: add p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR",
        ),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o JOIN payments p\nON o.id = p.id AND p.paid_at >= o.at",
            "without a bound on time on both sides",
        ),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o JOIN plain p ON o.id = p.id AND p.at = o.at",
            "a join of streams needs event time, and p has none",
        ),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o JOIN payments p ON o.id = p.id\n"
            "AND p.paid_at BETWEEN o.at + INTERVAL '2' HOUR AND o.at + INTERVAL '1' HOUR",
            "no two times satisfy this",
        ),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o JOIN payments p ON id = p.id",
            "column id is on both sides of the join",
        ),
        Case(
            f"INSERT INTO out SELECT o.id FROM orders o LEFT SEMI JOIN payments p ON {IN_AN_HOUR}",
            "SEMI JOIN is not there",
        ),
        Case(
            f"INSERT INTO out SELECT o.id FROM {TUMBLE} o JOIN payments p\n"
            "ON o.id = p.id AND p.paid_at = o.window_start",
            "a join of windows needs the same TUMBLE or HOP on both sides",
        ),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o\nLEFT JOIN payments p ON o.id = p.id AND o.amount > 5",
            "ON of a left join may hold equalities",
        ),
        Case(
            "CREATE VIEW paid AS SELECT o.id, o.at, p.paid_at FROM orders o JOIN payments p ON o.id = p.id\n"
            "AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR;\n"
            "INSERT INTO out SELECT x.id FROM paid x LEFT JOIN payments q ON x.id = q.id\n"
            "AND q.paid_at BETWEEN x.at AND x.at + INTERVAL '1' HOUR AND q.paid_at > x.paid_at",
            "ON of a left join may hold equalities",
        ),
        Case(
            f"INSERT INTO out SELECT o.id FROM {TUMBLE} o LEFT JOIN "
            "TABLE(TUMBLE(TABLE payments, DESCRIPTOR(paid_at), INTERVAL '1' MINUTE)) p\n"
            "ON o.window_start = p.window_start AND o.id = p.id AND o.window_end <> p.paid_at",
            "ON of a left join may hold equalities",
        ),
        Case(
            f"INSERT INTO out SELECT o.id FROM {TUMBLE} o JOIN "
            "TABLE(TUMBLE(TABLE payments, DESCRIPTOR(paid_at), INTERVAL '1' MINUTE)) p\n"
            "ON o.window_start = p.window_end AND o.id = p.id",
            "a join of windows needs ON a.window_start = b.window_start",
        ),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o\n"
            "RIGHT JOIN plain FOR SYSTEM_TIME AS OF o.at AS p ON o.id = p.id",
            "a table is looked up for rows of the stream: INNER or LEFT JOIN",
        ),
        Case("INSERT INTO out SELECT o.id FROM orders o NATURAL JOIN payments p", "NATURAL JOIN is not there"),
        Case(
            "INSERT INTO out SELECT * FROM orders JOIN orders ON orders.id = orders.id", "two inputs are called orders"
        ),
        Case(
            "CREATE VIEW v AS SELECT id, count(*) AS n FROM payments GROUP BY id;\n"
            "INSERT INTO out SELECT o.id FROM orders o JOIN v ON o.id = v.id",
            "one side of this join changes",
        ),
    ],
    "What the planner would have to leave out": [
        Case("INSERT INTO out (SELECT * FROM orders) LIMIT 5", "a stream has no end"),
        Case("INSERT INTO typed BY NAME SELECT id AS n, country FROM orders", "BY NAME is not there"),
        Case("INSERT INTO typed PARTITION (n = 1) SELECT country FROM orders", "PARTITION is not there"),
        Case("INSERT INTO out SELECT id FROM orders UNION ALL BY NAME SELECT id FROM payments", "BY NAME is not there"),
        Case("INSERT INTO out SELECT DISTINCT ON (id) id, at FROM orders", "ON is not there"),
        Case("INSERT INTO out SELECT id FROM orders TABLESAMPLE (5 ROWS)", "TABLESAMPLE is not there"),
        Case("INSERT INTO out SELECT id FROM orders VERSION AS OF 3", "AS OF is not there"),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o JOIN plain VERSION AS OF 3 AS p ON o.id = p.id",
            "a table is looked up as it is now",
        ),
        Case(
            "INSERT INTO out SELECT o.id FROM orders o\n"
            "JOIN plain FOR SYSTEM_TIME AS OF o.at - INTERVAL '1' DAY AS p ON o.id = p.id",
            "a table is looked up as it is now",
        ),
        Case(
            "CREATE TABLE t (at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL -1 MINUTE)\n"
            "WITH ('connector' = 'files', 'path' = '/x')",
            "a watermark is not ahead of its column",
        ),
        Case(
            "INSERT INTO out SELECT id, tag FROM orders LATERAL VIEW explode(item.tags) t AS tag\n"
            "FULL JOIN payments p ON orders.id = p.id AND p.paid_at = orders.at",
            "write LATERAL VIEW after the outer join",
        ),
        Case(
            "INSERT INTO out SELECT * FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY at ROWS UNBOUNDED PRECEDING) AS n "
            "FROM orders)\nWHERE n = 1",
            "ROWS is not there",
        ),
        Case(
            "CREATE TABLE t (id BIGINT DEFAULT 5) WITH ('connector' = 'files', 'path' = '/x')",
            "column id takes a type only",
        ),
        Case(
            "CREATE TABLE t (id BIGINT, CHECK (id > 1)) WITH ('connector' = 'files', 'path' = '/x')",
            "a table takes columns, a WATERMARK and a PRIMARY KEY",
        ),
        Case("CREATE TABLE t (__key_0 BIGINT) WITH ('connector' = 'console')", "the planner has a column __key_0"),
        Case(
            "INSERT INTO out SELECT TUMBLE_START(at, INTERVAL '5' MINUTE) AS t FROM orders\n"
            "GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)",
            "TUMBLE_START is of another window",
        ),
        Case(
            f"INSERT INTO out SELECT country, count(*) AS n FROM {TUMBLE}\n"
            "WHERE window_start > TIMESTAMP '2026-01-01' GROUP BY window_start, window_end, country",
            "write this condition in HAVING",
        ),
        Case(
            "INSERT INTO out SELECT to_json(struct(*)) AS j FROM orders o\n"
            f"JOIN payments p ON o.id = p.id AND {IN_AN_HOUR}",
            "name the columns here, instead of *",
        ),
        Case(
            "INSERT INTO out SELECT posexplode(item.tags) AS (place, tag) FROM orders",
            "several columns of one expression",
        ),
        Case(
            "INSERT INTO out SELECT country || id + 1 AS x, count(*) AS n FROM orders GROUP BY country, id + 1",
            "column id is neither in GROUP BY",
        ),
    ],
}


def answer(case: Case) -> str:
    """What is said, with lines counted from the case's own first one."""
    try:
        plan_text(f"{TABLES}{case.sql}")
    except SqlError as error:
        line = error.line - TABLES.count("\n")
        return f"line {max(1, line)}, column {error.column}: {error.reason}\n{error.excerpt}"
    return ""


def all_cases() -> Iterator[Case]:
    for cases in SECTIONS.values():
        yield from cases


def page() -> str:
    parts = [INTRODUCTION]
    for title, cases in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [f"```sql\n{case.sql}\n```\n\n```\n{answer(case)}\n```\n" for case in cases]
    return "\n".join(parts)


def main() -> None:
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main()
