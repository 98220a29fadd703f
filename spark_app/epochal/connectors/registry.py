"""All connectors. A connector is a folder beside this file, imported and named here once."""

import difflib

from epochal.connectors.blackhole import Blackhole
from epochal.connectors.connector import SOURCE_OPTIONS, Connector, Option, Problem
from epochal.connectors.console import Console
from epochal.connectors.declared_table import SPARK, DeclaredTable
from epochal.connectors.delta import Delta
from epochal.connectors.files import Files
from epochal.connectors.function import Function
from epochal.connectors.http import Http
from epochal.connectors.iceberg import Iceberg
from epochal.connectors.kafka import Kafka
from epochal.connectors.nexmark import NexmarkEvents
from epochal.connectors.parquet import Parquet
from epochal.connectors.postgres import Postgres
from epochal.connectors.rate import Rate


class AllConnectors(
    Blackhole,
    Console,
    Delta,
    Files,
    Function,
    Http,
    Iceberg,
    Kafka,
    NexmarkEvents,
    Parquet,
    Postgres,
    Rate,
):
    """Each connector, in the order of their names. A stream has the methods of all of them."""


CONNECTORS: dict[str, Connector] = {
    connector.name: connector for connector in (vars(base)["_connector"] for base in AllConnectors.__bases__)
}


def sql_connectors() -> dict[str, Connector]:
    """Those that ``CREATE TABLE … WITH ('connector' = …)`` may name."""
    return {name: connector for name, connector in CONNECTORS.items() if connector.in_sql}


def problem_of(table: DeclaredTable) -> Problem | None:
    """The first thing that is wrong with a table's options."""
    name, known = table.connector_name, sql_connectors()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(sorted(known))}"
        return Problem("connector", f"there is no connector {name!r}: {hint}")
    return _unknown_or_missing(table, known[name]) or _wrong_value(table, known[name])


def _options_of(connector: Connector) -> dict[str, Option]:
    return {**connector.options, **(SOURCE_OPTIONS if connector.reads else {})}


def _unknown_or_missing(table: DeclaredTable, connector: Connector) -> Problem | None:
    known = _options_of(connector)
    handed_on = (*connector.prefixes, *((SPARK,) if connector.reads else ()))
    for name in table.options:
        if name not in known and not name.startswith(handed_on):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}"
            return Problem(name, f"connector {connector.name!r} has no option {name!r}: {hint}")
    for name, option in connector.options.items():
        if option.required and not table.options.get(name):
            return Problem("connector", f"connector {connector.name!r} needs the option {name!r}: {option.about}")
    return None


def _wrong_value(table: DeclaredTable, connector: Connector) -> Problem | None:
    known = _options_of(connector)
    for name, value in table.options.items():
        option = known.get(name)
        if option is not None and option.wrong is not None and (why := option.wrong(name, value)):
            return Problem(name, why)
    return connector.wrong(table) if connector.wrong is not None else None
