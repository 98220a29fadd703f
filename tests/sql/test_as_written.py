"""What is written reaches Spark as it was written, and two things never share a name. No Spark is started."""

import pytest

from epochal.sql.errors import SqlError
from epochal.sql.plan import AggregateNode, JoinNode, TransformNode
from tests.sql.making import plan_of, told

HOUR = 3600 * 10**6
EXPRESSIONS = [
    "country = 'O''Brien'",
    r"country = 'O\'Brien'",
    r"country RLIKE r'^\d+$'",
    '"double ""quoted"" string"',
    "to_char(amount, '999.99')",
    "date_format(at, 'yyyy-MM-dd')",
    "transform(item.tags, x -> concat(x, '->'))",
    "aggregate(item.tags, 0, (acc, x) -> acc + length(x), acc -> acc * 2)",
    "filter(item.tags, (X, i) -> x <> '' AND I > 0)",
    "CAST(amount AS DECIMAL(10, 2))",
    "amount::int",
    "CASE country WHEN 'de' THEN 1 ELSE -1 END",
    "at - INTERVAL '1' DAY",
    "at + INTERVAL 1 HOUR 30 MINUTES",
    "timestampadd(HOUR, 1, at)",
    "extract(DAY FROM at)",
    "trim(BOTH 'x' FROM country)",
    "substring(country FROM 1 FOR 2)",
    "position('e' IN country)",
    "overlay(country PLACING '_' FROM 2)",
    "mask(country, lowerChar => 'q')",
    "named_struct('a', amount, 'b', id)",
    "struct(amount AS a, id)",
    "shiftrightunsigned(id, 1) + (id >>> 1)",
    "hex(X '1F')",
    "id /* a remark, with 'quotes' */ + 1",
    "if(amount IS NULL, 0, amount)",
    "country NOT LIKE 'a%' ESCAPE '/'",
    "amount BETWEEN 1 AND 2 AND NOT id IN (1, 2)",
    "1.5BD + 2L + 3e2",
    "current_date",
    "try_to_timestamp(country, 'yyyy')",
    "element_at(item.tags, 1)",
    "split(country, '[{}]')[0]",
]


def plain(sql: str) -> str:
    return sql.replace("`", "")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_kept_letter_by_letter(expression: str) -> None:
    node = plan_of(f"INSERT INTO out SELECT {expression} AS x FROM orders").nodes["out-select"]
    assert isinstance(node, TransformNode)
    assert plain(node.steps[0].columns[0][1]) == plain(expression)


