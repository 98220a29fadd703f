"""SQL jobs on Spark against Spark's own batch SQL over the same rows: batches of chance sizes, lost drivers."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from epochal import Pipeline
from epochal.sql.build import build_sql
from epochal.sql.calls import AGGREGATES
from tests.runtime.streaming import FedJob, Rows, at, batches_of, ordered

ORDERS = "id long, country string, amount double, at timestamp, cents long"
PAYMENTS = "id long, paid_at timestamp, method string"

TABLES = """
CREATE TABLE orders (id BIGINT, country STRING, amount DOUBLE, at TIMESTAMP,
  cents AS CAST(round(amount * 100) AS BIGINT),
  WATERMARK FOR at AS at - INTERVAL '20' SECOND) WITH ('connector' = 'files', 'path' = '${nothing}');
CREATE TABLE payments (id BIGINT, paid_at TIMESTAMP, method STRING,
  WATERMARK FOR paid_at AS paid_at - INTERVAL '20' SECOND) WITH ('connector' = 'files', 'path' = '${nothing}');
"""

JOB = """
CREATE FUNCTION shout AS 'tests.sql.functions:shout' RETURNS STRING;
CREATE TABLE minutes (start TIMESTAMP, country STRING, n BIGINT, cents BIGINT, mean DOUBLE, big BIGINT)
  WITH ('connector' = 'parquet', 'path' = '${out}/minutes');
CREATE TABLE hops WITH ('connector' = 'parquet', 'path' = '${out}/hops');
CREATE TABLE paid WITH ('connector' = 'parquet', 'path' = '${out}/paid');
CREATE TABLE both WITH ('connector' = 'parquet', 'path' = '${out}/both');
CREATE TABLE totals WITH ('connector' = 'parquet', 'path' = '${out}/totals');
INSERT INTO minutes
  SELECT window_start, shout(country), count(*), sum(cents), sum(cents) / count(*), count(*) FILTER (WHERE amount > 50)
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)) WHERE country IS NOT NULL
  GROUP BY window_start, window_end, country HAVING count(*) > 1;
CREATE VIEW sliding AS
  SELECT window_start, window_end, country, count(*) AS n
  FROM TABLE(HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '20' SECOND, INTERVAL '1' MINUTE))
  GROUP BY window_start, window_end, country;
INSERT INTO hops SELECT window_start, window_end, max(n) AS most FROM sliding GROUP BY window_start, window_end;
CREATE VIEW paid_orders AS
  SELECT o.id, o.country, p.method, o.at, p.paid_at
  FROM orders o JOIN payments p ON o.id = p.id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '10' SECOND
  WHERE o.amount > 10 AND p.method <> o.country;
INSERT INTO paid SELECT * FROM paid_orders;
CREATE TABLE twice WITH ('connector' = 'parquet', 'path' = '${out}/twice');
INSERT INTO twice SELECT x.id, x.at, x.paid_at, q.paid_at AS second, q.method FROM paid_orders x JOIN payments q
  ON x.id = q.id AND (q.paid_at BETWEEN x.at AND x.at + INTERVAL '14' SECOND)
  AND q.paid_at BETWEEN x.paid_at - INTERVAL '3' SECOND AND x.paid_at + INTERVAL '1' SECOND
  WHERE q.method <> 'O''Brien' AND x.paid_at >= q.paid_at - INTERVAL '1' SECOND;
CREATE TABLE apart WITH ('connector' = 'parquet', 'path' = '${out}/apart');
INSERT INTO apart SELECT window_start, -cents % 2 AS odd, sum(cents + 1) AS a, sum(cents - 1) AS b, max(cents) AS c,
    max(-cents) AS d, count(*) FILTER (WHERE amount > 50) AS e, count(*) FILTER (WHERE amount < 50) AS f,
    count_if(country = 'O''Brien'), max_by(id, cents, 2) AS g, round(sum(cents)/count(*), 2)-1 AS h,
    array_sort(transform(collect_list(id), country -> country + 1)) AS i
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE))
  GROUP BY window_start, window_end, -cents % 2;
