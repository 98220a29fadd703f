"""Expressions by chance: of a type, over the columns of a scope.

Nothing here fails on any row (no division by zero, no overflow, no cast of a word to a number): Spark's ANSI mode would
end the job. Doubles are multiples of a quarter, so sums are exact in any order.
"""

import random
from collections.abc import Mapping, Sequence

from tests.sql.generated.texts import Text, filled, one_of, same, spark

Columns = Mapping[str, Sequence[str]]
"""The columns of each kind: number, double, text, boolean, time."""

WORDS = ("a", "b", "B", "é", "O''Brien", "", "a%b", "x_y", "-- no comment", "/* none */", "日本", "; SELECT 1", "?:1")
"""As they stand in a literal, which has the same meaning in both dialects."""
SPARK_WORDS = (
    r"'O\'Brien'", '"double quoted"', r"'back\\slash'", r"'tab\tend'", r"'\u00e9'", r"r'\d+'", '"it\'s"', "'a' 'b'",
    "'''x'''", '"O""Brien"', "'line\nbreak'", r"'100\%'", "'`tick`'",
)  # fmt: skip


class Expressions:
    """Makes expressions over ``columns``."""

    def __init__(self, chance: random.Random, columns: Columns) -> None:
        self.chance = chance
        self.columns = columns

    def any(self, depth: int = 2) -> Text:
        makers = [self.number, self.text, self.boolean, self.double, self.moment]
        return self.chance.choice(makers)(depth)

    def column(self, kind: str) -> Text:
        name = self.chance.choice(self.columns[kind])
        return same(name.upper() if "`" not in name and self.chance.random() < 0.1 else name)

    def literal(self) -> Text:
        if self.chance.random() < 0.25:
            return spark(self.chance.choice(SPARK_WORDS))
        return same(f"'{self.chance.choice(WORDS)}'")

    # --- numbers ---

    def number(self, depth: int = 2) -> Text:
        if depth == 0:
            return self.column("number") if self.chance.random() < 0.7 else same(str(self.chance.randrange(9)))
        number, boolean, text = self.number, self.boolean, self.text
        below = depth - 1
        return one_of(
            self.chance,
            [
                lambda: self.number(0),
                lambda: self.number(0),
                lambda: filled(
                    self.chance.choice(["§ + §", "§ - §", "(§) + (§)", "§ - (§)"]), number(0), number(below)
                ),
                lambda: filled(self.chance.choice(["-(§)", "- §", "+(§)", "abs(§)", "(§) * 2"]), number(below)),
                lambda: filled("(§) * (§)", self.column("number"), number(0)),
                lambda: filled(f"(§) % {self.chance.randrange(2, 6)}", number(below)),
                lambda: filled("CASE WHEN § THEN § ELSE § END", boolean(below), number(below), number(0)),
                lambda: filled("CASE WHEN § THEN § END", boolean(below), number(below)),
                lambda: filled("CASE § WHEN 1 THEN § WHEN 2 THEN § END", number(0), number(below), number(0)),
                lambda: filled(self.chance.choice(["coalesce(§, §)", "nullif(§, §)"]), number(below), number(0)),
                lambda: filled(self.chance.choice(["greatest(§, §)", "least(§, §)"]), number(below), number(0)),
                lambda: filled("length(§)", text(below)),
                lambda: self._spark_number(below),
            ],
        )

    def _spark_number(self, below: int) -> Text:
        number, boolean = self.number, self.boolean
        two = self.chance.choice(
            ["(§) & (§)", "(§) | (§)", "(§) ^ (§)", "array(§, §)[1]", "map('x', §, 'y', §)['x']",
             "named_struct('p', §, 'q', §).q", "struct(§ AS p, § AS q).p", "(§) -- why\n + (§)", "(§) /* + 1 */ - (§)",
             "aggregate(array(§, §), 0L, (x, y) -> x + coalesce(y, 0))", "transform(array(§, §), x -> x - 1)[0]",
             "size(filter(array(§, §), x -> x > 1))", "pmod(§, 7) + (§)", "(§) DIV 3 + (§)", "nvl2(§, 1, §)",
             "element_at(array(§, §), -1)", "BIGINT(§) + CAST(§ AS INT)", "(§)::INT - (§)::BIGINT"]
        )  # fmt: skip
        return one_of(
            self.chance,
            [
                lambda: filled(two, number(below), number(0)).only_spark(),
                lambda: filled("if(§, §, §)", boolean(below), number(0), number(below)).only_spark(),
                lambda: filled("instr(§, 'b')", self.text(below)).only_spark(),
            ],
        )

    def double(self, depth: int = 2) -> Text:
        if depth == 0:
            return self.column("double")
        below = depth - 1
        return one_of(
            self.chance,
            [
                lambda: self.column("double"),
                lambda: filled(self.chance.choice(["-(§)", "- §", "abs(§)", "(§) * 2"]), self.double(below)),
                lambda: filled("(§) + (§)", self.double(below), self.number(0)),
                lambda: filled("(§) / 4", self.number(below)),
                lambda: filled("coalesce(§, 0.25)", self.double(below)),
                lambda: filled("CASE WHEN § THEN § END", self.boolean(below), self.double(below)),
                lambda: filled("nanvl(§, CAST(§ AS DOUBLE))", self.double(below), self.number(0)).only_spark(),
            ],
        )

    # --- text ---

    def text(self, depth: int = 2) -> Text:
        if depth == 0:
            return self.column("text") if self.chance.random() < 0.7 else self.literal()
        below = depth - 1
        return one_of(
            self.chance,
            [
                lambda: self.column("text"),
                self.literal,
                lambda: filled(self.chance.choice(["upper(§)", "lower(§)", "trim(§)", "(§)"]), self.text(below)),
                lambda: filled("§ || §", self.text(0), self.text(0)),
                lambda: filled("replace(§, 'a', §)", self.text(below), self.literal()),
                lambda: filled("coalesce(§, §)", self.text(below), self.literal()),
                lambda: filled("substr(§, 1, 2)", self.text(below)),
                lambda: filled("CASE WHEN § THEN § ELSE § END", self.boolean(below), self.text(below), self.literal()),
                lambda: filled(Text("CAST(§ AS STRING)", "CAST(§ AS STRING)", "CAST(§ AS VARCHAR)"), self.number(0)),
                lambda: self._spark_text(below),
            ],
        )

    def _spark_text(self, below: int) -> Text:
        one = self.chance.choice(
            [r"regexp_replace(§, '[a-z]', '#')", r"regexp_replace(§, '\\w', '<$0>')", "split(§, '')[0]",
             "concat(§, '-', 'x')", "concat_ws('/', §, 'y')", "translate(§, 'ab', 'xy')", "lpad(§, 4, '*')",
             "get_json_object('{\"a\": {\"b\": \"c\"}}', '$.a.b') || (§)", "repeat(§, 2)",
             "overlay(§ PLACING '_' FROM 1)",
             "trim(BOTH 'a' FROM §)", "substring(§ FROM 2)", "initcap(§)", "to_json(named_struct('v', §))",
             "date_format(TIMESTAMP '2026-01-02 03:04:05', \"yyyy-MM-dd'T'HH:mm\") || §", "hex(encode(§, 'utf-8'))"]
        )  # fmt: skip
        return one_of(
            self.chance,
            [
                lambda: filled(one, self.text(below)).only_spark(),
                lambda: filled("to_char(§, '9999')", self.column("number")).only_spark(),
                lambda: filled("date_format(§, 'mm:ss')", self.column("time")).only_spark(),
                lambda: filled("(§)::STRING", self.number(below)).only_spark(),
            ],
        )

    # --- booleans and times ---

    def boolean(self, depth: int = 2) -> Text:
        if depth == 0:
            return (
                self.column("boolean")
                if self.chance.random() < 0.5
                else filled("§ > §", self.number(0), self.number(0))
            )
        below = depth - 1
        compare = self.chance.choice(["§ < §", "§ <= §", "§ = §", "§ <> §", "§ != §", "§ >= §", "§ IS DISTINCT FROM §"])
        low = self.chance.randrange(-5, 5)
        return one_of(
            self.chance,
            [
                lambda: filled(compare, self.number(below), self.number(0)),
                lambda: filled(compare, self.text(below), self.literal()),
                lambda: filled(compare, self.double(below), self.number(0)),
                lambda: filled(self.chance.choice(["§ IS NULL", "§ IS NOT NULL", "NOT (§) IS NULL"]), self.number(0)),
                lambda: filled(self.chance.choice(["(§) AND (§)", "(§) OR (§)"]), self.boolean(below), self.boolean(0)),
                lambda: filled("NOT (§)", self.boolean(below)),
                lambda: filled(f"§ BETWEEN {low} AND {low + 6}", self.number(0)),
                lambda: filled(self.chance.choice(["§ IN (1, 2, 3)", "§ NOT IN (0, 4)"]), self.number(below)),
                lambda: filled("§ IN ('a', §, 'B')", self.text(0), self.literal()),
                lambda: filled(
                    f"§ {self.chance.choice(['LIKE', 'NOT LIKE'])} '%{self.chance.choice('abé_')}%'", self.text(0)
                ),
                lambda: filled("(§) IS TRUE", self.boolean(0)),
                lambda: filled("§ <=> §", self.number(below), self.number(0)).only_spark(),
                lambda: filled(r"§ RLIKE '^[a-z]\\w?$'", self.text(0)).only_spark(),
                lambda: filled(r"§ LIKE '%\\_%'", self.text(0)).only_spark(),
                lambda: filled("isnan(§)", self.double(0)).only_spark(),
                lambda: filled("exists(array(§, 3), x -> x = 3)", self.number(0)).only_spark(),
            ],
        )

    def moment(self, depth: int = 2) -> Text:
        column = self.column("time")
        if depth == 0:
            return column
        return filled(self.chance.choice(["§", "§ + INTERVAL '5' SECOND", "§ - INTERVAL '1' MINUTE"]), column)
