"""Streams that end in other systems. Each client is an extra of its own, imported when it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from pyspark.sql import Column

from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.operator import SinkOperator
from epochal.runtime.durations import Duration, to_micros
from epochal.runtime.errors import PipelineError
from epochal.sinks.http import HttpSink, HttpTarget


class Connectors:
    """The part of a stream that ends it in another system. Rows go from the job's store through the driver; executors
    need none of the clients."""

    def to(self, name: str, sink: SinkOperator) -> None:
        """A sink of your own: a :class:`SinkOperator` that implements ``commit``."""
        raise NotImplementedError

    def _store(self) -> StorageConfig:
        raise NotImplementedError

    def to_postgres(
        self,
        name: str,
        dsn: str,
        table: str,
        *,
        mode: Literal["append", "upsert"] = "append",
        keys: Sequence[str] = (),
    ) -> None:
        """A table of PostgreSQL, exactly once: each epoch is one transaction, which also notes the epoch in the table
        ``epochal_epochs`` beside the target. ``upsert`` replaces the row that has the same ``keys``.

        Needs the extra ``postgres``. The table must exist. A password is better in ``PGPASSWORD`` or a passfile than
        in ``dsn``.
        """
        if mode not in ("append", "upsert") or (mode == "upsert") != bool(keys):
            raise PipelineError(f"operator {name!r}: give mode='append', or mode='upsert' with keys=[…]")
        with _extra("postgres", name):
            from epochal.sinks.postgres import PostgresSink
            from epochal.sinks.postgres_target import PostgresTarget
        target = PostgresTarget(dsn=dsn, table=table, keys=tuple(keys))
        self.to(name, PostgresSink(target, self._store()))

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
        with _extra("delta", name):
            from epochal.sinks.delta import DeltaSink, DeltaTarget
        store = self._store()
        options = _s3_options(endpoint or store.endpoint, region or store.region) if uri.startswith("s3://") else {}
        target = DeltaTarget(uri=uri, partition_by=tuple(partition_by), options=options)
        self.to(name, DeltaSink(target, store))

    def to_kafka(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        *,
        key: Column | str | None = None,
        value: Column | str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """A Kafka topic, exactly once for readers that are ``read_committed``: each epoch is one transaction, which
        also commits the epoch's number as the offset of a group. ``value`` is the whole row as JSON if left out.

        Needs the extra ``kafka``. The topic must exist. ``options`` are librdkafka's, for example ``sasl.username``.
        """
        with _extra("kafka", name):
            from epochal.sinks.kafka import KafkaSink, KafkaTarget
        target = KafkaTarget(bootstrap=bootstrap, topic=topic, key=key, value=value, options=dict(options or {}))
        self.to(name, KafkaSink(target, self._store()))

    def to_iceberg(self, name: str, table: str, *, catalog: Mapping[str, str]) -> None:
        """An Iceberg table ``namespace.table``, exactly once: each epoch is one snapshot, committed together with the
        epoch's number. The table is made, without partitions, if it is not there.

        Needs the extra ``iceberg``. ``catalog`` are the properties of PyIceberg's ``load_catalog``, for example
        ``{"type": "rest", "uri": "http://catalog:8181"}``.
        """
        with _extra("iceberg", name):
            from epochal.sinks.iceberg import IcebergSink, IcebergTarget
        self.to(name, IcebergSink(IcebergTarget(table=table, catalog=dict(catalog)), self._store()))

    def to_http(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        rows_per_request: int = 500,
        timeout: Duration = "30 seconds",
        patience: Duration = "2 minutes",
    ) -> None:
        """POST rows as JSON arrays, **at least once**: after a crash, or when an answer was lost, a request comes
        again, with the same body and the same ``Idempotency-Key`` (``namespace/job/operator/epoch/part``).

        A server that does not answer, or answers 408, 425, 429 or 5xx, is asked again for ``patience``; any other
        answer than 2xx ends the job.
        """
        try:
            target = HttpTarget(
                url=url,
                headers=dict(headers or {}),
                rows_per_request=rows_per_request,
                timeout=to_micros(timeout) / 1e6,
                patience=to_micros(patience) / 1e6,
            )
        except PipelineError as error:
            raise PipelineError(f"operator {name!r}: {error}") from error
        self.to(name, HttpSink(target, self._store()))


def _s3_options(endpoint: str | None, region: str | None) -> dict[str, str]:
    """Of delta-rs, which reads keys from the environment."""
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": region}
    if endpoint and endpoint.startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return {key: value for key, value in options.items() if value}


@contextmanager
def _extra(extra: str, name: str) -> Iterator[None]:
    """Around the import of a sink whose client is optional."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"operator {name!r}: the Python package {error.name!r} is not installed; the driver needs it: "
            f"pip install 'epochal[{extra}]'"
        ) from error
