"""Delta Lake: an epoch is one Delta transaction; a commit made again, or by a driver that is too late, adds nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from epochal.connectors.commit_ledger import SinkFencedError
from epochal.connectors.delta import sink as delta_sink
from epochal.connectors.delta.sink import DeltaSink, DeltaTarget
from epochal.protocol.store import Store
from epochal.runtime.errors import PipelineError
from tests.connectors.commits import SCHEMA, Commits, Cut, Described, rows
from tests.support.s3 import S3Bucket


def opened(
    uri: object, commits: Commits, *, partition_by: tuple[str, ...] = (), options: Mapping[str, str] | None = None
) -> DeltaSink:
    """A sink whose stream has been checked, as the engine does before the start."""
    sink = DeltaSink(DeltaTarget(uri=str(uri), partition_by=partition_by, options=options or {}), commits.storage)
    sink.schema_of([Described(SCHEMA)])
    return sink


def words(uri: object, **options: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(uri), storage_options=options).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["word"]) for row in found)


def test_a_commit_that_is_made_again_changes_nothing(tmp_path: Path, commits: Commits) -> None:
    sink, ctx, objects = opened(tmp_path / "t", commits), commits.context(), commits.objects(rows((1, "a"), (2, "b")))
    sink.open(ctx)
    assert sink.write(3, objects, ctx)
    assert not sink.write(3, objects, ctx)
    again, next_ctx = opened(tmp_path / "t", commits), commits.context(2)
    again.open(next_ctx)
    assert not again.write(3, objects, next_ctx)
    assert again.write(4, commits.objects(rows((3, "c")), rows((1, "a"))), next_ctx)
    assert words(tmp_path / "t") == [(1, "a"), (1, "a"), (2, "b"), (3, "c")]
    assert DeltaTable(str(tmp_path / "t")).transaction_version("epochal/test/job/out") == 4


def test_a_driver_that_ends_before_or_after_the_commit(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, ctx, objects = opened(tmp_path / "t", commits), commits.context(), commits.objects(rows((1, "a")))
    sink.open(ctx)
    real = deltalake.write_deltalake
    for after in (False, True):

        def cutting(*arguments: Any, after: bool = after, **named: Any) -> None:
            if after:
                real(*arguments, **named)
            raise Cut

        monkeypatch.setattr(delta_sink, "write_deltalake", cutting)
        with pytest.raises(Cut):
            sink.write(1, objects, ctx)
        assert words(tmp_path / "t") == ([(1, "a")] if after else [])
    monkeypatch.setattr(delta_sink, "write_deltalake", real)
    assert not sink.write(1, objects, ctx)
    assert words(tmp_path / "t") == [(1, "a")]


@pytest.mark.parametrize("newer", [1, 2], ids=["same generation", "newer generation"])
def test_of_two_drivers_at_once_one_writes(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch, newer: int
) -> None:
    """The other one commits while this one is between looking and writing."""
    uri, objects = tmp_path / "t", commits.objects(rows((1, "a")))
    slow, ctx = opened(uri, commits), commits.context(1)
    slow.open(ctx)
    real, quick, quick_ctx = deltalake.write_deltalake, opened(uri, commits), commits.context(newer)

    def overtaken(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(delta_sink, "write_deltalake", real)
        quick.open(quick_ctx)
        assert quick.write(1, objects, quick_ctx)
        real(*arguments, **named)

    monkeypatch.setattr(delta_sink, "write_deltalake", overtaken)
    if newer == 1:
        assert not slow.write(1, objects, ctx)
    else:
        with pytest.raises(SinkFencedError, match="generation 2 of job test/job has taken over"):
            slow.write(1, objects, ctx)
    assert words(uri) == [(1, "a")]


def test_other_writers_of_the_table_are_no_trouble(tmp_path: Path, commits: Commits) -> None:
    sinks = [(opened(tmp_path / "t", commits), commits.context(name=name)) for name in ("one", "two")]
    for sink, ctx in sinks:
        sink.open(ctx)
    for epoch in (1, 2):
        for sink, ctx in sinks:
            assert sink.write(epoch, commits.objects(rows((epoch, ctx.name))), ctx)
    assert words(tmp_path / "t") == [(1, "one"), (1, "two"), (2, "one"), (2, "two")]


def test_a_job_begun_anew_is_told(tmp_path: Path, commits: Commits) -> None:
    sink, ctx = opened(tmp_path / "t", commits), commits.context(4)
    sink.open(ctx)
    sink.write(50, commits.objects(rows((1, "a"))), ctx)
    with pytest.raises(PipelineError, match="has epoch 50 of job test/job, and this job's store knows none above 3"):
        opened(tmp_path / "t", commits).open(commits.context(1, newest_epoch=3))


def test_partitions(tmp_path: Path, commits: Commits) -> None:
    sink, ctx = opened(tmp_path / "t", commits, partition_by=("word",)), commits.context()
    sink.open(ctx)
    sink.write(1, commits.objects(rows((1, "a"), (2, "b"))), ctx)
    assert sorted(path.name for path in (tmp_path / "t").glob("word=*")) == ["word=a", "word=b"]
    assert words(tmp_path / "t") == [(1, "a"), (2, "b")]


def test_tables_that_do_not_fit_are_told(tmp_path: Path, commits: Commits) -> None:
    opened(tmp_path / "t", commits).open(commits.context())
    long, text = T.StructField("id", T.LongType()), T.StructField("word", T.StringType())
    cases: list[tuple[list[T.StructField], tuple[str, ...], str]] = [
        ([long], (), "has the columns id, word, and the stream id"),
        ([long, text, T.StructField("more", T.LongType())], (), "and the stream id, word, more"),
        ([T.StructField("id", T.StringType()), text], (), "column id is string, and Delta table .* has it as long"),
        ([long, text], ("nope",), "partition_by names nope, and the stream has id, word"),
        ([long, text], ("word",), r"is partitioned by \[\], not by \['word'\]"),
    ]
    for fields, partition_by, message in cases:
        sink = DeltaSink(DeltaTarget(uri=str(tmp_path / "t"), partition_by=partition_by), commits.storage)
        with pytest.raises(PipelineError, match=message):
            sink.schema_of([Described(T.StructType(fields))])


def test_on_s3(s3_bucket: S3Bucket, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    server = s3_bucket.server
    keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    place = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": server.region, "AWS_ALLOW_HTTP": "true"}
    uri, options = f"s3://{s3_bucket.name}/t", keys | place
    sink, ctx, objects = opened(uri, commits, options=options), commits.context(), commits.objects(rows((1, "a")))
    sink.open(ctx)
    for _ in range(2):
        sink.write(1, objects, ctx)
    assert words(uri, **options) == [(1, "a")]
    sink.write(2, commits.objects(rows((2, "b"))), ctx)
    assert words(uri, **options) == [(1, "a"), (2, "b")]
    assert [sink.take_back(1, ctx) for _ in range(2)] == [1, 0]
    assert words(uri, **options) == [(1, "a")]
    assert server.secret_key not in repr(sink._target)


def committed(uri: object, commits: Commits, *epochs: int, generation: int = 1, name: str = "out") -> DeltaSink:
    """A sink that has committed these epochs."""
    sink, ctx = opened(uri, commits), commits.context(generation, name=name)
    sink.open(ctx)
    for epoch in epochs:
        sink.write(epoch, commits.objects(rows((epoch, "a"), (epoch, "a b%c/ü"))), ctx)
    return sink


def ids(uri: object) -> list[int]:
    return sorted({row[0] for row in words(uri)})


@pytest.mark.parametrize("partition_by", [[], ["word"]], ids=["whole", "partitions"])
def test_files_of_later_epochs_are_taken_back_and_no_others(
    tmp_path: Path, commits: Commits, partition_by: list[str]
) -> None:
    uri = tmp_path / "t"
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    DeltaTable.create(str(uri), schema=schema, partition_by=partition_by)
    committed(uri, commits, 1, 2)
    other = committed(uri, commits, 40, name="other")
    committed(uri, commits, 4, 5)
    somebody = pa.table({"id": [99], "word": ["of somebody else"]}, schema)
    deltalake.write_deltalake(str(uri), somebody, mode="append")
    sink, ctx = committed(uri, commits, generation=2), commits.context(2)
    assert sink.take_back(3, ctx) == 2
    assert ids(uri) == [1, 2, 40, 99]
    assert sink.take_back(3, ctx) == 0
    # It goes on with numbers of its own, and back once more, past what was taken back before.
    sink = committed(uri, commits, 6, 7, generation=3)
    assert ids(uri) == [1, 2, 6, 7, 40, 99]
    table = DeltaTable(str(uri))
    table.create_checkpoint()
    assert sink.take_back(1, commits.context(3)) == 3
    assert ids(uri) == [1, 40, 99]
    assert other.take_back(0, commits.context(name="other")) == 1
    assert ids(uri) == [1, 99]
    assert DeltaTable(str(uri)).transaction_version("epochal/test/job/out") == 1
    table = DeltaTable(str(uri))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    assert ids(uri) == [1, 99]


@pytest.mark.parametrize("after", [False, True])
def test_taking_back_that_is_cut_off_is_done_again(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    uri, real = tmp_path / "t", Store.create
    sink, ctx = committed(uri, commits, 1, 2, 3), commits.context()

    def cutting(self: Store, name: str, data: bytes) -> Any:
        if after:
            real(self, name, data)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Store, "create", cutting)
        with pytest.raises(Cut):
            sink.take_back(1, ctx)
    assert ids(uri) == ([1] if after else [1, 2, 3])
    assert sink.take_back(1, ctx) == (0 if after else 2)
    assert ids(uri) == [1]
    assert sink.write(4, commits.objects(rows((4, "a"))), ctx)
    assert ids(uri) == [1, 4]


def test_a_writer_that_was_quicker_is_looked_at(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, real = tmp_path / "t", Store.create
    sink, ctx = committed(uri, commits, 1, 2), commits.context()
    other = committed(uri, commits, name="other")

    def overtaken(self: Store, name: str, data: bytes) -> Any:
        monkeypatch.setattr(Store, "create", real)
        assert other.write(40, commits.objects(rows((40, "a"))), commits.context(name="other"))
        return real(self, name, data)

    monkeypatch.setattr(Store, "create", overtaken)
    assert sink.take_back(1, ctx) == 1
    assert ids(uri) == [1, 40]


def test_an_old_generation_takes_nothing_back(tmp_path: Path, commits: Commits) -> None:
    zombie = committed(tmp_path / "t", commits, 1, 2)
    committed(tmp_path / "t", commits, generation=2)
    with pytest.raises(SinkFencedError):
        zombie.take_back(1, commits.context(1))
    assert ids(tmp_path / "t") == [1, 2]


@pytest.mark.parametrize("how", ["compacted", "rewritten"])
def test_files_that_somebody_changed_are_not_guessed(tmp_path: Path, commits: Commits, how: str) -> None:
    sink = committed(tmp_path / "t", commits, 1, 2, 3)
    table = DeltaTable(str(tmp_path / "t"))
    if how == "compacted":
        table.optimize.compact()
    else:
        table.delete("id = 2 and word = 'a'")
    before = words(tmp_path / "t")
    with pytest.raises(PipelineError, match=r"another writer has compacted, rewritten or deleted [12] of the 2 files"):
        sink.take_back(1, commits.context())
    assert words(tmp_path / "t") == before


def test_a_log_that_was_cut_off_and_tables_that_only_grow_cannot_be_taken_back(
    tmp_path: Path, commits: Commits
) -> None:
    uri = tmp_path / "t"
    sink, ctx = committed(uri, commits, 1, 2, 3), commits.context()
    table = DeltaTable(str(uri))
    table.create_checkpoint()
    for version in range(table.version()):
        (uri / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(PipelineError, match="the log of the table no longer has the commits after epoch 1"):
        sink.take_back(1, ctx)
    assert ids(uri) == [1, 2, 3]
    DeltaTable(str(uri)).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(PipelineError, match="it is append-only"):
        sink.take_back(2, ctx)
