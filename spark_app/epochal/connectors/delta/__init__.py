"""A Delta Lake table: written without Spark, read by Delta's own source for Spark."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from epochal.connectors.connector import (
    EXACTLY_ONCE,
    Connector,
    Option,
    Promise,
    Reads,
    TakingBack,
    Writes,
    duration,
    whole_number,
)
from epochal.connectors.declared_table import SPARK, DeclaredTable
from epochal.connectors.stream_end import StreamEnd, needs_extra
from epochal.runtime.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _read(spark: "SparkSession", table: DeclaredTable) -> "DataFrame":
    """New rows of the table, as Delta's own source gives them."""
    reader = spark.readStream.format("delta")
    if "files-per-batch" in table.options:
        reader = reader.option("maxFilesPerTrigger", table.options["files-per-batch"])
    return _declared(reader.options(**table.options_of(SPARK)).load(table.options["path"]), table)


def _look_up(spark: "SparkSession", table: DeclaredTable) -> "DataFrame":
    return _declared(spark.read.format("delta").options(**table.options_of(SPARK)).load(table.options["path"]), table)


def _declared(frame: "DataFrame", table: DeclaredTable) -> "DataFrame":
    """The columns that a text declares, of a table that has types of its own."""
    from pyspark.sql import functions as F

    if missing := [name for name, _ in table.columns if name not in frame.columns]:
        raise PipelineError(
            f"table {table.name}: {table.options['path']} has no column {', '.join(missing)}; "
            f"it has {', '.join(frame.columns)}"
        )
    return frame.select(*(F.col(f"`{name}`").cast(kind).alias(name) for name, kind in table.columns))


def _write(stream: "Delta", name: str, table: DeclaredTable) -> None:
    columns = tuple(column.strip() for column in table.option("partition-by").split(",") if column.strip())
    stream.to_delta(
        name,
        table.options["path"],
        partition_by=columns,
        endpoint=table.options.get("endpoint"),
        region=table.options.get("region"),
    )


def _s3_options(endpoint: str | None, region: str | None) -> dict[str, str]:
    """Of delta-rs, which reads keys from the environment."""
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": region}
    if endpoint and endpoint.startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return {key: value for key, value in options.items() if value}


class Delta(StreamEnd):
    _connector = Connector(
        name="delta",
        title="Delta Lake",
        reads=Reads(
            table=_read,
            lookup=_look_up,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="Delta's source for Spark; the table's version is in the epoch",
                tests=("connectors/test_sources.py", "exactly_once/test_connectors.py"),
            ),
        ),
        writes=Writes(
            method="to_delta",
            table=_write,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="the epoch is the commit's application transaction",
                tests=("connectors/test_delta.py", "exactly_once/test_connectors.py"),
            ),
            taking_back=(
                TakingBack(
                    able=True,
                    how="one Delta transaction that removes the files which later epochs added; other writers' files "
                    "stay",
                    refused_if="another writer has compacted, rewritten or deleted some of them; the log no longer has "
                    "these commits; the table is append-only, or has features that Epochal does not know",
                ),
            ),
        ),
        options={
            "path": Option("where the table is: s3://…, file://… or a path", required=True),
            "files-per-batch": Option("for a source: the most new files in a micro-batch", whole_number),
            "refresh": Option("for a lookup: time between two reads, such as 10 minutes; default never", duration),
            "partition-by": Option("for a sink: columns that a new table is partitioned by, separated by commas"),
            "endpoint": Option("for a sink: the S3 endpoint, if it is not that of the job's store"),
            "region": Option("for a sink: the S3 region, if it is not that of the job's store"),
        },
        extra="delta",
        jars=("io.delta:delta-spark_4.2_2.13:4.4.0",),
    )

    def to_delta(
        self,
        name: str,
        uri: str,
        *,
        partition_by: Sequence[str] = (),
        endpoint: str | None = None,
        region: str | None = None,
    ) -> None:
        """A Delta Lake table below ``uri`` (``s3://``, ``file://`` or a path), exactly once: each epoch is one Delta
        transaction, with the epoch's number as application transaction. The table is made if it is not there.

        Needs the extra ``delta``. ``endpoint`` and ``region`` of an ``s3://`` are those of the job's own store if left
        out; keys come by environment.
        """
        with needs_extra("delta", name):
            from epochal.connectors.delta.sink import DeltaSink, DeltaTarget
        store = self._store()
        options = _s3_options(endpoint or store.endpoint, region or store.region) if uri.startswith("s3://") else {}
        target = DeltaTarget(uri=uri, partition_by=tuple(partition_by), options=options)
        self.to(name, DeltaSink(target, store))
