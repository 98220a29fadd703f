"""Kafka topics as tables: which records, from where on, and how their values are read."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from epochal.connectors.declared_table import SPARK, DeclaredTable
from epochal.connectors.kafka.options import TOPICS, millis
from epochal.runtime.errors import PipelineError


def read(spark: SparkSession, table: DeclaredTable) -> DataFrame:
    """Rows are the records' values by their format, or the records themselves."""
    which = next(name for name in TOPICS if table.options.get(name))
    options = {"kafka.bootstrap.servers": table.options["servers"], TOPICS[which]: table.options[which]}
    if "start-time" in table.options:
        options["startingTimestamp"] = str(millis(table.options["start-time"]))
    else:
        options["startingOffsets"] = table.option("start", "earliest")
    if "records-per-batch" in table.options:
        options["maxOffsetsPerTrigger"] = table.options["records-per-batch"]
    form = table.option("format", "json")
    if form == "raw":
        options["includeHeaders"] = "true"
    records = spark.readStream.format("kafka").options(**options, **table.options_of(SPARK)).load()
    match form:
        case "raw":
            return records.select(*(F.col(name).cast(kind).alias(name) for name, kind in table.columns))
        case "text":
            return records.select(F.col("value").cast("string").alias(table.columns[0][0]))
        case "avro":
            row = from_avro("value", table.options["avro-schema"])
        case "protobuf":
            row = _from_protobuf(table)
        case _:
            row = F.from_json(F.col("value").cast("string"), table.schema)
    columns = [F.col(f"__row.`{name}`").cast(kind).alias(name) for name, kind in table.columns]
    return records.select(row.alias("__row")).select(*columns)


def _from_protobuf(table: DeclaredTable) -> Column:
    try:
        from epochal.connectors.protobuf import from_protobuf
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"table {table.name}: the Python package 'protobuf' is not installed; driver and executors need it: "
            "pip install 'epochal[protobuf]'"
        ) from error
    return from_protobuf("value", table.options["protobuf-message"], table.options["protobuf-descriptor"])
