"""The tables of connectors in the documentation, made of the registry; writes docs/connectors.md and docs/sql.md.

python -m tests.connectors.tables --write
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from epochal.connectors.connector import SOURCE_OPTIONS, Connector, Promise
from epochal.connectors.registry import CONNECTORS, sql_connectors

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "connectors.md", DOCS / "sql.md")

_BLOCK = re.compile(
    r"(<!-- table: (\w+), by python -m tests\.connectors\.tables --write -->\n).*?(<!-- end -->)", re.DOTALL
)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def _promise(what: str, kind: str, promise: Promise, needs: Iterable[str]) -> list[str]:
    tests = ", ".join(f"[`{test.rpartition('/')[2]}`](../tests/{test})" for test in promise.tests)
    return [what, kind, promise.guarantee, promise.how, ", ".join(needs), tests]


def promises() -> str:
    rows = []
    for one in CONNECTORS.values():
        if one.reads is not None and one.reads.promise is not None:
            rows.append(_promise(one.title, "source", one.reads.promise, [f"`{jar}`" for jar in one.jars]))
        if one.writes is not None and one.writes.promise is not None:
            extra = [f"`epochal[{one.extra}]`"] if one.extra else []
            rows.append(_promise(f"`{one.writes.method}`", "sink", one.writes.promise, extra))
    return _table(("connector", "", "guarantee", "how", "needs", "shown by"), rows)


def taking_back() -> str:
    rows = [
        [
            f"`{one.writes.method}`{', ' + case.case if case.case else ''}",
            "yes" if case.able else "no",
            case.how,
            case.refused_if or ("–" if case.able else ""),
        ]
        for one in CONNECTORS.values()
        if one.writes is not None
        for case in one.writes.taking_back
    ]
    return _table(("sink", "taken back", "how", "refused if"), rows)


def connectors_of_sql() -> str:
    return _table(
        ("connector", "", "options"),
        (
            [
                f"`{name}`",
                "; ".join(_uses(one)),
                ", ".join([*(f"`{option}`" for option in one.options), *(f"`{prefix}…`" for prefix in one.prefixes)]),
            ]
            for name, one in sql_connectors().items()
        ),
    )


def _uses(one: Connector) -> Iterable[str]:
    if one.reads is not None:
        yield "reads"
        if one.reads.lookup is not None:
            yield "can be looked up"
    if one.writes is not None and one.writes.table is not None:
        promise = one.writes.promise
        yield f"writes, {promise.guarantee}" if promise is not None else "writes"


def options() -> str:
    rows = [["any source", *row] for row in _options({name: one.about for name, one in SOURCE_OPTIONS.items()})]
    rows.append(["any source", "`spark.…`", "any option of Spark's reader"])
    for name, one in sql_connectors().items():
        told = {key: f"{option.about}{' (required)' if option.required else ''}" for key, option in one.options.items()}
        rows += [
            [f"`{name}`", *row] for row in _options({**told, **{f"{key}…": text for key, text in one.prefixes.items()}})
        ]
    return _table(("connector", "option", "meaning"), rows)


def _options(told: Mapping[str, str]) -> list[list[str]]:
    return [[f"`{name}`", text] for name, text in told.items()]


TABLES = {
    "promises": promises,
    "taking_back": taking_back,
    "connectors_of_sql": connectors_of_sql,
    "options": options,
}


def written(page: Path) -> str:
    """A page with its tables as the registry has them."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for page in PAGES if "--write" in sys.argv else ():
        page.write_text(written(page), encoding="utf-8")
