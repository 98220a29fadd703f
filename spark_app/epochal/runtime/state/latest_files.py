"""What an executor keeps of a latest table on its own disk: sorted files, looked up by binary search.

A run's part of one partition is one Arrow file. Its record batches are sorted by the hash of the key, and no key is in
it twice. Files are mapped and not read: what a batch does not touch costs nothing, and memory is the page cache's. All
here runs in Spark's Python workers and knows nothing of Spark but the task it is in.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from epochal.runtime.errors import NOT_HERE
from epochal.runtime.spark.one_row import one_row
from epochal.runtime.state.parquet import nullable, with_nulls

HASH = "__hash"
"""The column that files are sorted by."""

PARTITION = "__partition"
"""The column that says which partition a row belongs to: looked at, and left out."""

SLICE = 1 << 20
"""Rows of a record batch, at most: what has to be in memory at once, of each column."""

SLICE_BYTES = 256 * 1024 * 1024
"""The same of rows that are large: so many bytes are enough. Arrow's strings end at 2 GB."""

OLDER = "__older_"
"""Begins the names of what was found of a key, beside what a batch has of it."""

Batches = Iterator[pa.RecordBatch]
TaskStep = Callable[[Batches], Batches]
Indexes = npt.NDArray[np.int64]


class StateNotHereError(Exception):
    """A file that should be on this executor is not, or the task should be on another one."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{NOT_HERE}: {what} is not on this executor")


class NotPartitionedError(RuntimeError):
    """Rows are in another partition than what is known of them."""

    def __init__(self) -> None:
        super().__init__("rows are not partitioned as their state is: leave spark.sql.adaptive.enabled off")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of one table of one driver are. Without a ``directory`` each executor has its own. ``homes`` are
    the names of the executors that the partitions belong to; there are none where all is done by one process."""

    directory: str | None
    table: str
    homes: tuple[str, ...] = ()

    def folder(self) -> Path:
        # Spark removes its own directories when an executor ends, with all that is in them.
        return Path(self.directory or os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / "epochal" / self.table

    def path(self, run: int) -> Path:
        """Of the partition that this task is for. A task that runs elsewhere must neither read nor write."""
        number = partition()
        if self.homes and number >= len(self.homes):
            raise NotPartitionedError
        if self.homes and self.homes[number] != executor_name():
            raise StateNotHereError(f"partition {number} of {self.table}")
        return self.folder() / f"{run}-{number}.arrow"


def partition() -> int:
    """Which one this task is for."""
    task = TaskContext.get()
    assert task is not None
    return task.partitionId()


def executor_name() -> str:
    """No two executors have the same, and one that comes back has another: Spark makes it up for its blocks."""
    return Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]).name


# --- steps of a Spark job ---


def finding(place: Place, runs: Sequence[int], key: str, values: pa.Schema, gone: Sequence[int]) -> TaskStep:
    """Add to each row what the newest of ``runs`` (newest first) that has its key says of it: ``values``. Files of runs
    that are ``gone`` are deleted by the way."""

    def find(batches: Batches) -> Batches:
        _delete(place, gone)
        segments = _open(place, runs)
        for rows in _sorted_slices(_at_home(batches)):
            older = _Lookup(rows, key, segments)
            columns = {name: rows.column(name) for name in rows.schema.names}
            yield pa.RecordBatch.from_pydict(columns | {OLDER + field.name: older.column(field) for field in values})

    return find


def writing(place: Place, run: int, stored: Sequence[str]) -> TaskStep:
    """Write the columns ``stored`` of all rows as a run, and let the rows go on without the hash."""

    def write(batches: Batches) -> Batches:
        with _Writer(place.path(run)) as writer:
            for rows in _sorted_slices(_at_home(batches)):
                writer.add(rows.select([HASH, *stored]))
                yield rows.drop_columns([HASH])

    return write


def filing(place: Place, run: int) -> TaskStep:
    """Write all rows as a run, and tell only how many there are."""

    def file(batches: Batches) -> Batches:
        rows = 0
        with _Writer(place.path(run)) as writer:
            for batch in _sorted_slices(_at_home(batches)):
                writer.add(batch.select([HASH, *(name for name in batch.schema.names if name != HASH)]))
                rows += batch.num_rows
        yield one_row(rows=rows)

    return file


