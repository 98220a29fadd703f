"""Rows on the driver's standard output, to try things out."""

from epochal.connectors.connector import Connector, Option, Promise, TakingBack, Writes, whole_number
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.stream_end import StreamEnd


def _write(stream: "Console", name: str, table: DeclaredTable) -> None:
    stream.to_console(name, rows=int(table.option("rows", "20")))


class Console(StreamEnd):
    _connector = Connector(
        name="console",
        title="Console",
        writes=Writes(
            method="to_console",
            table=_write,
            promise=Promise(guarantee="at least once", how="an epoch may be printed again after a crash"),
            taking_back=(TakingBack(how="what was printed stays"),),
        ),
        options={"rows": Option("rows printed of each epoch; default 20", whole_number)},
    )

    def to_console(self, name: str, *, rows: int = 20) -> None:
        """Print each epoch's rows."""
        from epochal.connectors.function.sink import ForEachEpochSink, show

        self.to(name, ForEachEpochSink(show(rows)))
