"""Drops all rows: to measure a pipeline without its sink, or to see whether a query can run."""

from epochal.connectors.connector import EXACTLY_ONCE, Connector, Promise, TakingBack, Writes
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.stream_end import StreamEnd


def _write(stream: "Blackhole", name: str, table: DeclaredTable) -> None:
    stream.to_blackhole(name)


class Blackhole(StreamEnd):
    _connector = Connector(
        name="blackhole",
        title="Blackhole",
        writes=Writes(
            method="to_blackhole",
            table=_write,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="nothing is written; the rows are computed and counted",
                tests=("connectors/test_blackhole.py",),
            ),
            taking_back=(TakingBack(able=True, how="there is nothing to remove"),),
        ),
    )

    def to_blackhole(self, name: str) -> None:
        """Compute and count the rows, and drop them."""
        from epochal.connectors.blackhole.sink import BlackholeSink

        self.to(name, BlackholeSink())
