"""The connectors that ``CREATE TABLE … WITH ('connector' = …)`` may name. To add one, add an entry to CONNECTORS."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal.api.pipeline import Pipeline, Stream
from epochal.runtime.durations import to_micros
from epochal.runtime.errors import PipelineError
from epochal.sources.nexmark import Nexmark
from epochal.sql import kafka
from epochal.sql.tables import SPARK, Table

CATALOG, HEADER = "catalog.", "header."
"""Options that begin so are handed to Iceberg's catalog and to HTTP requests as they are, without this."""

SOURCE_OPTIONS = {
    "bounded": "true: read what is there now and end",
    "max-ahead": "rows whose time is further ahead of the clock count as late; 1 hour",
    "idle-after": "a source that brings nothing for so long does not hold others back; 30 seconds",
    "trigger": "the time between micro-batches; as fast as they can be",
}
FORMATS = ("json", "csv", "parquet", "text", "orc", "avro")
WHOLE_NUMBERS = (
    "rows", "rows-per-request", "rows-per-second", "files-per-batch", "records-per-batch", "events-per-second", "seed",
)  # fmt: skip
NEXMARK_EVENTS = ("person", "auction", "bid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """``options`` are names and what they are for; those in ``required`` must be given, and any that begin with one of
    ``prefixes`` may be. ``columns`` are those of a
    source that declares none. ``lookup`` reads the table as it is now, for ``JOIN t FOR SYSTEM_TIME AS OF …``."""

    read: Callable[[Pipeline, Table], DataFrame] | None = None
    write: Callable[[Stream, str, Table], None] | None = None
    lookup: Callable[[SparkSession, Table], DataFrame] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a table's options."""

    option: str
    reason: str


def problem_of(table: Table) -> Problem | None:
    connector = CONNECTORS.get(table.connector_name)
    if connector is None:
        close = difflib.get_close_matches(table.connector_name, CONNECTORS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(sorted(CONNECTORS))}"
        return Problem("connector", f"there is no connector {table.connector_name!r}: {hint}")
    known = {**connector.options, **(SOURCE_OPTIONS if connector.read else {})}
    for name in table.options:
        if name not in known and not name.startswith((*connector.prefixes, *((SPARK,) if connector.read else ()))):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}"
            return Problem(name, f"connector {table.connector_name!r} has no option {name!r}: {hint}")
    for name in connector.required:
        if not table.options.get(name):
            return Problem(
                "connector", f"connector {table.connector_name!r} needs the option {name!r}: {connector.options[name]}"
            )
    return _wrong_value(table)


def _wrong_value(table: Table) -> Problem | None:
    given = table.options.get("bounded", "false")
    if given not in ("true", "false"):
        return Problem("bounded", f"'bounded' is 'true' or 'false', not {given!r}")
    known = kafka.FORMATS if table.connector_name == "kafka" else FORMATS
    form = table.options.get("format", "json")
    if form not in known:
        return Problem("format", f"there is no format {form!r}: write {', '.join(known)}")
    if table.connector_name == "kafka" and (wrong := kafka.wrong_option(table)):
        return Problem(*wrong)
    kind = table.options.get("events", "bid")
    if kind not in NEXMARK_EVENTS:
        return Problem("events", f"there are no events {kind!r}: write {', '.join(NEXMARK_EVENTS)}")
    for name in WHOLE_NUMBERS:
        if not table.options.get(name, "1").isdigit():
            return Problem(name, f"{name!r} is a whole number, not {table.options[name]!r}")
    for name in ("idle-after", "max-ahead", "trigger", "refresh"):
        try:
            to_micros(table.options.get(name, "1 second"))
        except PipelineError as error:
            return Problem(name, f"{name!r}: {error}")
    return None


# --- files ---


def _read_files(p: Pipeline, table: Table) -> DataFrame:
    reader = p.spark.readStream.format(table.option("format", "json")).schema(table.schema)
    if "files-per-batch" in table.options:
        reader = reader.option("maxFilesPerTrigger", table.options["files-per-batch"])
    return reader.options(**table.options_of(SPARK)).load(table.options["path"])


def _lookup_files(spark: SparkSession, table: Table) -> DataFrame:
    reader = spark.read.format(table.option("format", "json")).schema(table.schema)
    return reader.options(**table.options_of(SPARK)).load(table.options["path"])


def _write_parquet(stream: Stream, name: str, table: Table) -> None:
    stream.to_parquet(
        name, table.options["path"], endpoint=table.options.get("endpoint"), region=table.options.get("region")
    )


# --- databases and lakes ---


def _write_postgres(stream: Stream, name: str, table: Table) -> None:
    """A PRIMARY KEY replaces the row that has the same key."""
    stream.to_postgres(
        name,
        table.options["dsn"],
        table.options["table"],
        mode="upsert" if table.primary_key else "append",
        keys=table.primary_key,
    )


