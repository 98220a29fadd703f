"""What is wrong with a sink's arguments, or missing on this machine, is told when the pipeline is described."""

import sys
from collections.abc import Callable

import pytest

from epochal.connectors.registry import AllConnectors
from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.errors import PipelineError


class Ends(AllConnectors):
    """A stream that only notes what it ends in."""

    def __init__(self) -> None:
        self.sinks: dict[str, SinkOperator] = {}

    def to(self, name: str, sink: SinkOperator) -> None:
        self.sinks[name] = sink

    def _store(self) -> StorageConfig:
        return StorageConfig(uri="memory://")


SINKS: dict[str, tuple[str, str, Callable[[Ends], None]]] = {
    "postgres": ("psycopg", "epochal.connectors.postgres.sink", lambda ends: ends.to_postgres("out", "", "t")),
    "delta": ("deltalake", "epochal.connectors.delta.sink", lambda ends: ends.to_delta("out", "t")),
    "kafka": ("confluent_kafka", "epochal.connectors.kafka.sink", lambda ends: ends.to_kafka("out", "b:1", "t")),
    "iceberg": ("pyiceberg", "epochal.connectors.iceberg.sink", lambda ends: ends.to_iceberg("out", "n.t", catalog={})),
}


@pytest.mark.parametrize("extra", SINKS)
def test_a_client_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    package, module, describe = SINKS[extra]
    describe(Ends())
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(PipelineError, match=rf"operator 'out': .*'{package}.*pip install 'epochal\[{extra}\]'"):
        describe(Ends())


MISTAKES: dict[str, Callable[[Ends], None]] = {
    "an unknown mode": lambda ends: ends.to_postgres("out", "", "t", mode="replace"),  # type: ignore[arg-type]
    "an upsert without keys": lambda ends: ends.to_postgres("out", "", "t", mode="upsert"),
    "keys without an upsert": lambda ends: ends.to_postgres("out", "", "t", keys=["id"]),
    "no web address": lambda ends: ends.to_http("out", "example.com"),
    "no rows at all": lambda ends: ends.to_http("out", "http://example.com", rows_per_request=0),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_the_operator(mistake: str) -> None:
    with pytest.raises(PipelineError, match=r"operator 'out': .*give"):
        MISTAKES[mistake](Ends())
