"""An Iceberg table in a catalog."""

from collections.abc import Mapping

from epochal.connectors.connector import EXACTLY_ONCE, Connector, Option, Promise, TakingBack, Writes
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.stream_end import StreamEnd, needs_extra

CATALOG = "catalog."
"""Options that begin so are handed to the catalog as they are, without this."""


def _write(stream: "Iceberg", name: str, table: DeclaredTable) -> None:
    stream.to_iceberg(name, table.options["table"], catalog=table.options_of(CATALOG))


class Iceberg(StreamEnd):
    _connector = Connector(
        name="iceberg",
        title="Iceberg",
        writes=Writes(
            method="to_iceberg",
            table=_write,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="snapshot and epoch are one commit",
                tests=("connectors/test_iceberg.py", "exactly_once/test_connectors.py"),
            ),
            taking_back=(
                TakingBack(
                    able=True,
                    how="one snapshot without the files which later epochs added; other writers' files stay",
                    refused_if="another writer has compacted, rewritten or deleted some of them; the snapshots have "
                    "expired",
                ),
            ),
        ),
        options={"table": Option("the table, as namespace.table", required=True)},
        prefixes={CATALOG: "any property of PyIceberg's `load_catalog`"},
        extra="iceberg",
    )

    def to_iceberg(self, name: str, table: str, *, catalog: Mapping[str, str]) -> None:
        """An Iceberg table ``namespace.table``, exactly once: each epoch is one snapshot, committed together with the
        epoch's number. The table is made, without partitions, if it is not there.

        Needs the extra ``iceberg``. ``catalog`` are the properties of PyIceberg's ``load_catalog``, for example
        ``{"type": "rest", "uri": "http://catalog:8181"}``.
        """
        with needs_extra("iceberg", name):
            from epochal.connectors.iceberg.sink import IcebergSink, IcebergTarget
        self.to(name, IcebergSink(IcebergTarget(table=table, catalog=dict(catalog)), self._store()))