def _read_delta(p: Pipeline, table: Table) -> DataFrame:
    """New rows of the table, as Delta's own source gives them."""
    reader = p.spark.readStream.format("delta")
    if "files-per-batch" in table.options:
        reader = reader.option("maxFilesPerTrigger", table.options["files-per-batch"])
    return _declared(reader.options(**table.options_of(SPARK)).load(table.options["path"]), table)


def _lookup_delta(spark: SparkSession, table: Table) -> DataFrame:
    return _declared(spark.read.format("delta").options(**table.options_of(SPARK)).load(table.options["path"]), table)


def _declared(frame: DataFrame, table: Table) -> DataFrame:
    """The columns that a text declares, of a table that has types of its own."""
    if missing := [name for name, _ in table.columns if name not in frame.columns]:
        raise PipelineError(
            f"table {table.name}: {table.options['path']} has no column {', '.join(missing)}; "
            f"it has {', '.join(frame.columns)}"
        )
    return frame.select(*(F.col(f"`{name}`").cast(kind).alias(name) for name, kind in table.columns))


def _write_delta(stream: Stream, name: str, table: Table) -> None:
    columns = tuple(column.strip() for column in table.option("partition-by").split(",") if column.strip())
    stream.to_delta(
        name,
        table.options["path"],
        partition_by=columns,
        endpoint=table.options.get("endpoint"),
        region=table.options.get("region"),
    )


def _write_iceberg(stream: Stream, name: str, table: Table) -> None:
    stream.to_iceberg(name, table.options["table"], catalog=table.options_of(CATALOG))


def _write_http(stream: Stream, name: str, table: Table) -> None:
    stream.to_http(
        name,
        table.options["url"],
        headers=table.options_of(HEADER),
        rows_per_request=int(table.option("rows-per-request", "500")),
    )


# --- for trying things out ---


def _read_rate(p: Pipeline, table: Table) -> DataFrame:
    reader = p.spark.readStream.format("rate").option("rowsPerSecond", table.option("rows-per-second", "1"))
    return reader.options(**table.options_of(SPARK)).load()


def _read_nexmark(p: Pipeline, table: Table) -> DataFrame:
    nexmark = Nexmark(
        seed=int(table.option("seed", "0")), events_per_second=int(table.option("events-per-second", "10000"))
    )
    kind = table.options["events"]
    return nexmark.stream(p.spark).where(F.col(kind).isNotNull()).select(f"{kind}.*")


def _write_console(stream: Stream, name: str, table: Table) -> None:
    stream.to_console(name, rows=int(table.option("rows", "20")))


CONNECTORS: dict[str, Connector] = {
    "files": Connector(
        read=_read_files,
        lookup=_lookup_files,
        options={
            "path": "the directory, or a pattern",
            "format": f"{', '.join(FORMATS)}; json",
            "files-per-batch": "at most so many new files a micro-batch",
            "refresh": "where it is looked up: read it again so often, such as 10 minutes; never",
        },
        required=("path",),
    ),
    "parquet": Connector(
        write=_write_parquet,
        options={
            "path": "where the files go: s3://…, file://… or a path",
            "endpoint": "of an S3 server other than the job's store",
            "region": "S3 region",
        },
        required=("path",),
    ),
    "kafka": Connector(
        read=kafka.read,
        write=kafka.write,
        prefixes=(kafka.CLIENT,),
        options=kafka.OPTIONS,
        required=("servers",),
    ),
    "postgres": Connector(
        write=_write_postgres,
        options={"dsn": "such as postgresql://writer@db:5432/shop", "table": "the table there"},
        required=("dsn", "table"),
    ),
    "delta": Connector(
        read=_read_delta,
        write=_write_delta,
        lookup=_lookup_delta,
        options={
            "files-per-batch": "where it is read: at most so many new files a micro-batch",
            "refresh": "where it is looked up: read it again so often, such as 10 minutes; never",
            "path": "where the table is: s3://…, file://… or a path",
            "partition-by": "columns, with commas",
            "endpoint": "of an S3 server other than the job's store",
            "region": "S3 region",
        },
        required=("path",),
    ),
    "iceberg": Connector(
        write=_write_iceberg,
        options={"table": "namespace.table"},
        required=("table",),
        prefixes=(CATALOG,),
    ),
    "http": Connector(
        write=_write_http,
        options={"url": "where rows are posted", "rows-per-request": "at most so many; 500"},
        required=("url",),
        prefixes=(HEADER,),
    ),
    "rate": Connector(
        read=_read_rate,
        options={"rows-per-second": "how many; 1"},
        columns=("timestamp", "value"),
    ),
    "nexmark": Connector(
        read=_read_nexmark,
        options={
            "events": f"which ones: {', '.join(NEXMARK_EVENTS)}",
            "events-per-second": "of all three kinds together; 10000",
            "seed": "another number is another site; 0",
        },
        required=("events",),
    ),
    "console": Connector(write=_write_console, options={"rows": "at most so many an epoch; 20"}),
}