Sum = Callable[[pa.Array, pa.Array], pa.Array]


def adding(
    place: Place, runs: Sequence[int], into: int, key: str, sums: Mapping[str, Sum], gone: Sequence[int]
) -> TaskStep:
    """All in one: find what is known of keys, add it to the rows' own values, write that as a run and let it go on."""

    def add(batches: Batches) -> Batches:
        _delete(place, gone)
        segments = _open(place, runs)
        with _Writer(place.path(into)) as writer:
            for rows in _sorted_slices(_at_home(batches)):
                older = _Lookup(rows, key, segments)
                totals = {
                    name: add(older.column(rows.schema.field(name)), rows.column(name)) for name, add in sums.items()
                }
                new = pa.RecordBatch.from_pydict({HASH: rows.column(HASH), key: rows.column(key)} | totals)
                writer.add(new)
                yield new.drop_columns([HASH])

    return add


def keeping_new(
    place: Place,
    runs: Sequence[int],
    into: int,
    key: str,
    *,
    time: str,
    arrival: str,
    late: int | None,
    since: int | None,
    gone: Sequence[int],
) -> TaskStep:
    """Of each key let the first row by ``time`` and ``arrival`` go on, unless the time that is known of the key is
    ``since`` or later. The times of rows that go on become a run. Rows without a time, or with one before ``late``, are
    left out."""

    def keep(batches: Batches) -> Batches:
        _delete(place, gone)
        segments = _open(place, runs)
        with _Writer(place.path(into)) as writer:
            rows = _spooled(_on_time(_at_home(batches), time, late), writer.beside("spool"))
            if not rows:
                return
            keys = pa.concat_batches([batch.select([HASH, key, time, arrival]) for batch in rows])
            order = np.lexsort((keys.column(arrival).to_numpy(), keys.column(time).to_numpy(), _hashes(keys)))
            order = order[~_again(keys, order, key)]
            first = keys.take(pa.array(order)).select([HASH, key, time])
            known = _Lookup(first, key, segments).column(first.schema.field(time))
            new = known.is_null() if since is None else pc.fill_null(pc.less(known, since), True)
            for begin in range(0, len(order), SLICE):
                writer.add(first.slice(begin, SLICE).filter(new.slice(begin, SLICE)))
            passed = np.zeros(keys.num_rows, bool)
            passed[order[new.to_numpy(zero_copy_only=False)]] = True
            begin = 0
            for batch in rows:
                yield batch.filter(pa.array(passed[begin : begin + batch.num_rows])).drop_columns([HASH, arrival])
                begin += batch.num_rows

    return keep


def _on_time(batches: Batches, time: str, late: int | None) -> Batches:
    for batch in batches:
        times = batch.column(time)
        on_time = times.is_valid() if late is None else pc.fill_null(pc.greater_equal(times, late), False)
        yield batch if pc.all(on_time).as_py() else batch.filter(on_time)


def _spooled(batches: Batches, path: Path) -> list[pa.RecordBatch]:
    """All rows: those of more than a slice are in a file that is mapped, and gone with the last of them."""
    held: list[pa.RecordBatch] = []
    enough = _Slice()
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            enough.add(batch)
        if enough:
            break
    else:
        return held
    try:
        with pa.ipc.new_file(str(path), held[0].schema) as writer:
            for batch in itertools.chain(held, batches):
                writer.write_batch(batch)
        file = pa.ipc.open_file(pa.memory_map(str(path)))
    finally:
        path.unlink(missing_ok=True)
    return [file.get_batch(number) for number in range(file.num_record_batches)]


def _delete(place: Place, runs: Sequence[int]) -> None:
    for run in runs:
        place.path(run).unlink(missing_ok=True)


def deleting(places: Sequence[Place]) -> TaskStep:
    """Delete all files of tables on this executor. Tells its name."""

    def delete(nothing: Batches) -> Batches:
        ended(nothing)
        for place in places:
            shutil.rmtree(place.folder(), ignore_errors=True)
        yield one_row(name=executor_name())

    return delete


