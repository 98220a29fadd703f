"""What a checkpoint writes: rows in few row groups, dictionaries where values repeat."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from epochal.runtime.state.parquet import GROUP_BYTES, GROUP_ROWS, as_parquet, parquet_files


def batches(count: int, rows: int) -> list[pa.RecordBatch]:
    """As Spark gives them: many and small."""
    return [
        pa.RecordBatch.from_pydict(
            {
                "key": range(number * rows, (number + 1) * rows),
                "country": ["de", "fr"] * (rows // 2),
                "nothing": pa.nulls(rows, pa.string()),
                "void": pa.nulls(rows),
                "items": pa.array([[number, index] for index in range(rows)], pa.list_(pa.int64())),
            }
        )
        for number in range(count)
    ]


def test_all_rows_are_there_in_their_order() -> None:
    given = batches(30, 10_000)
    data, rows = as_parquet(given)
    assert rows == 300_000
    assert pq.read_table(io.BytesIO(data)).equals(pa.Table.from_batches(given))


def test_small_batches_are_one_row_group() -> None:
    data, _ = as_parquet(batches(30, 10_000))
    found = pq.read_metadata(io.BytesIO(data))
    assert found.num_row_groups == 3
    assert all(found.row_group(group).num_rows <= GROUP_ROWS + 10_000 for group in range(3))


def test_large_rows_are_not_gathered_for_ever() -> None:
    large = pa.RecordBatch.from_pydict({"text": ["x" * (GROUP_BYTES // 2)]})
    data, rows = as_parquet([large] * 6)
    assert rows == 6
    assert pq.read_metadata(io.BytesIO(data)).num_row_groups == 3


def test_only_values_that_repeat_have_a_dictionary() -> None:
    data, _ = as_parquet(batches(2, 10_000))
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    columns = {group.column(one).path_in_schema: group.column(one) for one in range(group.num_columns)}
    with_dictionary = {name for name, column in columns.items() if column.has_dictionary_page}
    assert {"country"} <= with_dictionary
    assert "key" not in with_dictionary


def test_no_rows_are_no_rows() -> None:
    assert as_parquet([])[1] == 0
    assert as_parquet(batches(1, 0))[1] == 0


def test_a_file_that_has_enough_gets_no_more_rows() -> None:
    given = batches(60, 10_000)
    files = list(parquet_files(given, enough=1))
    assert [rows for _, rows in files] == [140_000] * 4 + [40_000]
    tables = [pq.read_table(io.BytesIO(data)) for data, _ in files]
    assert pa.concat_tables(tables).equals(pa.Table.from_batches(given))