@pytest.mark.parametrize(
    "call",
    [
        "array_agg(amount ORDER BY id)",
        "percentile(amount, 0.5, id)",
        "max_by(id, amount, 3)",
        "listagg(DISTINCT country, ', ') WITHIN GROUP (ORDER BY country)",
        "first(country) IGNORE NULLS",
        "first(country, true)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY amount DESC)",
        "mode() WITHIN GROUP (ORDER BY amount)",
        "count(DISTINCT id, country)",
        "sum(DISTINCT amount)",
        "histogram_numeric(amount, 5)",
        "approx_top_k(country, 2)",
        "count_if(amount > 1)",
        "sum(ALL amount)",
    ],
)
def test_an_aggregate_keeps_all_of_its_arguments(call: str) -> None:
    node = plan_of(f"INSERT INTO out SELECT {call} AS x FROM orders GROUP BY country").nodes["out-aggregate"]
    assert isinstance(node, AggregateNode)
    assert [plain(str(one)) for one in node.aggregates.values()] == [call]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sum(amount + 1)", "sum(amount - 1)"),
        ("max(amount)", "max(-amount)"),
        ("count(*) FILTER (WHERE id > 1)", "count(*) FILTER (WHERE id < 1)"),
        ("max(country = 'a')", "max(country = 'A')"),
        ("sum(amount * 2)", "sum(amount / 2)"),
        ("sum(id)", "sum(`id`+0)"),
        ("count(*)", "count(`all`)"),
    ],
)
def test_two_aggregates_have_two_names(one: str, other: str) -> None:
    text = "CREATE VIEW v AS SELECT *, id AS `all` FROM orders;"
    plan = plan_of(f"{text}INSERT INTO out SELECT {one} AS a, {other} AS b, {one} AS again FROM v GROUP BY country")
    node, chosen = plan.nodes["out-aggregate"], plan.nodes["out-select"]
    assert isinstance(node, AggregateNode)
    assert isinstance(chosen, TransformNode)
    assert len(node.aggregates) == 2
    names = [sql for _, sql in chosen.steps[0].columns]
    assert names[0] == names[2] != names[1]
    # In another order the names are the same: they are not made of places.
    swapped = plan_of(f"{text}INSERT INTO out SELECT {other} AS b, {one} AS a FROM v GROUP BY country")
    swapped_node = swapped.nodes["out-aggregate"]
    assert isinstance(swapped_node, AggregateNode)
    assert dict(swapped_node.aggregates) == dict(node.aggregates)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("sum( amount )", "sum_amount"),
        ("max(amount*2)", "max_amount_all_2"),
        ("max(amount /* as before */\n  * 2)", "max_amount_all_2"),
        (
            "sum(case when amount > 10 and country = 'de'\n then amount else 0 end)",
            "sum_case_when_amount_10_and_cou_b1e3155c",
        ),
        (
            "count(*) FILTER (WHERE amount > 10 AND country IS NOT NULL)",
            "count_case_when_amount_10_and_n_781a00f5",
        ),
        ("sum(coalesce(amount, 0) + coalesce(id, 0) * 2)", "sum_coalesce_amount_0_coalesce_b2ce3c93"),
    ],
)
def test_names_are_those_that_state_was_kept_under_before(call: str, name: str) -> None:
    node = plan_of(f"INSERT INTO out SELECT {call} AS x FROM orders GROUP BY country").nodes["out-aggregate"]
    assert isinstance(node, AggregateNode)
    assert list(node.aggregates) == [name]


def test_how_a_text_is_laid_out_is_no_part_of_what_state_means() -> None:
    query = (
        "INSERT INTO out SELECT sum(amount{0}+{0}1) AS a, sum(amount{0}-{0}1) AS b FROM orders "
        "GROUP BY upper({0}country)"
    )
    plans = [plan_of(query.format(space)) for space in (" ", " /* why */ ", "\n  -- why\n  ")]
    nodes = [plan.nodes["out-aggregate"] for plan in plans]
    assert nodes[0] == nodes[1] == nodes[2]


def test_an_aggregate_has_another_name_than_a_key() -> None:
    plan = plan_of(
        "CREATE VIEW v AS SELECT country AS sum_amount, amount FROM orders;"
        "INSERT INTO out SELECT sum_amount, sum(amount) AS s FROM v GROUP BY sum_amount"
    )
    node = plan.nodes["out-aggregate"]
    assert isinstance(node, AggregateNode)
    assert node.keys == ("sum_amount",)
    assert "sum_amount" not in node.aggregates


@pytest.mark.parametrize("key", ["-id", "id + 0", "(id)", "upper(country)", "amount > 1"])
def test_a_computed_key_is_no_column_that_has_its_words(key: str) -> None:
    lines = told(plan_of(f"INSERT INTO out SELECT {key} AS k, count(*) AS n FROM orders GROUP BY {key}"))
    name = lines[1].split(" by ")[1].split(";")[0]
    assert name not in ("id", "country", "amount")
    assert f", {key} AS {name} FROM input" in lines[0]
    assert f"SELECT {name} AS k" in lines[2]


def test_two_computed_keys_have_two_names() -> None:
    lines = told(plan_of("INSERT INTO out SELECT id + 1 AS a, id - 1 AS b, count(*) AS n FROM orders GROUP BY 1, 2"))
    one, other = lines[1].split(" by ")[1].split(";")[0].split(", ")
    assert one != other
    assert f"SELECT {one} AS a, {other} AS b" in lines[2]


