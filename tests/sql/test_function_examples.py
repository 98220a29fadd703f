"""Spark documents its functions with examples: each is handed on to Spark as it is written, and gives the same."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from epochal.sql.errors import SqlError
from epochal.sql.script import plan_text
from tests.sql.function_examples import (
    ONE_ROW,
    Example,
    Parser,
    examples,
    grouped,
    handed_on,
    plan_of_items,
    runnable,
    runs_as_stream,
    schema_of,
)
from tests.support.depth import DEEP

REFUSED = {f"SELECT '\\\\abc' AS S, S {like} r'\\\\abc', S {like} '\\\\\\\\abc'" for like in ("like", "ilike")}
"""An alias that the same SELECT uses is no column of a stream."""


@pytest.fixture(scope="module")
def known(spark: SparkSession) -> list[Example]:
    return examples(spark)


@pytest.mark.slow
def test_what_is_written_is_what_spark_gets(spark: SparkSession, known: list[Example]) -> None:
    """As Spark's own parser reads both."""
    parser, same, refused = Parser(spark), 0, {}
    for example in known:
        if (items := parser.projected(example.sql)) is None:
            continue
        try:
            handed = handed_on(plan_of_items([text for text, _ in items]))
        except SqlError as error:
            refused[example.sql] = error.reason
            continue
        for (text, expression), sql in zip(items, handed, strict=True):
            assert parser.same(expression, parser.expression(sql)), f"{text} became {sql}"
        same += 1
    assert same >= 900
    assert set(refused) == REFUSED, refused


@pytest.mark.slow
def test_examples_over_rows_are_planned_or_refused_with_words(spark: SparkSession, known: list[Example]) -> None:
    found = Counter[str]()
    for number, one in enumerate(grouped(known)):
        try:
            plan_text(one.statements(number, schema_of(spark, one), "'connector' = 'console'"), {"nothing": "/nothing"})
            found["planned"] += 1
        except SqlError as error:
            found[error.reason] += 1
    assert found["planned"] >= 200, found
    del found["planned"]
    words = ("OVER (…) would need all rows", "a stream has no end", "cannot be streamed", "numbers rows without an end")
    assert not [reason for reason in found if not any(word in reason for word in words)], found


@pytest.mark.slow
def test_examples_as_a_stream_give_what_they_give_in_a_batch(
    spark: SparkSession, known: list[Example], tmp_path: Path
) -> None:
    """Fifty a query. Those that give something else each time are compared by their plans only."""
    texts = runnable(spark, known if DEEP else known[::25])
    assert len(texts) >= (750 if DEEP else 25)
    came = runs_as_stream(spark, texts, tmp_path)
    wrong = []
    for text, value in zip(texts, came, strict=True):
        expected = spark.sql(f"SELECT {text} FROM {ONE_ROW}").collect()[0][0]
        if repr(value) != repr(expected):  # NaN is not equal to itself
            wrong.append(f"{text}: {value!r} instead of {expected!r}")
    assert not wrong, "\n".join(wrong)
