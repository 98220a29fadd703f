"""Sinks that take an epoch's rows from its objects, on the driver: after a crash no Spark job is needed."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.state.persistence import store_of

ROWS_AT_ONCE = 20_000


class ObjectSink(SinkOperator):
    """The rows are the same, in the same order, however often the commit is made."""

    needs_frame = False

    def __init__(self, storage: StorageConfig) -> None:
        super().__init__()
        self._storage = storage

    def batches(self, objects: list[str]) -> Iterator[pa.RecordBatch]:
        """All rows, few at a time."""
        store = store_of(self._storage)
        for name in objects:
            yield from pq.ParquetFile(io.BytesIO(store.get(name))).iter_batches(batch_size=ROWS_AT_ONCE)

    def schema(self, objects: list[str]) -> pa.Schema:
        return pq.read_schema(io.BytesIO(store_of(self._storage).get(objects[0])))

    def reader(self, objects: list[str]) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema(objects), self.batches(objects))
