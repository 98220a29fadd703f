"""What counts as a damaged state object, and what does not."""

import random
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from msgspec.structs import replace

from epochal.protocol.documents import RunPart
from epochal.protocol.errors import StoreError, StoreUnavailableError
from epochal.protocol.store import RetryPolicy, Store, StoreOptions, open_store
from epochal.runtime.errors import DamagedStateError, damaged_object
from epochal.runtime.state.parquet import as_parquet
from epochal.runtime.state.state_objects import check_part, read_part, schema_of

NAME = "test/job/state/counts/totals/0000000002-000001-000001-000000.parquet"
ROWS = pa.table({"key": list(range(500)), "name": [f"n{number % 7}" for number in range(500)]})


def written(data: bytes, *, rows: int = 500) -> RunPart:
    return RunPart(object=NAME, rows=rows, bytes=len(data), crc32=zlib.crc32(data))


def parquet(table: pa.Table = ROWS) -> bytes:
    return as_parquet(table.to_batches())[0]


def store_with(data: bytes | None) -> Store:
    store = open_store("memory:///")
    if data is not None:
        store.create(NAME, data)
    return store


def test_what_was_written_is_read() -> None:
    data = parquet()
    store, part = store_with(data), written(data)
    assert pa.Table.from_batches(read_part(store, part)).equals(ROWS)
    assert schema_of(store, part).names == ["key", "name"]


def flipped(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda _: None, "is missing"),
        (lambda data: data[:-9], r"has \d+ bytes, not the \d+ that were written"),
        (lambda _: b"", "has 0 bytes"),
        (flipped, r"is not what was written \(CRC-32 differs\)"),
        (lambda _: parquet(ROWS.slice(1)), "bytes, not the|CRC-32 differs"),
    ],
    ids=["missing", "truncated", "empty", "a-bit", "a-row-less"],
)
def test_damage_is_found_and_told(damage: Callable[[bytes], bytes | None], said: str) -> None:
    data = parquet()
    store, part = store_with(damage(data)), written(data)
    for read in (check_part, schema_of):
        with pytest.raises(DamagedStateError, match=said) as caught:
            read(store, part)
        assert damaged_object(RuntimeError(f"Traceback …\n{caught.value}\n at java")) == NAME


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no parquet", "is not a Parquet file"),
        (parquet()[:-60] + bytes(52) + parquet()[-8:], "is not a Parquet file"),
        (parquet(ROWS.slice(1)), "has 499 rows, not the 500"),
    ],
    ids=["text", "footer", "a-row-less"],
)
def test_a_manifest_without_checksums_still_tells_what_is_no_parquet_and_what_lost_rows(data: bytes, said: str) -> None:
    part = replace(written(data), crc32=None)
    with pytest.raises(DamagedStateError, match=said):
        check_part(store_with(data), part)


def test_every_flipped_bit_is_found() -> None:
    """Without the checksum most of them are read as other rows."""
    data, chance = parquet(), random.Random(19)
    part, unnoticed = written(data), 0
    for _ in range(200):
        bad = bytearray(data)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        store = store_with(bytes(bad))
        with pytest.raises(DamagedStateError):
            check_part(store, part)
        try:
            check_part(store, replace(part, crc32=None))
            unnoticed += 1
        except DamagedStateError:
            pass
    assert unnoticed > 50, "the checksum is needed"


class _Failing(Store):
    """Raises instead of reading."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(open_store("memory:///")._backend, uri="memory:///")
        self._error = error

    def get(self, name: str) -> bytes:
        raise self._error


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), OSError(28, "No space left on device"), StoreUnavailableError("s3://b", "503")]
)
def test_what_keeps_bytes_from_being_read_is_no_damage(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        check_part(_Failing(error), written(parquet()))
    assert caught.value is error
    assert damaged_object(error) is None


def test_a_store_that_does_not_answer_is_no_damage() -> None:
    options = StoreOptions(endpoint="http://127.0.0.1:1", region="r", access_key_id="k", secret_access_key="s")
    away = open_store("s3://bucket", options, retry=RetryPolicy(tries=2, first_pause=0.001))
    with pytest.raises(StoreError):
        check_part(away, written(parquet()))