CREATE TABLE uneven WITH ('connector' = 'parquet', 'path' = '${out}/uneven');
INSERT INTO uneven SELECT window_start, window_end, id
  FROM TABLE(HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '20' SECOND, INTERVAL '50' SECOND));
INSERT INTO both SELECT id, at, 'order' AS kind FROM orders UNION ALL
  SELECT id / 2, paid_at, method FROM payments;
INSERT INTO totals SELECT country, count(*) AS n, sum(cents) AS cents FROM orders GROUP BY country;
"""

BATCH = {
    "minutes": """SELECT window.start, concat(country, '!'), count(*), sum(cents), sum(cents) / count(*),
        count_if(amount > 50) FROM orders WHERE country IS NOT NULL GROUP BY window(at, '1 minute'), country
        HAVING count(*) > 1""",
    "hops": """SELECT window.start, window.end, max(n) FROM (SELECT window, country, count(*) AS n FROM orders
        GROUP BY window(at, '1 minute', '20 seconds'), country) GROUP BY window""",
    "paid": """SELECT o.id, o.country, p.method, o.at, p.paid_at FROM orders o JOIN payments p ON o.id = p.id
        AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '10' SECOND WHERE o.amount > 10 AND p.method <> o.country""",
    "twice": """SELECT x.id, x.at, x.paid_at, q.paid_at, q.method FROM (SELECT o.*, p.paid_at FROM orders o
        JOIN payments p ON o.id = p.id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '10' SECOND
        WHERE o.amount > 10 AND p.method <> o.country) x
        JOIN payments q ON x.id = q.id AND q.paid_at BETWEEN x.at AND x.at + INTERVAL '14' SECOND
        AND q.paid_at BETWEEN x.paid_at - INTERVAL '1' SECOND AND x.paid_at + INTERVAL '1' SECOND""",
    "apart": """SELECT window.start, -cents % 2, sum(cents + 1), sum(cents - 1), max(cents), max(-cents),
        count_if(amount > 50), count_if(amount < 50), 0, max_by(id, cents, 2), round(sum(cents) / count(*), 2) - 1,
        array_sort(transform(collect_list(id), x -> x + 1))
        FROM orders GROUP BY window(at, '1 minute'), -cents % 2""",
    "uneven": """SELECT window.start, window.end, id FROM (SELECT id, window(at, '50 seconds', '20 seconds') AS window
        FROM orders)""",
    "both": "SELECT id, at, 'order' FROM orders UNION ALL SELECT id / 2, paid_at, method FROM payments",
}
TOTALS = "SELECT country, count(*), sum(cents) FROM orders GROUP BY country"


def inputs(chance: random.Random) -> dict[str, Rows]:
    """Orders and payments of three minutes, up to 15 seconds out of order."""
    orders, payments = [], []
    for number in range(150):
        moment, cents = number * 1.2, chance.randrange(10_000)
        orders.append((number, chance.choice(["de", "fr", "us", None]), cents / 100, at(moment), cents))
        paid = at(moment + chance.random() * 14)
        payments.append((chance.randrange(number + 1), paid, chance.choice(["card", "cash", "de"])))
    return {"orders": shuffled(orders, chance), "payments": shuffled(payments, chance)}


def shuffled(rows: Rows, chance: random.Random) -> Rows:
    """Each row up to 15 seconds later than it should come."""
    places = {row: number * 1.2 + chance.random() * 15 for number, row in enumerate(rows)}
    return sorted(rows, key=lambda row: places[row])


def latest(frame: DataFrame) -> Rows:
    """Of the changes of each key the last: counts only grow."""
    newest: dict[object, tuple[Any, ...]] = {}
    for row in frame.collect():
        if row[0] not in newest or row[1] > newest[row[0]][1]:
            newest[row[0]] = tuple(row)
    return ordered(newest.values())


def play(spark: SparkSession, directory: Path, text: str, seed: int) -> None:
    """Stream the text's job over lost drivers, and have the same rows as views of batch SQL."""
    chance = random.Random(seed)
    rows = inputs(chance)
    (directory / "nothing").mkdir()

    def build(p: Pipeline, job: FedJob) -> None:
        p.parameters = {"nothing": str(directory / "nothing"), "out": str(directory / "out")}
        build_sql(p, TABLES + text)

    job = FedJob(spark, build, directory)
    job.play({name: batches_of(ones, chance, most=100) for name, ones in rows.items()}, chance, losses=1)
    spark.createDataFrame(rows["orders"], ORDERS).createOrReplaceTempView("orders")
    spark.createDataFrame(rows["payments"], PAYMENTS).createOrReplaceTempView("payments")