def merging(place: Place, runs: Sequence[int], into: int, key: str, keep: "Keep | None") -> TaskStep:
    """Make one run of several (newest first): the newest row of each key stays. Tells how many rows there are."""

    def merge(nothing: Batches) -> Batches:
        ended(nothing)
        rows = 0
        with _Writer(place.path(into)) as writer:
            for batch in merged(_open(place, runs), key):
                kept = batch if keep is None else keep(batch)
                writer.add(kept)
                rows += kept.num_rows
        yield one_row(rows=rows)

    return merge


def reading(place: Place, runs: Sequence[int], key: str, then: TaskStep) -> TaskStep:
    """Do a step with the rows of runs (newest first), the newest of each key, without the hash."""

    def read(nothing: Batches) -> Batches:
        ended(nothing)
        return then(batch.drop_columns([HASH]) for batch in merged(_open(place, runs), key))

    return read


def ended(batches: Batches) -> None:
    """Read to the end what has no rows: Spark uses a Python worker again only if it has heard all that it was told."""
    for batch in batches:
        assert not batch.num_rows


Keep = Callable[[pa.RecordBatch], pa.RecordBatch]


# --- files ---


class _Writer:
    """A file that is there when it is complete, also where a task is run twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = self.beside("partial")
        self._writer: Any = None

    def beside(self, kind: str) -> Path:
        """A file of this task alone."""
        return self._path.with_suffix(f".{os.getpid()}.{kind}")

    def __enter__(self) -> "_Writer":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        # Runs that come from different plans are merged: what one of them says can never be null, another may not.
        batch = with_nulls(batch)
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self._partial), batch.schema)
        if batch.num_rows:
            self._writer.write_batch(batch)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer is None:
            # An empty partition: an empty file tells it from one that is lost.
            self._partial.touch()
        else:
            self._writer.close()
        if kind is None:
            self._partial.rename(self._path)
        else:
            self._partial.unlink()


def _open(place: Place, runs: Sequence[int]) -> list[pa.RecordBatch]:
    return [segment for run in runs for segment in _segments(place.path(run))]


def _segments(path: Path) -> list[pa.RecordBatch]:
    try:
        if not path.stat().st_size:
            return []
    except FileNotFoundError:
        raise StateNotHereError(path.name) from None
    file = pa.ipc.open_file(pa.memory_map(str(path)))
    return [file.get_batch(number) for number in range(file.num_record_batches)]


def _at_home(batches: Batches) -> Batches:
    """Rows that are in the wrong partition would not find what is known of them, and must not become state."""
    here = partition()
    for batch in batches:
        if PARTITION in batch.schema.names:
            if not pc.all(pc.equal(batch.column(PARTITION), here)).as_py():
                raise NotPartitionedError
            batch = batch.drop_columns([PARTITION])
        yield batch


def _sorted_slices(batches: Batches) -> Batches:
    """Rows by the slice, each slice sorted by hash."""
    waiting: list[pa.RecordBatch] = []
    enough = _Slice()
    for batch in batches:
        waiting.append(batch)
        enough.add(batch)
        if enough:
            yield _sorted(waiting)
            waiting, enough = [], _Slice()
    if enough.rows:
        yield _sorted(waiting)


class _Slice:
    """True when there is as much as is to be in memory at once."""

    def __init__(self) -> None:
        self.rows = self._size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._size += batch.nbytes

    def __bool__(self) -> bool:
        return self.rows >= SLICE or self._size >= SLICE_BYTES


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(batches)
    hashes = _hashes(rows)
    if np.all(hashes[1:] >= hashes[:-1]):
        return rows
    return rows.take(pa.array(np.argsort(hashes, kind="stable")))


def _hashes(rows: pa.RecordBatch) -> Indexes:
    return rows.column(HASH).to_numpy()  # type: ignore[no-any-return]


# --- looking up ---


class _Lookup:
    """Where the newest row of each key is: in which segment, and at which place there."""

    def __init__(self, rows: pa.RecordBatch, key: str, segments: list[pa.RecordBatch]) -> None:
        self._segments = segments
        self._segment = np.full(rows.num_rows, -1, np.int64)
        self._place = np.zeros(rows.num_rows, np.int64)
        keys, hashes = rows.column(key), _hashes(rows)
        left = np.arange(rows.num_rows)
        for number, segment in enumerate(segments):
            if not len(left):
                break
            found, places = _find(hashes, keys, left, segment, key)
            self._segment[found], self._place[found] = number, places
            left = left[self._segment[left] < 0]

    def column(self, field: pa.Field) -> pa.Array:
        """What was found, null where nothing was."""
        parts, rows = [], []
        for number, segment in enumerate(self._segments):
            here = np.nonzero(self._segment == number)[0]
            if len(here):
                parts.append(segment.column(field.name).take(pa.array(self._place[here])))
                rows.append(here)
        if not parts:
            return pa.nulls(len(self._segment), field.type)
        places = np.full(len(self._segment), -1, np.int64)
        places[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
        return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))


def _find(
    hashes: Indexes, keys: pa.Array, wanted: Indexes, segment: pa.RecordBatch, key: str
) -> tuple[Indexes, Indexes]:
    """Those of the ``wanted`` rows whose keys are in the segment, and where. Rows are sorted, so a binary search goes
    through the segment once."""
    stored, sought = _hashes(segment), hashes[wanted]
    places = np.searchsorted(stored, sought)
    hit = stored[np.minimum(places, len(stored) - 1)] == sought
    rows, places = wanted[hit], places[hit]
    found_rows, found_places = [], []
    stored_keys = segment.column(key)
    while len(rows):
        same = same_values(keys.take(pa.array(rows)), stored_keys.take(pa.array(places)))
        found_rows.append(rows[same])
        found_places.append(places[same])
        # Two keys of one hash stand side by side.
        rows, places = rows[~same], places[~same] + 1
        inside = places < len(stored)
        rows, places = rows[inside], places[inside]
        again = stored[places] == hashes[rows]
        rows, places = rows[again], places[again]
    if not found_rows:
        return rows, places
    return np.concatenate(found_rows), np.concatenate(found_places)


def same_values(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are one key to Spark: null is the same as null, not-a-number as itself, and zero as minus zero."""
    kind = one.type
    if pa.types.is_null(kind):
        return np.ones(len(one), bool)
    if pa.types.is_struct(kind):
        same = one.is_null().to_numpy(zero_copy_only=False) == other.is_null().to_numpy(zero_copy_only=False)
        for number in range(kind.num_fields):
            same &= same_values(pc.struct_field(one, number), pc.struct_field(other, number))
        return same  # type: ignore[no-any-return]
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return np.array([_text(a) == _text(b) for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool)
    equal = pc.fill_null(pc.equal(one, other), False)
    if pa.types.is_floating(kind):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    both_null = pc.and_(one.is_null(), other.is_null())
    return pc.or_(equal, both_null).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _text(value: Any) -> str:
    """A text that is the same where the values of keys are. It tells not-a-number from nothing, and is equal to
    itself."""
    match value:
        case float():
            return repr(value + 0.0)  # minus zero becomes zero
        case list():
            return f"[{','.join(map(_text, value))}]"
        case dict():
            return f"{{{','.join(f'{name}:{_text(one)}' for name, one in value.items())}}}"
        case _:
            return repr(value)


# --- merging ---


def merged(segments: list[pa.RecordBatch], key: str) -> Batches:
    """The newest row of each key, of segments that are sorted by hash, the newest first. Goes by ranges of the hash, so
    that few rows are in memory at once."""
    bounds = _bounds(sum(one.num_rows for one in segments), sum(one.nbytes for one in segments))
    starts = [np.append(np.searchsorted(_hashes(segment), bounds), segment.num_rows) for segment in segments]
    for number in range(len(bounds)):
        pieces = [
            segment.slice(start[number], start[number + 1] - start[number])
            for segment, start in zip(segments, starts, strict=True)
            if start[number + 1] > start[number]
        ]
        if pieces:
            yield _newest(pieces, key)


def _bounds(rows: int, size: int) -> Indexes:
    """Where ranges of a slice's rows begin: hashes are spread evenly over all whole numbers."""
    ranges = max(1, -(-rows // SLICE), -(-size // SLICE_BYTES))
    return np.array([-(2**63) + (2**64 // ranges) * number for number in range(ranges)], np.int64)


def _newest(pieces: list[pa.RecordBatch], key: str) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    rows = pa.concat_batches(pieces)
    order = np.argsort(_hashes(rows), kind="stable")
    return rows.take(pa.array(order[~_again(rows, order, key)]))


def _again(rows: pa.RecordBatch, order: Indexes, key: str) -> npt.NDArray[np.bool_]:
    """Which rows, in an order by hash, have the key of one before them."""
    hashes = _hashes(rows)[order]
    again = np.concatenate([[False], hashes[1:] == hashes[:-1]])
    repeated = np.nonzero(again)[0]
    if len(repeated):
        keys = rows.column(key)
        same = same_values(keys.take(pa.array(order[repeated])), keys.take(pa.array(order[repeated - 1])))
        if not same.all():
            again = _repeated_keys(keys, order, again)
    return again


def _repeated_keys(keys: pa.Array, order: Indexes, again: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Where several keys have one hash: which rows have a newer one of the same key before them. ``again`` says which
    rows have the hash of the row before."""
    repeated = np.zeros(len(order), bool)
    seen: set[str] = set()
    for place in np.nonzero(again)[0]:
        if not again[place - 1]:
            seen = {_text(keys[order[place - 1]].as_py())}
        own = _text(keys[order[place]].as_py())
        repeated[place] = own in seen
        seen.add(own)
    return repeated


def add_any(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.coalesce(pc.add(one, other), one, other)


def add_checked(one: pa.Array, other: pa.Array) -> pa.Array:
    try:
        return pc.coalesce(pc.add_checked(one, other), one, other)
    except pa.ArrowInvalid as error:
        raise OverflowError("a sum of whole numbers is larger than a bigint can hold: cast it to decimal") from error


def least(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.coalesce(pc.if_else(pc.less(one, other), one, other), one, other)


def greatest(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.coalesce(pc.if_else(pc.less(one, other), other, one), one, other)


def united(one: pa.ListArray, other: pa.ListArray) -> pa.ListArray:
    """The values of either list, each once. Lists have no value twice and no nulls; null is a list without values."""
    kind = nullable(other.type)
    values = pa.concat_arrays([one.cast(kind).flatten(), other.cast(kind).flatten()])
    if len(other) == 1:
        values = values.unique()
        sizes = np.array([len(values)])
    else:
        parents = pa.concat_arrays([pc.list_parent_indices(one), pc.list_parent_indices(other)])
        distinct = pa.table({"row": parents, "value": values}).group_by(["row", "value"], use_threads=False)
        found = distinct.aggregate([]).combine_chunks()
        rows = found.column("row").to_numpy()
        values = found.column("value").combine_chunks().take(pa.array(np.argsort(rows, kind="stable")))
        sizes = np.bincount(rows, minlength=len(other))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def least_struct(one: pa.Array, other: pa.Array) -> pa.Array:
    return _chosen(one, other, _is_less)


def greatest_struct(one: pa.Array, other: pa.Array) -> pa.Array:
    return _chosen(one, other, lambda one, other: _is_less(other, one))


def _chosen(one: pa.Array, other: pa.Array, first: Callable[[pa.Array, pa.Array], pa.Array]) -> pa.Array:
    """The other's values where ``first`` says that they come first, or there are none of the one's."""
    kind = nullable(other.type)
    others = pc.and_(pc.or_(first(other, one), one.is_null()), other.is_valid()).to_numpy(zero_copy_only=False)
    places = np.arange(len(one)) + np.where(others, len(one), 0)
    return pa.concat_arrays([one.cast(kind), other.cast(kind)]).take(pa.array(places))


def _is_less(one: pa.Array, other: pa.Array) -> pa.Array:
    """By the first field that differs, and null before all else, as Spark has it."""
    less, equal = pa.scalar(False), pa.scalar(True)
    for number in range(one.type.num_fields):
        a, b = pc.struct_field(one, number), pc.struct_field(other, number)
        smaller = pc.or_(pc.and_(a.is_null(), b.is_valid()), pc.fill_null(pc.less(a, b), False))
        same = pc.or_(pc.and_(a.is_null(), b.is_null()), pc.fill_null(pc.equal(a, b), False))
        less, equal = pc.or_(less, pc.and_(equal, smaller)), pc.and_(equal, same)
    return less


def later_than(column: str, bound: int) -> Keep:
    """Leave out rows whose ``column`` is below ``bound``."""
    return lambda rows: rows.filter(pc.greater_equal(rows.column(column), bound))
