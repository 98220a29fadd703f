"""Aggregates by chance, and expressions over several of them."""

from tests.sql.generated.expressions import Expressions
from tests.sql.generated.texts import Text, filled, one_of

SHAPES = ("§ + 1", "§ - 1", "§", "-§", "- §", "§ * 1", "§ % 1", "(§ + 1)", "1 - §", "1 + §", "§ + 1 - 1", "-(§ + 1)")
"""Different expressions of the same words."""


class Aggregates:
    """Makes aggregates over the columns of ``of``. ``plain`` leaves out those that keep all values of a group."""

    def __init__(self, of: Expressions) -> None:
        self.of = of
        self.chance = of.chance

    def several(self, count: int) -> list[Text]:
        """Some of the same words in different shape, some by chance."""
        chance, found = self.chance, []
        if chance.random() < 0.5:
            function = chance.choice(["sum(§)", "max(§)", "min(§)", "count(DISTINCT §)", "avg(§)", "sum(DISTINCT §)"])
            column = self.of.column("number")
            found = [filled(function, filled(shape, column)) for shape in chance.sample(SHAPES, 2)]
        if chance.random() < 0.3:
            column = self.of.column("number")
            found += [
                filled("count(*) FILTER (WHERE §)", filled(f"§ {sign} 1", column))
                for sign in chance.sample(["<", ">", "=", "<>", "<=", ">="], 2)
            ]
        while len(found) < count:
            found.append(self.combined() if chance.random() < 0.3 else self.one())
        return found

    def one(self) -> Text:
        chance, of = self.chance, self.of
        if chance.random() < 0.2:
            return self._spark_one()
        call = one_of(
            chance,
            [
                lambda: filled("count(*)"),
                lambda: filled("count(§)", of.any(1)),
                lambda: filled(chance.choice(["sum(§)", "avg(§)", "sum(DISTINCT §)"]), of.number()),
                lambda: filled(chance.choice(["sum(§)", "avg(§)"]), of.double(1)),
                lambda: filled(chance.choice(["min(§)", "max(§)"]), of.any()),
                lambda: filled("count(DISTINCT §)", chance.choice([of.number, of.text])(1)),
                lambda: filled(chance.choice(["bool_and(§)", "bool_or(§)"]), of.boolean(1)),
            ],
        )
        if chance.random() < 0.3:
            return filled("§ FILTER (WHERE §)", call, of.boolean(1))
        return call

    def _spark_one(self) -> Text:
        chance, of = self.chance, self.of
        call = one_of(
            chance,
            [
                lambda: filled("count_if(§)", of.boolean(1)),
                lambda: filled("count(DISTINCT §, §)", of.number(1), of.text(1)),
                lambda: filled("max_by(§, §)", of.column("text"), same_row(of)),
                lambda: filled("min_by(§, §)", of.column("number"), same_row(of)),
                lambda: filled("max(struct(§, §)).col1", of.number(1), of.number(0)),
                lambda: filled("sort_array(collect_list(§))", of.number(1)),
                lambda: filled("sort_array(array_agg(DISTINCT §))", of.number(1)),
                lambda: filled("sort_array(collect_set(§))", of.text(1)),
                lambda: filled("percentile(§, 0.5)", of.number(1)),
                lambda: filled("percentile(§, 0.25, 2)", of.number(1)),
                lambda: filled("percentile_cont(0.5) WITHIN GROUP (ORDER BY § DESC)", of.number(1)),
                lambda: filled("listagg(§, '; ') WITHIN GROUP (ORDER BY §)", *[of.column("text")] * 2),
                lambda: filled("stddev(§)", of.number(1)),
                lambda: filled("var_pop(§)", of.number(1)),
                lambda: filled("bit_xor(§)", of.number(1)),
                lambda: filled("median(§)", of.number(1)),
                lambda: filled("try_sum(§)", of.number(1)),
            ],
        )
        return call.only_spark()

    def combined(self) -> Text:
        """An expression over several."""
        chance = self.chance
        number = filled(chance.choice(["sum(§)", "max(§)", "min(§)", "count(§)"]), self.of.number(1))
        return one_of(
            chance,
            [
                lambda: filled("coalesce(§, 0) + count(*)", number),
                lambda: filled("§ / count(*)", number),
                lambda: filled("§ - §", number, filled("sum(§)", self.of.number(1))),
                lambda: filled("CASE WHEN count(*) > 2 THEN § ELSE - § END", number, number),
                lambda: filled("max(§) || '-' || §", self.of.text(1), self.of.literal()),
                lambda: filled("§ IS NULL", number),
                lambda: filled("max(§) - INTERVAL '1' SECOND", self.of.column("time")),
                lambda: filled("named_struct('n', §, 'x', '; --').n", number).only_spark(),
                lambda: filled("if(§ > 3, 'many', 'few')", number).only_spark(),
                lambda: filled("format_string('%d of %d', §, count(*))", number).only_spark(),
            ],
        )


def same_row(of: Expressions) -> Text:
    """An order that tells any two rows apart, but for those that are equal."""
    ordered = ", ".join(of.columns["unique"])
    return filled(f"struct({ordered})")