def output(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    return spark.read.parquet(str(directory / "out" / name))


@pytest.mark.spark
@pytest.mark.slow
def test_sql_gives_what_batch_sql_gives(spark: SparkSession, tmp_path: Path) -> None:
    play(spark, tmp_path, JOB, seed=11)
    for name, query in BATCH.items():
        assert ordered(output(spark, tmp_path, name).collect()) == ordered(spark.sql(query).collect()), name
    assert latest(output(spark, tmp_path, "totals")) == ordered(spark.sql(TOTALS).collect())


MORE = """
CREATE TABLE countries (country STRING, name STRING) WITH ('connector' = 'files', 'path' = '${nothing}/../countries');
CREATE TABLE best WITH ('connector' = 'parquet', 'path' = '${out}/best');
CREATE TABLE rows_of_windows WITH ('connector' = 'parquet', 'path' = '${out}/rows_of_windows');
CREATE TABLE once WITH ('connector' = 'parquet', 'path' = '${out}/once');
CREATE TABLE sessions WITH ('connector' = 'parquet', 'path' = '${out}/sessions');
CREATE TABLE together WITH ('connector' = 'parquet', 'path' = '${out}/together');
CREATE TABLE unpaid WITH ('connector' = 'parquet', 'path' = '${out}/unpaid');
CREATE TABLE named WITH ('connector' = 'parquet', 'path' = '${out}/named');
CREATE TABLE largest WITH ('connector' = 'parquet', 'path' = '${out}/largest');
CREATE TABLE letters WITH ('connector' = 'parquet', 'path' = '${out}/letters');
CREATE TABLE by_country WITH ('connector' = 'parquet', 'path' = '${out}/by_country');
CREATE TABLE of_countries WITH ('connector' = 'parquet', 'path' = '${out}/of_countries');
CREATE VIEW minutes AS
  SELECT window_start, window_end, country, sum(cents) AS cents
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, country;
INSERT INTO best SELECT window_start, country, cents, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY cents DESC) AS place FROM minutes)
  WHERE place <= 2;
INSERT INTO rows_of_windows SELECT window_start, id FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, country ORDER BY cents, id) AS place
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE))) WHERE place = 1;
INSERT INTO once SELECT DISTINCT window_start, window_end, country
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE));
INSERT INTO sessions SELECT window_start, window_end, method, count(*) AS n
  FROM TABLE(SESSION(TABLE payments PARTITION BY method, DESCRIPTOR(paid_at), INTERVAL '4' SECOND))
  GROUP BY window_start, window_end, method;
INSERT INTO together SELECT o.window_start, o.id, p.method, p.window_start AS theirs
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)) o
  LEFT JOIN TABLE(TUMBLE(TABLE payments, DESCRIPTOR(paid_at), INTERVAL '1' MINUTE)) p
  ON o.id = p.id AND o.window_start = p.window_start AND o.window_end = p.window_end;
INSERT INTO unpaid SELECT o.id, p.id AS payment FROM orders o LEFT JOIN payments p
  ON o.id = p.id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '10' SECOND;
INSERT INTO named SELECT o.id, c.name FROM orders o LEFT JOIN countries FOR SYSTEM_TIME AS OF o.at AS c
  ON o.country = c.country;
INSERT INTO largest SELECT country, id, place FROM (
  SELECT id, country, cents, ROW_NUMBER() OVER (PARTITION BY country ORDER BY cents DESC, id) AS place FROM orders)
  WHERE place = 1;
INSERT INTO letters SELECT id, letter FROM orders LATERAL VIEW explode(split(country, '')) t AS letter;
CREATE VIEW per_country AS SELECT country, count(*) AS n, max(cents) AS most FROM orders GROUP BY country;
INSERT INTO by_country SELECT country, n, most FROM per_country;
INSERT INTO of_countries SELECT sum(n) AS orders, count(*) AS countries, avg(most) AS mean_most, count(country) AS named
  FROM per_country WHERE n > 1;
"""
WINDOW = "window(at, '1 minute')"
MORE_BATCH = {
    "best": f"""SELECT window.start, country, cents, place FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window
        ORDER BY cents DESC) AS place FROM (SELECT {WINDOW} AS window, country, sum(cents) AS cents FROM orders
        GROUP BY ALL)) WHERE place <= 2""",
    "rows_of_windows": f"""SELECT window.start, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window, country
        ORDER BY cents, id) AS place FROM (SELECT *, {WINDOW} AS window FROM orders)) WHERE place = 1""",
    "once": f"SELECT DISTINCT window.start, window.end, country FROM (SELECT *, {WINDOW} AS window FROM orders)",
    "sessions": """SELECT session_window.start, session_window.end, method, count(*) FROM payments
        GROUP BY session_window(paid_at, '4 seconds'), method""",
    "together": """SELECT o.w.start, o.id, p.method, p.w.start
        FROM (SELECT *, window(at, '1 minute') AS w FROM orders) o
        LEFT JOIN (SELECT *, window(paid_at, '1 minute') AS w FROM payments) p ON o.id = p.id AND o.w = p.w""",
    "unpaid": """SELECT o.id, p.id FROM orders o LEFT JOIN payments p
        ON o.id = p.id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '10' SECOND""",
    "letters": "SELECT id, explode(split(country, '')) FROM orders",
    "named": "SELECT id, CASE country WHEN 'de' THEN 'Germany' WHEN 'fr' THEN 'France' END FROM orders",
}
PER_COUNTRY = "SELECT country, count(*) AS n, max(cents) AS most FROM orders GROUP BY country"
OF_COUNTRIES = f"SELECT sum(n), count(*), avg(most), count(country) FROM ({PER_COUNTRY}) WHERE n > 1"
LARGEST = "SELECT country, max_by(id, struct(cents, -id)) FROM orders GROUP BY country"


@pytest.mark.spark
@pytest.mark.slow
def test_rankings_sessions_and_other_joins_give_what_batch_sql_gives(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "countries").mkdir()
    lines = ['{"country": "de", "name": "Germany"}', '{"country": "fr", "name": "France"}']
    (tmp_path / "countries" / "0.json").write_text("\n".join(lines))
    play(spark, tmp_path, MORE, seed=12)
    for name, query in MORE_BATCH.items():
        assert ordered(output(spark, tmp_path, name).collect()) == ordered(spark.sql(query).collect()), name
    # A result that changes: what is first in the end came out, too.
    came_out = {row[:2] for row in ordered(output(spark, tmp_path, "largest").collect())}
    assert set(ordered(spark.sql(LARGEST).collect())) <= came_out
    # An aggregate of one that changes: each country counts once, by its newest values.
    assert latest(output(spark, tmp_path, "by_country")) == ordered(spark.sql(PER_COUNTRY).collect())
    last = max(output(spark, tmp_path, "of_countries").collect())
    assert tuple(last) == tuple(spark.sql(OF_COUNTRIES).collect()[0])


@pytest.mark.spark
def test_every_aggregate_of_spark_is_known(spark: SparkSession) -> None:
    session: Any = spark
    state = session._jsparkSession.sessionState()
    names = {str(one).split(".")[-1] for one in _all(state.functionRegistry().listFunction())}
    identifier = session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    groups = {name: str(state.catalog().lookupFunctionInfo(identifier(name)).getGroup()) for name in names}
    assert {name for name, group in groups.items() if group == "agg_funcs"} == AGGREGATES


def _all(found: Any) -> list[Any]:
    iterator, listed = found.iterator(), []
    while iterator.hasNext():
        listed.append(iterator.next().unquotedString())
    return listed
