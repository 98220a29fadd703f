"""What a file source has read: tables of its own, of which an epoch writes what is new.

Spark notes the files of each batch in a numbered log below the source's notes, and every so often copies all of them
into one file; there they stay for ever. A table has the same entries. A run is written once, of the batches since the
last epoch; runs are merged, so that there are few, and entries go when Spark would not look at such an old file again.
"""

import itertools
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from epochal.protocol.documents import OperatorState, RunPart, StoredRun, StoredTable
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import StoreError
from epochal.protocol.paths import JobPaths, StateName
from epochal.protocol.store import Exists, Store
from epochal.runtime.spark.jvm import milliseconds
from epochal.runtime.spark.stream_plans import file_source_options
from epochal.runtime.state.parquet import as_parquet
from epochal.runtime.state.state_objects import read_part
from epochal.runtime.state.tables import MERGE_AT, tier

PREFIX = "files-"
"""Begins the names of these tables. The number of the source follows: a stream may read from several."""

SCHEMA = pa.schema([("path", pa.string()), ("timestamp", pa.int64()), ("batch", pa.int64())])
"""``timestamp`` in milliseconds, as Spark has it."""

COMPACT_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"

_BLOCK = 65_536
_VERSION = "v1"


def table_name(source: str) -> str:
    return PREFIX + source


def last_seen(state: OperatorState | None, source: str) -> int:
    """The newest note whose files an epoch's table has. An epoch of a version before has no such table."""
    if state is None or state.position is None or table_name(source) not in state.tables:
        return -1
    return state.position.seen[source]


# --- Spark's log ---


def read_log(notes: Path, *, after: int, until: int) -> pa.Table:
    """The entries of the notes above ``after`` up to ``until``. Costs what they are, however long the log is."""
    for attempt in itertools.count(1):
        try:
            return _table(_entries(notes, after, until))
        except FileNotFoundError:
            # Spark deletes a note that it has copied: the copy is there.
            if attempt == 3:
                raise
    raise AssertionError


def _entries(notes: Path, after: int, until: int) -> list[dict[str, Any]]:
    there = {path.name for path in notes.iterdir()}
    copies = sorted(int(match[1]) for name in there if (match := re.fullmatch(r"(\d+)\.compact", name)))
    found: list[list[dict[str, Any]]] = []
    number = until
    while number > after:
        if str(number) in there:
            found.append([json.loads(line) for line in (notes / str(number)).read_text().split("\n")[1:] if line])
            number -= 1
            continue
        copy = next((one for one in copies if one >= number), None)
        if copy is None:
            raise FileNotFoundError(
                f"{notes} has no note {number}: Spark's log of the files that were read is not whole"
            )
        found.append(_newest_of(notes / f"{copy}.compact", after, number))
        break
    return [entry for one in reversed(found) for entry in one]


def _newest_of(copy: Path, after: int, until: int) -> list[dict[str, Any]]:
    """Entries come in the order of their notes: it is read from its end."""
    found = []
    for line in _lines_backwards(copy):
        if not line.startswith("{"):
            continue
        entry = json.loads(line)
        if entry["batchId"] <= after:
            break
        if entry["batchId"] <= until:
            found.append(entry)
    return found[::-1]


def _lines_backwards(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        end, rest = file.seek(0, 2), b""
        while end > 0:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            first, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from (line.decode() for line in reversed(lines))
            end, rest = begin, first
        yield rest.decode()


def _table(entries: Sequence[dict[str, Any]]) -> pa.Table:
    columns = [[entry[name] for entry in entries] for name in ("path", "timestamp", "batchId")]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA.names)


