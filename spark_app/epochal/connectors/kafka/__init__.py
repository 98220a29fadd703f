"""A topic of Kafka: read by Spark's own source, written by one transactional producer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epochal.connectors.connector import EXACTLY_ONCE, Connector, Promise, Reads, TakingBack, Writes
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.kafka.options import OPTIONS, wrong_options
from epochal.connectors.stream_end import StreamEnd, needs_extra
from epochal.runtime.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CLIENT = "client."
"""Options that begin so are handed to the producer as they are, without this."""


def _read(spark: "SparkSession", table: DeclaredTable) -> "DataFrame":
    from epochal.connectors.kafka.records import read

    return read(spark, table)


def _write(stream: "Kafka", name: str, table: DeclaredTable) -> None:
    """The value of a message is its row as JSON."""
    topic = table.options.get("topic")
    if topic is None or table.option("format", "json") != "json":
        raise PipelineError(f"table {table.name} is written to: it needs the option 'topic', and values are JSON")
    stream.to_kafka(
        name, table.options["servers"], topic, key=table.options.get("key"), options=table.options_of(CLIENT)
    )


class Kafka(StreamEnd):
    _connector = Connector(
        name="kafka",
        title="Kafka",
        reads=Reads(
            table=_read,
            promise=Promise(
                guarantee=EXACTLY_ONCE,
                how="Spark's Kafka source; its offsets are in the epoch",
                tests=("connectors/test_sources.py", "exactly_once/test_connectors.py"),
            ),
        ),
        writes=Writes(
            method="to_kafka",
            table=_write,
            promise=Promise(
                guarantee="exactly once for `read_committed` readers",
                how="records and epoch are one transaction",
                tests=("connectors/test_kafka.py", "exactly_once/test_connectors.py"),
            ),
            taking_back=(TakingBack(how="records that were sent stay in their topic"),),
        ),
        options=OPTIONS,
        prefixes={CLIENT: "for a sink: any option of librdkafka"},
        wrong=wrong_options,
        extra="kafka",
        jars=("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
    )

    def to_kafka(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        *,
        key: "Column | str | None" = None,
        value: "Column | str | None" = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """A Kafka topic, exactly once for readers that are ``read_committed``: each epoch is one transaction, which
        also commits the epoch's number as the offset of a group. ``value`` is the whole row as JSON if left out.

        Needs the extra ``kafka``. The topic must exist. ``options`` are librdkafka's, for example ``sasl.username``.
        """
        with needs_extra("kafka", name):
            from epochal.connectors.kafka.sink import KafkaSink, KafkaTarget
        target = KafkaTarget(bootstrap=bootstrap, topic=topic, key=key, value=value, options=dict(options or {}))
        self.to(name, KafkaSink(target, self._store()))