def test_grouping_by_a_name_means_the_column_before_the_alias() -> None:
    lines = told(
        plan_of("INSERT INTO out SELECT upper(country) AS country, count(*) AS n FROM orders GROUP BY country")
    )
    assert "updates by country; count_all = count(*)" in lines[0]
    assert "SELECT upper(country) AS country, count_all AS n" in lines[1]


def test_only_what_needs_another_name_is_replaced_in_a_larger_expression() -> None:
    lines = told(
        plan_of(
            "INSERT INTO out SELECT round( sum(amount+1)/count(*) , 2 ) || upper( country ) AS x "
            "FROM orders GROUP BY UPPER(country)"
        )
    )
    assert "SELECT round( sum_amount_1/count_all , 2 ) || upper_country AS x" in lines[2]


def test_a_part_that_is_none_for_spark_is_not_taken_for_a_key() -> None:
    """``a || b + c`` is ``(a || b) + c``."""
    with pytest.raises(SqlError, match="column id is neither in GROUP BY"):
        plan_of("INSERT INTO out SELECT country || id + 1 AS x FROM orders GROUP BY country, id + 1")


@pytest.mark.parametrize("item", EXPRESSIONS)
def test_any_expression_may_stand_around_an_aggregate_or_a_key(item: str) -> None:
    groups = "country, amount, at, item, id"
    plan = plan_of(
        f"INSERT INTO out SELECT {item} AS x, max(at) - INTERVAL '1' SECOND AS m FROM orders GROUP BY {groups}"
    )
    node = plan.nodes["out-select"]
    assert isinstance(node, TransformNode)
    assert [plain(sql) for _, sql in node.steps[0].columns] == [plain(item), "max_at - INTERVAL '1' SECOND"]


def test_a_comparison_of_comparisons_is_read_as_spark_reads_it() -> None:
    """``a = b > c`` is ``(a = b) > c``."""
    with pytest.raises(SqlError, match="column amount is neither in GROUP BY"):
        plan_of("INSERT INTO out SELECT id = amount > 1 AS x FROM orders GROUP BY id, amount > 1")
    lines = told(plan_of(JOIN.format(how="", time=WITHIN, more=" AND o.country = p.country > 'a'")))
    assert any("WHERE (country = p__country > 'a')" in line for line in lines)


def test_fields_of_a_struct_are_called_as_spark_calls_them() -> None:
    """By their columns, and col1, col2 … where they are computed."""
    query = "SELECT to_json(struct(o.country, p.country, p.id + 1)) AS a, (p.country, 1) AS b "
    lines = told(plan_of(JOIN.replace("SELECT o.id ", query).format(how="", time=WITHIN, more="")))
    assert "struct(country, p__country AS country, id + 1)) AS a, (p__country AS country, 1) AS b" in lines[-2]
    query = "SELECT struct(COUNTRY, sum(amount), upper(item.name)) AS a FROM orders GROUP BY country, upper(item.name)"
    lines = told(plan_of(f"INSERT INTO out {query}"))
    assert "struct(country AS COUNTRY, sum_amount AS col2, upper_item_name AS col3) AS a" in lines[-2]


def test_what_is_inside_a_lambda_is_no_key() -> None:
    query = "SELECT transform(collect_list(id), id -> id + 1) AS x, id + 1 AS k FROM orders GROUP BY id + 1"
    lines = told(plan_of(f"INSERT INTO out {query}"))
    assert "SELECT transform(collect_list_id, id -> id + 1) AS x, id_1 AS k FROM input" in lines[2]


def test_names_of_joined_rows_reach_into_lambdas_but_not_their_variables() -> None:
    lines = told(
        plan_of(
            "INSERT INTO out SELECT transform(o.item.tags, country -> concat(country, p.country, '${x}')) AS x "
            "FROM orders o JOIN payments p ON o.id = p.id AND p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR",
            x="it's",
        )
    )
    assert r"transform(item.tags, country -> concat(country, p__country, 'it\'s')) AS x" in lines[-2]


# --- joins ------------------------------------------------------------------------------------------------------------

