"""A row from a worker to Spark, made of buffers: of Python's values Arrow makes arrays with the help of pandas, whose
import takes a worker that has just started a second."""

import struct

import pyarrow as pa


def one_row(**values: int | str | bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_array(value) for value in values.values()], names=list(values))


def _array(value: int | str | bytes) -> pa.Array:
    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("<q", value))])
    kind, data = (pa.string(), value.encode()) if isinstance(value, str) else (pa.binary(), value)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(struct.pack("<ii", 0, len(data))), pa.py_buffer(data)])
