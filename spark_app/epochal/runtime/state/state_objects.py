"""State objects as they stand in the store, and what of them counts as damage.

Damage is one of these, and nothing else: the object is missing; it has another size, checksum or number of rows than
its manifest says; it is no Parquet file. Whatever else goes wrong while it is read (a store that refuses or does not
answer, memory, a disk, a lost executor) says nothing about the stored bytes: it is raised as it is.
"""

import io
import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from epochal.protocol.documents import RunPart
from epochal.protocol.errors import ObjectMissingError
from epochal.protocol.store import Store
from epochal.runtime.errors import DamagedStateError

_T = TypeVar("_T")

ROWS_AT_ONCE = 65_536

NO_PARQUET = (pa.ArrowInvalid, OSError, UnicodeDecodeError)
"""What PyArrow raises for bytes in memory that are no Parquet file. Memory that is not there is none of these."""


def read_part(store: Store, part: RunPart) -> Iterator[pa.RecordBatch]:
    """The rows of a state object; :class:`DamagedStateError` if it is not what was written."""
    batches = _checked(store, part).iter_batches(batch_size=ROWS_AT_ONCE)
    while (batch := _parsed(part, lambda: next(batches, None))) is not None:
        yield batch


def schema_of(store: Store, part: RunPart) -> pa.Schema:
    file = _checked(store, part)
    return _parsed(part, lambda: file.schema_arrow)


def check_part(store: Store, part: RunPart) -> None:
    """Read all of a state object, to see whether it is damaged."""
    for _ in read_part(store, part):
        pass


def _checked(store: Store, part: RunPart) -> pq.ParquetFile:
    try:
        data = store.get(part.object)
    except ObjectMissingError as error:
        raise DamagedStateError(part.object, "is missing") from error
    if len(data) != part.bytes:
        raise DamagedStateError(part.object, f"has {len(data)} bytes, not the {part.bytes} that were written")
    if part.crc32 is not None and zlib.crc32(data) != part.crc32:
        raise DamagedStateError(part.object, "is not what was written (CRC-32 differs)")
    file = _parsed(part, lambda: pq.ParquetFile(io.BytesIO(data)))
    if file.metadata.num_rows != part.rows:
        raise DamagedStateError(
            part.object, f"has {file.metadata.num_rows} rows, not the {part.rows} that were written"
        )
    return file


def _parsed(part: RunPart, parse: Callable[[], _T]) -> _T:
    try:
        return parse()
    except NO_PARQUET as error:
        raise DamagedStateError(part.object, f"is not a Parquet file: {error}") from error
