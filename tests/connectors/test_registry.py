"""The registry, the folders, the methods of a stream, the extras and the documentation say the same."""

import re
import tomllib
from pathlib import Path

import pytest

from epochal import connectors
from epochal.connectors.connector import Connector
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.registry import CONNECTORS, AllConnectors, problem_of
from tests.connectors import tables

ROOT = Path(__file__).parents[2]
FOLDER = Path(connectors.__path__[0])


def test_every_folder_is_in_the_registry() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/__init__.py")}
    assert folders == set(CONNECTORS)


def test_a_stream_has_the_methods_of_all_sinks() -> None:
    methods = {one.writes.method for one in CONNECTORS.values() if one.writes is not None}
    inherited = {name for base in AllConnectors.__bases__ for name in vars(base) if not name.startswith("_")}
    assert methods == inherited
    assert len(inherited) == sum(
        len([n for n in vars(base) if not n.startswith("_")]) for base in AllConnectors.__bases__
    )


@pytest.mark.parametrize("connector", CONNECTORS.values(), ids=lambda one: one.name)
def test_it_says_what_it_promises_and_needs(connector: Connector) -> None:
    assert connector.title
    assert connector.reads or connector.writes
    for side in (connector.reads, connector.writes):
        if side is not None:
            assert side.promise is not None
            assert [test for test in side.promise.tests if not (ROOT / "tests" / test).is_file()] == []
    if connector.writes is not None:
        assert connector.writes.taking_back, "can it be taken back?"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not connector.extra or connector.extra in extras


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_the_tables_of_the_documentation_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall("<!-- table: ", text)) == 2
    assert tables.written(page) == text, "write them anew: python -m tests.connectors.tables --write"


def test_an_option_that_is_not_given_is_not_looked_at() -> None:
    table = DeclaredTable(
        name="t",
        columns=(),
        computed=(),
        watermark=None,
        primary_key=(),
        connector_name="nexmark",
        options={"events": "bid"},
    )
    assert problem_of(table) is None
