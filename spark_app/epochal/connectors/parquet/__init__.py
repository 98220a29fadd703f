"""Parquet files, named by their epoch."""

from pathlib import Path

from epochal.connectors.connector import EXACTLY_ONCE, Connector, Option, Promise, TakingBack, Writes
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.stream_end import StreamEnd
from epochal.protocol.control import StorageConfig
from epochal.protocol.errors import StoreError
from epochal.runtime.errors import PipelineError


def _write(stream: "Parquet", name: str, table: DeclaredTable) -> None:
    stream.to_parquet(
        name, table.options["path"], endpoint=table.options.get("endpoint"), region=table.options.get("region")
    )


class Parquet(StreamEnd):
    _connector = Connector(
        name="parquet",
        title="Parquet files",
        writes=Writes(
            method="to_parquet",
            table=_write,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="an epoch's files are named after it",
                tests=(
                    "connectors/test_parquet.py",
                    "exactly_once/test_connectors.py",
                    "exactly_once/test_kill_and_compare.py",
                ),
            ),
            taking_back=(TakingBack(able=True, how="deletes the files of later epochs, newest first"),),
        ),
        options={
            "path": Option("the directory that files are written to: s3://…, file://… or a path", required=True),
            "endpoint": Option("the S3 endpoint, if it is not that of the job's store"),
            "region": Option("the S3 region, if it is not that of the job's store"),
        },
    )

    def to_parquet(self, name: str, uri: str, *, endpoint: str | None = None, region: str | None = None) -> None:
        """Parquet files below ``uri`` (``s3://``, ``file://`` or a path), exactly once. ``endpoint`` and ``region`` of
        an ``s3://`` are those of the job's own store if left out."""
        from epochal.connectors.parquet.sink import ParquetSink

        if "://" not in uri:
            uri = Path(uri).absolute().as_uri()
        store = self._store()
        if uri.startswith("s3://"):
            endpoint, region = endpoint or store.endpoint, region or store.region
        output = StorageConfig(uri=uri.rstrip("/"), endpoint=endpoint, region=region)
        try:
            sink = ParquetSink(output, store)
        except StoreError as error:
            raise PipelineError(f"operator {name!r}: {error}") from error
        self.to(name, sink)
