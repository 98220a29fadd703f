"""What SQL is planned onto: which operators, by which names, with which state. No Spark is started."""

import pytest

from epochal.operators.aggregate_names import MERGED, TAKE_BACK
from epochal.operators.aggregates import AGGREGATES
from epochal.sql.errors import SqlError
from epochal.sql.plan import AggregateNode, JoinNode, RunningTopNode, SinkNode, SourceNode, TopNode, WindowNode
from epochal.sql.script import plan_text
from epochal.sql.tables import PythonFunction
from tests.sql.making import TABLES, plan_of, told

MINUTE = 60 * 10**6
TUMBLE = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE))"

PLANS = {
    "SELECT * FROM orders": ["out sink <- orders: parquet"],
    "SELECT id, amount * 2 AS twice FROM orders WHERE amount > 1 AND country = 'de'": [
        (
            "out-select transform <- orders: SELECT id, amount * 2 AS twice FROM input "
            "WHERE (amount > 1) AND (country = 'de')"
        ),
        "out sink <- out-select: parquet",
    ],
    "SELECT o.item.name, item.tags[0] AS tag, O.ID FROM orders AS o": [
        "out-select transform <- orders: SELECT item.name AS name, item.tags[0] AS tag, id AS ID FROM input",
        "out sink <- out-select: parquet",
    ],
    f"SELECT window_start, country, count(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end, country": [
        "out-window window <- orders: 1 min by country; count_all = count(*)",
        "out-select transform <- out-window: SELECT window_start, country, count_all AS n FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT TUMBLE_START(at, INTERVAL '1' MINUTE), sum(amount) FROM orders GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)": [
        "out-window window <- orders: 1 min; sum_amount = sum(amount)",
        "out-select transform <- out-window: SELECT window_start, sum_amount FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT window_end, max(amount) AS most FROM TABLE(HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '10' SECOND, "
    "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end": [
        "out-window window <- orders: 1 min every 10 s; max_amount = max(amount)",
        "out-select transform <- out-window: SELECT window_end, max_amount AS most FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT upper(country) AS c, count(*) / 2 AS half FROM orders WHERE amount > 0 GROUP BY upper(country)": [
        (
            "out-input transform <- orders: SELECT id, country, amount, at, item, upper(country) AS upper_country "
            "FROM input WHERE (amount > 0)"
        ),
        "out-aggregate aggregate <- out-input: updates by upper_country; count_all = count(*)",
        "out-select transform <- out-aggregate: SELECT upper_country AS c, count_all / 2 AS half FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT count(*) AS n FROM orders": [
        "out-input transform <- orders: SELECT id, country, amount, at, item, 1 AS __all FROM input",
        "out-aggregate aggregate <- out-input: updates by __all; count_all = count(*)",
        "out-select transform <- out-aggregate: SELECT count_all AS n FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT o.id, p.country AS payer FROM orders o JOIN payments p ON o.id = p.id "
    "AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR WHERE o.amount > 5 AND o.country <> p.country": [
        "out-join-left transform <- orders: SELECT id, country, amount, at, item FROM input WHERE (amount > 5)",
        "out-join-right transform <- payments: SELECT id, paid_at, country AS p__country FROM input",
        "out-join join <- out-join-left, out-join-right: inner by id, from 0 s to 1 h",
        "out-select transform <- out-join: SELECT id, p__country AS payer FROM input WHERE (country <> p__country)",
        "out sink <- out-select: parquet",
    ],
    "SELECT o.id FROM orders o, payments p WHERE o.id = p.id AND o.at >= p.paid_at - INTERVAL '5' MINUTE "
    "AND o.at < p.paid_at": [
        "out-join-right transform <- payments: SELECT id, paid_at, country AS p__country FROM input",
        "out-join join <- orders, out-join-right: inner by id, from 1 µs to 5 min",
        "out-select transform <- out-join: SELECT id FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT id, at FROM orders UNION ALL SELECT id, paid_at FROM payments": [
        "out-select transform <- orders: SELECT id, at FROM input",
        "out-renamed transform <- payments: SELECT id, paid_at FROM input; SELECT id, paid_at AS at FROM input",
        "out-union union <- out-select, out-renamed: ",
        "out sink <- out-union: parquet",
    ],
    "WITH big AS (SELECT * FROM orders WHERE amount > 9) SELECT country, avg(amount) AS a FROM big GROUP BY 1": [
        "out-big-select transform <- orders: SELECT id, country, amount, at, item FROM input WHERE (amount > 9)",
        "out-aggregate aggregate <- out-big-select: updates by country; avg_amount = avg(amount)",
        "out-select transform <- out-aggregate: SELECT country, avg_amount AS a FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT tag FROM orders LATERAL VIEW explode(item.tags) t AS tag": [
        (
            "out-select transform <- orders: SELECT id, country, amount, at, item, tag FROM input "
            "LATERAL VIEW explode(item.tags) t AS tag; SELECT tag FROM input"
        ),
        "out sink <- out-select: parquet",
    ],
    "SELECT window_start, country, place FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
    "ORDER BY n DESC) AS place FROM (SELECT window_start, window_end, country, count(*) AS n "
    f"FROM {TUMBLE} GROUP BY window_start, window_end, country)) WHERE place <= 3": [
        "out-window window <- orders: 1 min by country; count_all = count(*)",
        "out-select transform <- out-window: SELECT window_start, window_end, country, count_all AS n FROM input",
        "out-top top <- out-select: first 3 of each window_start by window_end",
        (
            "out-select-2 transform <- out-top: SELECT window_start, window_end, country, n, rank AS place FROM input; "
            "SELECT window_start, country, place FROM input"
        ),
        "out sink <- out-select-2: parquet",
    ],
    "SELECT id, country FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY country ORDER BY amount) = 1": [
        "out-select transform <- orders: SELECT id, country, amount AS __order_0 FROM input",
        "out-top running top <- out-select: updates of the first 1 by country",
        (
            "out-qualified transform <- out-top: SELECT id, country, __order_0, rank AS __number FROM input; "
            "SELECT id, country FROM input"
        ),
        "out sink <- out-qualified: parquet",
    ],
    "SELECT DISTINCT id, at FROM orders": [
        "out-select transform <- orders: SELECT id, at FROM input",
        "out-distinct deduplicate <- out-select: by id, at",
        "out sink <- out-distinct: parquet",
    ],
    "SELECT window_end, country, count(*) AS n FROM TABLE(SESSION(TABLE orders PARTITION BY country, DESCRIPTOR(at), "
    "INTERVAL '5' MINUTE)) GROUP BY window_start, window_end, country": [
        "out-session session <- orders: gap of 5 min by country; count_all = count(*)",
        "out-select transform <- out-session: SELECT window_end, country, count_all AS n FROM input",
        "out sink <- out-select: parquet",
    ],
    f"SELECT o.window_start, o.id, p.paid_at FROM {TUMBLE} o JOIN "
    "TABLE(TUMBLE(TABLE payments, DESCRIPTOR(paid_at), INTERVAL '1' MINUTE)) p ON o.id = p.id "
    "AND o.window_start = p.window_start AND o.window_end = p.window_end": [
        "out-join-right transform <- payments: SELECT id, paid_at, country AS p__country FROM input",
        "out-join window join <- orders, out-join-right: inner by id, in windows of 1 min",
        "out-select transform <- out-join: SELECT window_start, id, paid_at FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT o.id, p.id AS payment FROM orders o LEFT JOIN payments p ON o.id = p.id "
    "AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR AND p.country = 'de'": [
        "out-join-left transform <- orders: SELECT id AS __key_0, id, country, amount, at, item FROM input",
        (
            "out-join-right transform <- payments: SELECT id AS __key_0, id AS p__id, paid_at, country AS p__country "
            "FROM input WHERE (country = 'de')"
        ),
        "out-join join <- out-join-left, out-join-right: left by __key_0, from 0 s to 1 h",
        "out-select transform <- out-join: SELECT id, p__id AS payment FROM input",
        "out sink <- out-select: parquet",
    ],
    "SELECT o.id, d.at AS since FROM orders o JOIN plain FOR SYSTEM_TIME AS OF o.at AS d ON o.country = d.country": [
        "out-lookup-input transform <- orders: SELECT country, id, amount, at, item FROM input",
        "out-lookup lookup <- out-lookup-input: inner by country, in plain (files)",
        "out-select transform <- out-lookup: SELECT id, d__at AS since FROM input",
        "out sink <- out-select: parquet",
    ],
}


@pytest.mark.parametrize("query", PLANS)
def test_a_query_is_planned_onto_operators(query: str) -> None:
    assert told(plan_of(f"INSERT INTO out {query}")) == PLANS[query]


def test_a_view_is_planned_once_and_named_after_itself() -> None:
    plan = plan_of(
        f"CREATE VIEW minutes AS SELECT window_start, country, count(*) AS n FROM {TUMBLE} "
        "GROUP BY window_start, window_end, country;"
        "INSERT INTO out SELECT * FROM minutes;"
        "INSERT INTO typed SELECT country, n FROM minutes WHERE n > 1;"
    )
    assert [node.name for node in plan.nodes.values() if isinstance(node, WindowNode)] == ["minutes-window"]
    assert plan.nodes["out"].inputs == ("minutes-select",)


def test_a_window_of_windows_takes_the_first_ones_bounds() -> None:
    plan = plan_of(
        "CREATE VIEW hops AS SELECT window_start, window_end, country, count(*) AS n FROM TABLE(HOP(TABLE orders, "
        "DESCRIPTOR(at), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, country;"
        "INSERT INTO out SELECT window_start, window_end, max(n) AS most FROM hops GROUP BY window_start, window_end;"
    )
    second = plan.nodes["out-window"]
    assert isinstance(second, WindowNode)
    # One window of the first kind begins every ten seconds: those that begin together are grouped.
    assert (second.size, second.slide, second.event_time, second.keys) == (10 * 10**6, None, "window_start", ())
    assert f"unix_micros(window_start) + {MINUTE}" in told(plan)[-2]


def test_a_window_of_a_windows_end_goes_by_that() -> None:
    plan = plan_of(
        f"CREATE VIEW minutes AS SELECT window_end AS t, count(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end;"
        "INSERT INTO out SELECT window_start, sum(n) AS n FROM TABLE(TUMBLE(TABLE minutes, DESCRIPTOR(t), "
        "INTERVAL '1' HOUR)) GROUP BY window_start, window_end;"
    )
    assert plan.nodes["out-window"].event_time == "t"
    assert plan.nodes["minutes-select"].event_time == "t"


def test_rows_of_windows_are_ranked_when_their_window_is_over() -> None:
    plan = plan_of(
        "INSERT INTO out SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, country "
        f"ORDER BY amount DESC) AS n FROM {TUMBLE}) WHERE n < 3"
    )
    node = plan.nodes["out-top"]
    assert isinstance(node, TopNode)
    assert (node.event_time, node.per, node.n) == ("window_end", ("window_start", "country"), 2)
    assert node.order_by == (("amount", True, False),)


def test_aggregates_are_named_by_what_they_are_so_that_a_new_alias_keeps_the_state() -> None:
    query = "INSERT INTO out SELECT country, sum(amount) AS {} FROM orders GROUP BY country"
    one, other = (plan_of(query.format(alias)).nodes["out-aggregate"] for alias in ("a", "b"))
    assert one == other


def test_a_filtered_aggregate_needs_no_rows_in_state() -> None:
    plan = plan_of(
        "INSERT INTO out SELECT country, count(*) FILTER (WHERE amount > 1) AS n FROM orders GROUP BY country"
    )
    node = plan.nodes["out-aggregate"]
    assert isinstance(node, AggregateNode)
    assert [str(call) for call in node.aggregates.values()] == ["count(CASE WHEN `amount` > 1 THEN 1 END)"]


def test_distinct_and_other_aggregates_are_left_to_spark() -> None:
    plan = plan_of(
        "INSERT INTO out SELECT country, count(DISTINCT id) AS d, percentile_approx(amount, 0.5) AS p, "
        "collect_list(id) AS ids, max_by(id, amount) AS m FROM orders GROUP BY country"
    )
    node = plan.nodes["out-aggregate"]
    assert isinstance(node, AggregateNode)
    assert [str(call).replace("`", "") for call in node.aggregates.values()] == [
        "count(DISTINCT id)",
        "percentile_approx(amount, 0.5)",
        "collect_list(id)",
        "max_by(id, amount)",
    ]


def test_two_inserts_into_a_table_share_a_sink() -> None:
    plan = plan_of(
        "INSERT INTO typed SELECT country, id FROM orders;"
        "INSERT INTO typed (n, country) SELECT id, country FROM payments"
    )
    assert plan.nodes["typed"].inputs == ("typed-union",)
    assert plan.nodes["typed-union"].inputs == ("typed-fitted", "typed-2-fitted")


def test_columns_go_by_position_and_get_the_tables_types() -> None:
    plan = plan_of("INSERT INTO typed (n) SELECT id FROM orders")
    assert told(plan)[0].endswith("SELECT CAST(NULL AS STRING) AS country, CAST(id AS BIGINT) AS n FROM input")


def test_tables_have_computed_columns_watermarks_and_options() -> None:
    plan = plan_text(
        "CREATE TABLE t (ms BIGINT, at AS timestamp_millis(ms), WATERMARK FOR at AS at - INTERVAL '1' MINUTE) "
        "WITH ('connector' = 'kafka', 'servers' = '${where}', 'topic' = 't', 'spark.kafka.group.id' = 'x');"
        "CREATE TABLE o WITH ('connector' = 'console');"
        "INSERT INTO o SELECT at, '${where}' AS w FROM t",
        {"where": "kafka:9092"},
    )
    source = plan.nodes["t"]
    assert isinstance(source, SourceNode)
    assert source.table.computed == (("at", "timestamp_millis(ms)"),)
    assert source.table.watermark is not None
    assert source.table.watermark.delay == MINUTE
    assert source.table.options["servers"] == "kafka:9092"
    assert "'kafka:9092' AS w" in told(plan)[0]


def test_a_primary_key_is_what_a_sink_replaces_rows_by() -> None:
    plan = plan_of(
        "CREATE TABLE totals (country STRING, n BIGINT, PRIMARY KEY (country) NOT ENFORCED) "
        "WITH ('connector' = 'postgres', 'dsn' = 'postgresql://db/shop', 'table' = 'totals');"
        "INSERT INTO totals SELECT country, count(*) FROM orders GROUP BY country"
    )
    sink = plan.nodes["totals"]
    assert isinstance(sink, SinkNode)
    assert sink.table.primary_key == ("country",)


def test_an_aggregate_of_one_that_changes_takes_back_what_it_counted() -> None:
    """Whoever else reads the result below gets new values only."""
    plan = plan_of(
        "CREATE VIEW v AS SELECT country, count(*) AS n FROM orders GROUP BY country;"
        "INSERT INTO out SELECT n, count(*) AS c FROM v WHERE n > 3 GROUP BY n;"
        "INSERT INTO typed SELECT country, n FROM v"
    )
    below, above = plan.nodes["v-aggregate"], plan.nodes["out-aggregate"]
    assert isinstance(below, AggregateNode)
    assert isinstance(above, AggregateNode)
    assert (below.changelog, below.retractions, above.changelog, above.retractions) == (False, True, True, False)
    lines = told(plan)
    assert "out-input transform <- v-select: SELECT country, n, row_kind FROM input WHERE (n > 3)" in lines
    assert lines[-2].endswith("SELECT country, n FROM input WHERE row_kind IN ('+I', '+U')")


def test_the_names_of_aggregates_are_those_of_the_operators() -> None:
    assert set(MERGED) == AGGREGATES.keys()
    assert set(TAKE_BACK) == {name for name, known in AGGREGATES.items() if known.decompose_signed is not None}


def test_all_groups_by_what_is_no_aggregate_and_qualify_may_name_the_number() -> None:
    plan = plan_of(
        "INSERT INTO typed SELECT upper(country), count(*) FROM orders GROUP BY ALL;"
        "INSERT INTO out SELECT id, country, row_number() OVER (PARTITION BY country ORDER BY amount) AS place "
        "FROM orders QUALIFY place <= 2"
    )
    assert "typed-aggregate aggregate <- typed-input: updates by upper_country; count_all = count(*)" in told(plan)
    top = plan.nodes["out-top"]
    assert isinstance(top, RunningTopNode)
    assert (top.n, top.keys) == (2, ("country",))
    assert told(plan)[-1] == "out sink <- out-qualified: parquet"


def test_a_join_of_windows_goes_by_their_begin() -> None:
    view = (
        "CREATE VIEW {0} AS SELECT window_start, window_end, country, count(*) AS {0}_n FROM TABLE(TUMBLE(TABLE {1}, "
        "DESCRIPTOR({2}), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, country;"
    )
    plan = plan_of(
        view.format("a", "orders", "at")
        + view.format("b", "payments", "paid_at")
        + "INSERT INTO out SELECT a.window_start, a.country, a_n, b_n FROM a JOIN b ON a.country = b.country "
        "AND a.window_start = b.window_start AND a.window_end = b.window_end"
    )
    node = plan.nodes["out-join"]
    assert isinstance(node, JoinNode)
    assert (node.lower, node.upper, node.keys) == (0, 0, ("country", "window_end"))


def test_three_streams_are_joined_one_after_the_other() -> None:
    plan = plan_of(
        "INSERT INTO out SELECT o.id FROM orders o "
        "JOIN payments p ON p.id = o.id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR "
        "JOIN payments q ON q.id = o.id AND q.paid_at BETWEEN o.at AND o.at + INTERVAL '2' HOUR "
    )
    assert [node.name for node in plan.nodes.values() if isinstance(node, JoinNode)] == ["out-join", "out-join-2"]


def test_functions_are_named() -> None:
    plan = plan_of(
        "CREATE FUNCTION shout AS 'my.words:shout' RETURNS STRING; INSERT INTO out SELECT shout(id) AS c FROM orders"
    )
    assert plan.functions == [PythonFunction(name="shout", module="my.words", function="shout", returns="STRING")]


def test_a_place_is_told_with_line_and_column() -> None:
    with pytest.raises(SqlError) as told_:
        plan_text(TABLES + "INSERT INTO out\nSELECT id, amont\nFROM orders")
    assert told_.value.line == TABLES.count("\n") + 2
    assert str(told_.value).split("\n")[1:] == ["  SELECT id, amont", "             ^^^^^"]
    assert (told_.value.column, told_.value.reason) == (12, "there is no column amont: did you mean amount?")