def write_log(notes: Path, entries: pa.Table, *, until: int, interval: int) -> None:
    """Make Spark's log of entries up to note ``until``: one copy of the older ones, where Spark would have made one by
    its ``interval``, and each note after it."""
    notes.mkdir(parents=True, exist_ok=True)
    copied = (until + 1) // interval * interval - 1
    texts: dict[int, list[str]] = {number: [] for number in range(max(copied, 0), until + 1)}
    for entry in entries.sort_by("batch").to_pylist():
        line = {"path": entry["path"], "timestamp": entry["timestamp"], "batchId": entry["batch"]}
        texts[max(copied, entry["batch"])].append(json.dumps(line, separators=(",", ":"), ensure_ascii=False))
    for number, lines in texts.items():
        name = f"{number}.compact" if number == copied else str(number)
        (notes / name).write_text("\n".join([_VERSION, *lines]))


def longest_age(frame: DataFrame) -> int | None:
    """Milliseconds that a file may be older than the newest one for Spark to look at it; None if there is no bound."""
    options = file_source_options(frame)
    if any(one.get("latestfirst", "false").lower() == "true" for one in options):
        return None
    return max((milliseconds(one.get("maxfileage", "7d")) for one in options), default=None)


# --- runs ---


@dataclass(frozen=True, slots=True)
class SeenFiles:
    """The tables of all file sources of a driver, in the store."""

    store: Store
    paths: JobPaths
    generation: Generation

    def write(
        self,
        before: OperatorState | None,
        new: pa.Table,
        *,
        age: int | None,
        operator: str,
        source: str,
        epoch: Epoch,
        number: int,
    ) -> tuple[StoredTable, int]:
        """A source's table at an epoch, given that of the last one and the entries since, and how many bytes it took.
        ``age`` is :func:`longest_age`."""
        name = table_name(source)
        runs = list(before.tables[name].runs) if before is not None and name in before.tables else []
        times = [run.max_time // 1000 for run in runs if run.max_time is not None]
        newest = max([*times, *new.column("timestamp").to_pylist()], default=0)
        oldest = None if age is None else newest - age
        if oldest is not None:
            runs = [run for run in runs if run.max_time is None or run.max_time >= oldest * 1000]
        if not new.num_rows:
            return StoredTable(kind="KeyedTime", runs=tuple(runs)), 0
        kept = len(runs) - to_merge(runs, new.num_rows)
        rows = pa.concat_tables([*(self.read(run) for run in runs[kept:]), new])
        if oldest is not None:
            rows = rows.filter(pc.greater_equal(rows.column("timestamp"), oldest))
        target = StateName(operator=operator, table=name, epoch=epoch, generation=self.generation, run=number, part=0)
        run = self._put(target, rows)
        return StoredTable(kind="KeyedTime", runs=(*runs[:kept], run)), sum(part.bytes for part in run.parts)

    def read(self, run: StoredRun) -> pa.Table:
        return pa.Table.from_batches((batch for part in run.parts for batch in read_part(self.store, part)), SCHEMA)

    def restored(self, state: OperatorState) -> dict[str, pa.Table]:
        """What an epoch has of each file source."""
        seen = state.position.seen if state.position is not None else {}
        return {source: pa.concat_tables(map(self.read, state.tables[table_name(source)].runs)) for source in seen}

    def _put(self, name: StateName, rows: pa.Table) -> StoredRun:
        data, count = as_parquet(rows.to_batches())
        target = self.paths.state_object(name)
        if isinstance(self.store.create(target, data), Exists):
            raise StoreError(target, "exists already, with other content")
        times = pc.min_max(rows.column("timestamp")).as_py()
        part = RunPart(object=target, rows=count, bytes=len(data), crc32=zlib.crc32(data))
        return StoredRun(parts=(part,), min_time=times["min"] * 1000, max_time=times["max"] * 1000)


def to_merge(runs: Sequence[StoredRun], new: int) -> int:
    """How many of the newest runs are written again with ``new`` entries, so that there are few of each size."""
    sizes = [sum(part.rows for part in run.parts) for run in runs]
    taken, total = 0, new
    while True:
        alike = 0
        while taken + alike < len(sizes) and tier(sizes[-1 - taken - alike]) <= tier(total):
            alike += 1
        if alike < MERGE_AT - 1:
            return taken
        total += sum(sizes[len(sizes) - taken - alike : len(sizes) - taken])
        taken += alike