JOIN = "INSERT INTO out SELECT o.id FROM orders o {how} JOIN payments p ON o.id = p.id AND {time}{more}"
WITHIN = "p.paid_at BETWEEN o.at AND o.at + INTERVAL '1' HOUR"
VIEWS = (
    "CREATE VIEW o AS SELECT window_start AS a, window_end AS b, country FROM TABLE(TUMBLE(TABLE orders, "
    "DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, country;"
    "CREATE VIEW p AS SELECT window_start AS c, window_end AS d, country FROM TABLE(TUMBLE(TABLE payments, "
    "DESCRIPTOR(paid_at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, country;"
)


@pytest.mark.parametrize("time", [f"({WITHIN})", "(p.paid_at >= o.at AND (o.at + INTERVAL '1' HOUR >= p.paid_at))"])
def test_parentheses_around_a_bound_do_not_hide_it(time: str) -> None:
    node = plan_of(JOIN.format(how="LEFT", time=time, more="")).nodes["out-join"]
    assert isinstance(node, JoinNode)
    assert (node.lower, node.upper) == (0, HOUR)


def test_every_condition_on_the_same_times_counts() -> None:
    more = " AND p.paid_at >= o.at + INTERVAL '5' MINUTE AND o.at + INTERVAL -30 MINUTE < p.paid_at"
    node = plan_of(JOIN.format(how="", time=WITHIN, more=more)).nodes["out-join"]
    assert isinstance(node, JoinNode)
    assert (node.lower, node.upper) == (5 * 60 * 10**6, HOUR)


@pytest.mark.parametrize(
    "more",
    [
        "p.d BETWEEN o.a AND o.a + INTERVAL '1' MINUTE",
        "p.d >= o.a",
        "o.b < p.c + INTERVAL '3' MINUTE",
        "p.d BETWEEN o.a AND current_timestamp()",
    ],
)
def test_conditions_on_other_times_are_kept_as_a_filter(more: str) -> None:
    text = f"{VIEWS}INSERT INTO out SELECT a FROM o {{}} JOIN p ON p.c BETWEEN o.a AND o.a + INTERVAL '2' MINUTE AND "
    plan = plan_of(f"{text.format('')}{more}")
    node = plan.nodes["out-join"]
    assert isinstance(node, JoinNode)
    assert (node.lower, node.upper) == (0, 120 * 10**6)
    filters = [step.where for one in plan.nodes.values() if isinstance(one, TransformNode) for step in one.steps]
    wanted = more.replace("p.", "").replace("o.", "")
    assert f"({wanted})" in [plain(one) for one in filters if one]
    with pytest.raises(SqlError, match="ON of a left join may hold equalities"):
        plan_of(f"{text.format('LEFT')}{more}")


def test_an_equality_of_other_times_is_a_key_as_it_was_written() -> None:
    lines = told(
        plan_of(
            f"{VIEWS}INSERT INTO out SELECT a FROM o LEFT JOIN p ON p.c BETWEEN o.a AND o.a + INTERVAL '2' MINUTE "
            "AND p.d = o.b + INTERVAL '1' MINUTE"
        )
    )
    assert any("SELECT b + INTERVAL '1' MINUTE AS __key_0" in line for line in lines)
    assert any("SELECT d AS __key_0" in line for line in lines)


def test_what_is_left_of_a_condition_stands_before_the_next_join() -> None:
    """After a RIGHT JOIN it would drop the rows that have no partner."""
    plan = plan_of(
        f"INSERT INTO out SELECT o.id FROM orders o JOIN payments p ON o.id = p.id AND {WITHIN} AND o.amount > p.id "
        "RIGHT JOIN payments q ON q.id = o.id AND o.at BETWEEN q.paid_at AND q.paid_at + INTERVAL '1' HOUR"
    )
    before = plan.nodes[plan.nodes["out-join-2"].inputs[0]]
    assert isinstance(before, TransformNode)
    assert [plain(step.where or "") for step in before.steps] == ["(amount > id)"]
