"""What a file source has read: an epoch writes what is new of it, and a restart reads no file twice and skips none."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.protocol.documents import Manifest, OperatorState, SourcePosition, StoredTable, decode, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import open_store
from epochal.runtime.dataflow import source_log
from epochal.runtime.dataflow.seen_files import SeenFiles, last_seen, longest_age, read_log, table_name, write_log
from epochal.runtime.state.tables import MERGE_AT
from tests.runtime.bad_data import SCHEMA, ids
from tests.support.local_job import LocalJob

INTERVAL = 10
"""Spark copies all notes into every tenth."""


def entry(note: int, number: int) -> dict[str, object]:
    return {"path": f"file:///in/ä {note}-{number}.json", "timestamp": 1000 * note, "batchId": note}


def spark_log(notes: Path, last: int, *, per_note: int = 2, kept: int = 10**9) -> None:
    """As Spark writes it: the newest ``kept`` notes are there, and older ones in the last copy."""
    notes.mkdir(parents=True, exist_ok=True)
    entries: list[str] = []
    for note in range(last + 1):
        own = [json.dumps(entry(note, number), ensure_ascii=False) for number in range(per_note)]
        entries += own
        copied = (note + 1) % INTERVAL == 0
        if note > last - kept or (copied and note + INTERVAL > last - kept):
            name = f"{note}.compact" if copied else str(note)
            (notes / name).write_text("\n".join(["v1", *(entries if copied else own)]))


def seen(table: pa.Table) -> list[tuple[int, str]]:
    return [(row["batch"], row["path"]) for row in table.to_pylist()]


def wanted(after: int, until: int, per_note: int = 2) -> list[tuple[int, str]]:
    return [(note, str(entry(note, n)["path"])) for note in range(after + 1, until + 1) for n in range(per_note)]


@pytest.mark.parametrize("kept", [6, 10**9])
def test_notes_are_read_one_by_one_or_from_their_copy(tmp_path: Path, kept: int) -> None:
    spark_log(tmp_path, 34, kept=kept)
    for after in (-1, 0, 8, 9, 10, 28, 29, 30, 33):
        for until in (after, 29, 30, 34):
            assert seen(read_log(tmp_path, after=after, until=until)) == wanted(after, until)


def test_a_long_copy_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_log(tmp_path, 9999, kept=1)
    parsed, loads = 0, json.loads

    def counted(text: str) -> object:
        nonlocal parsed
        parsed += 1
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)
    assert seen(read_log(tmp_path, after=9996, until=9998)) == wanted(9996, 9998)
    assert parsed < 20


def test_a_missing_note_is_an_error(tmp_path: Path) -> None:
    spark_log(tmp_path, 8)
    (tmp_path / "5").unlink()
    with pytest.raises(FileNotFoundError, match="no note 5"):
        read_log(tmp_path, after=3, until=8)


@pytest.mark.parametrize("until", [-1, 0, 5, 8, 9, 10, 19, 25, 99, 100])
def test_a_log_that_is_written_again_says_the_same(tmp_path: Path, until: int) -> None:
    spark_log(tmp_path / "a", until)
    entries = read_log(tmp_path / "a", after=-1, until=until)
    write_log(tmp_path / "b", entries, until=until, interval=INTERVAL)
    assert read_log(tmp_path / "b", after=-1, until=until).equals(entries)
    numbers = sorted(int(path.name.split(".")[0]) for path in (tmp_path / "b").iterdir())
    assert numbers == list(range(max(0, (until + 1) // INTERVAL * INTERVAL - 1), until + 1))


def test_the_position_does_not_grow(tmp_path: Path) -> None:
    """What is taken while batches wait is the same after ten files and after ten thousand."""
    sizes = []
    for last in (9, 9999):
        directory = tmp_path / str(last)
        spark_log(directory / "sources" / "0", last, kept=30)
        (directory / "offsets").mkdir()
        (directory / "offsets" / str(last)).write_text(f'v1\n{{}}\n{{"logOffset":{last}}}')
        position = source_log.capture(directory, last)
        assert position.seen == {"0": last}
        sizes.append(sum(map(len, position.log.values())))
    assert sizes[1] < sizes[0] + 10


class Epochs:
    """The epochs of a source that reads ``per_note`` files a batch, without Spark."""

    def __init__(self, per_note: int, age: int | None = None) -> None:
        self.files = SeenFiles(open_store("memory:///"), JobPaths("test", "job"), Generation(1))
        self.per_note = per_note
        self.age = age
        self.state: OperatorState | None = None
        self.epoch = 0

    def add(self, until: int) -> int:
        """An epoch after this note; how many bytes it wrote."""
        self.epoch += 1
        after = last_seen(self.state, "0")
        entries = [entry(note, n) for note in range(after + 1, until + 1) for n in range(self.per_note)]
        columns = {"path": "path", "timestamp": "timestamp", "batch": "batchId"}
        new = pa.table({name: [one[key] for one in entries] for name, key in columns.items()})
        table, written = self.files.write(
            self.state, new, age=self.age, operator="rows", source="0", epoch=Epoch(self.epoch), number=1
        )
        position = SourcePosition(batch=until, log={}, seen={"0": until})
        self.state = OperatorState(tables={table_name("0"): table}, position=position)
        return written

    @property
    def table(self) -> StoredTable:
        assert self.state is not None
        return self.state.tables[table_name("0")]


def test_an_epoch_writes_what_is_new_however_much_there_is() -> None:
    epochs = Epochs(per_note=25)
    written, sizes = [], []
    for note in range(1200):
        written.append(epochs.add(note))
        assert epochs.state is not None
        sizes.append(len(_encoded(epochs.state)))
    assert epochs.table.rows() == 30_000
    # Few runs, and so a small manifest; most of what is written is merged for the first time.
    assert max(sizes[600:]) < 1.3 * max(sizes[:600])
    assert len(epochs.table.runs) < 3 * MERGE_AT
    assert sum(written[600:]) < 2 * sum(written[:600])
    assert epochs.state is not None
    assert seen(epochs.files.restored(epochs.state)["0"]) == wanted(-1, 1199, 25)


def _encoded(state: OperatorState) -> bytes:
    manifest = Manifest(
        namespace="test", job="job", epoch=Epoch(1), generation=Generation(1), claim="c", parent=Epoch(0),
        min_epoch=Epoch(1), timestamp=0, then_stop=False, operators={"rows": state},
    )  # fmt: skip
    return encode(manifest)


def test_an_epoch_without_new_files_writes_nothing() -> None:
    epochs = Epochs(per_note=2)
    epochs.add(3)
    assert epochs.add(3) == 0
    assert epochs.table.rows() == 8


def test_files_that_are_too_old_to_be_looked_at_are_forgotten() -> None:
    """As Spark does: by the age of the newest file that was seen."""
    epochs = Epochs(per_note=2, age=50_000)
    for note in range(400):
        epochs.add(note)
    assert epochs.state is not None
    left = seen(epochs.files.restored(epochs.state)["0"])
    assert set(wanted(348, 399)) <= set(left)
    assert len(left) < 2 * 50 * 2 * MERGE_AT


def test_the_age_is_the_sources_own(spark: SparkSession, tmp_path: Path) -> None:
    read = spark.readStream.schema(SCHEMA)
    files = read.json(str(tmp_path))
    assert longest_age(files) == 7 * 24 * 3_600_000
    assert longest_age(files.select("id").where("id > 1")) == 7 * 24 * 3_600_000
    other = read.option("MAXFILEAGE", "30d").json(str(tmp_path))
    assert longest_age(other) == 30 * 24 * 3_600_000
    assert longest_age(files.union(other)) == 30 * 24 * 3_600_000
    assert longest_age(read.option("latestFirst", "true").json(str(tmp_path))) is None


class Inbox:
    """Files of a row each, several of one time stamp."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.count = 0

    def add(self, files: int) -> None:
        for _ in range(files):
            self.count += 1
            path = self.directory / f"{self.count:04d}.json"
            hidden = path.with_name(f".{path.name}")
            hidden.write_text(json.dumps({"id": self.count, "at": "2026-01-01T00:00:00Z"}))
            os.utime(hidden, (1_000_000_000 + self.count // 4,) * 2)
            hidden.rename(path)

    def pipeline(self, out: Path, per_batch: int) -> Callable[[Pipeline], None]:
        def build(p: Pipeline) -> None:
            stream = p.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", per_batch).json(str(self.directory))
            p.source("rows", stream, bounded=True).to_parquet("out", str(out))

        return build


def manifest_of(job: LocalJob) -> Manifest:
    store, paths = open_store(job.storage.uri), JobPaths("test", "job")
    name = paths.manifest(job.completed)
    return decode(name, store.get(name), Manifest)


def test_restarts_read_each_file_once(spark: SparkSession, tmp_path: Path) -> None:
    """Over 30 batches, so that Spark copies its notes; restarts at any number of them, with another number of files a
    batch each time, and with drivers that are lost."""
    inbox, chance = Inbox(tmp_path / "in"), random.Random(5)
    job = LocalJob(spark, inbox.pipeline(tmp_path / "out", 1), tmp_path)
    for lost in (False, True, False):
        inbox.add(22)
        job.build = inbox.pipeline(tmp_path / "out", per_batch=chance.choice([1, 2]))
        if lost:
            engine = job.start()
            job.wait(lambda: engine.status().finished, "the source to end")  # noqa: B023
            job.crash()
        job.run_to_the_end()
        position = manifest_of(job).operators["rows"].position
        assert position is not None
        assert not [name for name in position.log if name.startswith("sources/")]
    assert ids(spark, tmp_path / "out") == list(range(1, inbox.count + 1))


def test_a_manifest_of_the_version_before_is_restored(spark: SparkSession, tmp_path: Path) -> None:
    """It has the files in its log; the next epoch has them in a table."""
    inbox = Inbox(tmp_path / "in")
    inbox.add(13)
    job = LocalJob(spark, inbox.pipeline(tmp_path / "out", 1), tmp_path)
    job.run_to_the_end()
    as_before(job)
    inbox.add(5)
    job.run_to_the_end()
    assert ids(spark, tmp_path / "out") == list(range(1, 19))
    assert manifest_of(job).operators["rows"].tables[table_name("0")].rows() == 18


def as_before(job: LocalJob) -> None:
    """Let the newest manifest say the same as the version before did."""
    manifest = manifest_of(job)
    state = manifest.operators["rows"]
    assert state.position is not None
    notes = job.directory / "work-1" / "sources" / "rows" / "sources" / "0"
    needed = ["9.compact", *(str(number) for number in range(10, state.position.seen["0"] + 1))]
    log = {f"sources/0/{name}": (notes / name).read_text() for name in needed}
    position = SourcePosition(batch=state.position.batch, log=state.position.log | log)
    old = OperatorState(position=position, watermark=state.watermark)
    path = job.directory / "store" / JobPaths("test", "job").manifest(manifest.epoch)
    path.write_bytes(encode(structs.replace(manifest, operators=manifest.operators | {"rows": old})))
