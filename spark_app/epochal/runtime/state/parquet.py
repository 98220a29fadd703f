"""Rows as Parquet files in memory."""

import io
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

GROUP_ROWS, GROUP_BYTES = 131_072, 32 * 1024 * 1024
"""A row group has about so many rows, or so many bytes in memory where rows are large."""

SAMPLE = 8_192
"""So many of a column's values are looked at to see whether they repeat."""


def as_parquet(batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """Rows as one Parquet file, and how many there are."""
    return next(parquet_files(batches), (b"", 0))


def parquet_files(batches: Iterable[pa.RecordBatch], enough: int | None = None) -> Iterator[tuple[bytes, int]]:
    """Rows as Parquet files, each with how many it has. One that has ``enough`` bytes gets no more rows. Spark's
    batches are small: several are one row group."""
    groups = _row_groups(batches)
    for first in groups:
        buffer, rows = io.BytesIO(), 0
        repeating = [name for name in first.column_names if _repeats(first.column(name))]
        with pq.ParquetWriter(buffer, first.schema, compression="zstd", use_dictionary=repeating) as writer:
            table: pa.Table | None = first
            while table is not None:
                writer.write_table(table)
                rows += table.num_rows
                table = None if enough is not None and buffer.tell() >= enough else next(groups, None)
        yield buffer.getvalue(), rows


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            gathered.append(with_nulls(batch))
        if sum(one.num_rows for one in gathered) >= GROUP_ROWS or sum(one.nbytes for one in gathered) >= GROUP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


def with_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a schema that allows nulls everywhere. What one plan says can never be null, another may not; and of a
    variant that is null its parts are, which it says cannot be."""
    columns = [column.cast(nullable(column.type)) for column in batch.columns]
    fields = [
        pa.field(field.name, column.type, metadata=field.metadata)
        for field, column in zip(batch.schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        # A field's metadata tells a variant from a struct of the same parts.
        return pa.struct([pa.field(one.name, nullable(one.type), metadata=one.metadata) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    return kind


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether values come so often that a dictionary of them pays; making one of keys takes longer than the rest."""
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return False
    sample = column.slice(0, SAMPLE)
    distinct: int = pc.count_distinct(sample, mode="all").as_py()
    return distinct <= len(sample) // 4
