"""Iceberg: an epoch is one snapshot, committed with the epoch's number; the table is read back by PyIceberg."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as T

from epochal.connectors.commit_ledger import SinkFencedError
from epochal.connectors.iceberg import sink as iceberg_sink
from epochal.connectors.iceberg.sink import IcebergSink, IcebergTarget
from epochal.runtime.errors import PipelineError, UnavailableError
from tests.connectors.commits import SCHEMA, Commits, Cut, Described, rows

TABLE = "shop.words"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "warehouse").mkdir()
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    return {"type": "sql", "uri": uri, "warehouse": (tmp_path / "warehouse").as_uri()}


@pytest.fixture
def catalog(properties: dict[str, str]) -> Iterator[Catalog]:
    with load_catalog("default", **properties) as found:
        found.create_namespace("shop")
        yield found


def opened(properties: dict[str, str], commits: Commits, schema: T.StructType = SCHEMA) -> IcebergSink:
    sink = IcebergSink(IcebergTarget(table=TABLE, catalog=properties), commits.storage)
    sink.schema_of([Described(schema)])
    return sink


def words(catalog: Catalog) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["word"]) for row in catalog.load_table(TABLE).scan().to_arrow().to_pylist())


def test_a_commit_that_is_made_again_changes_nothing(
    properties: dict[str, str], catalog: Catalog, commits: Commits
) -> None:
    sink, ctx, objects = opened(properties, commits), commits.context(), commits.objects(rows((1, "a"), (2, None)))
    sink.open(ctx)
    assert sink.write(3, objects, ctx)
    assert not sink.write(3, objects, ctx)
    again, next_ctx = opened(properties, commits), commits.context(2)
    again.open(next_ctx)
    assert not again.write(3, objects, next_ctx)
    assert again.write(4, commits.objects(rows((3, "c")), rows((1, "a"))), next_ctx)
    table = catalog.load_table(TABLE)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 3]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["epochal.epoch"] == "4"
    assert table.properties["epochal.test.job.out.epoch"] == "4"
    assert "commit.retry.num-retries" not in table.properties


def test_a_driver_that_ends_before_or_after_the_commit(
    properties: dict[str, str], catalog: Catalog, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, ctx, objects = opened(properties, commits), commits.context(), commits.objects(rows((1, "a")))
    sink.open(ctx)
    real = Transaction.commit_transaction
    for after in (False, True):

        def cutting(self: Transaction, after: bool = after) -> None:
            if after:
                real(self)
            raise Cut

        monkeypatch.setattr(Transaction, "commit_transaction", cutting)
        with pytest.raises(Cut):
            sink.write(1, objects, ctx)
        assert words(catalog) == ([(1, "a")] if after else [])
    monkeypatch.setattr(Transaction, "commit_transaction", real)
    assert not sink.write(1, objects, ctx)
    assert words(catalog) == [(1, "a")]


@pytest.mark.parametrize("newer", [1, 2], ids=["same generation", "newer generation"])
def test_of_two_drivers_at_once_one_writes(
    properties: dict[str, str], catalog: Catalog, commits: Commits, monkeypatch: pytest.MonkeyPatch, newer: int
) -> None:
    objects = commits.objects(rows((1, "a")))
    slow, ctx = opened(properties, commits), commits.context(1)
    slow.open(ctx)
    real, quick, quick_ctx = Transaction.commit_transaction, opened(properties, commits), commits.context(newer)

    def overtaken(self: Transaction) -> None:
        monkeypatch.setattr(Transaction, "commit_transaction", real)
        quick.open(quick_ctx)
        if newer == 1:
            assert quick.write(1, objects, quick_ctx)
        real(self)

    monkeypatch.setattr(Transaction, "commit_transaction", overtaken)
    if newer == 1:
        assert not slow.write(1, objects, ctx)
    else:
        with pytest.raises(SinkFencedError, match="generation 2 of job test/job has taken over"):
            slow.write(1, objects, ctx)
    assert words(catalog) == ([(1, "a")] if newer == 1 else [])


def test_a_table_with_partitions(properties: dict[str, str], catalog: Catalog, commits: Commits) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "word", StringType(), required=False)
    )
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="word"))
    catalog.create_table(TABLE, schema=schema, partition_spec=spec)
    sink, ctx = opened(properties, commits), commits.context()
    sink.open(ctx)
    sink.write(1, commits.objects(rows((1, "a"), (2, "b"))), ctx)
    assert words(catalog) == [(1, "a"), (2, "b")]


def test_a_job_begun_anew_is_told(properties: dict[str, str], catalog: Catalog, commits: Commits) -> None:
    sink, ctx = opened(properties, commits), commits.context(4)
    sink.open(ctx)
    sink.write(50, commits.objects(rows((1, "a"))), ctx)
    with pytest.raises(PipelineError, match=r"remove the property epochal.test.job.out.epoch of table shop.words"):
        opened(properties, commits).open(commits.context(1, newest_epoch=3))


def test_mistakes_are_told(properties: dict[str, str], catalog: Catalog, commits: Commits) -> None:
    opened(properties, commits).open(commits.context())
    text = T.StructField("word", T.StringType())
    for fields, message in {
        (T.StructField("id", T.StringType()), text): "column id is string, and Iceberg table shop.words has it as long",
        (text, T.StructField("more", T.LongType())): "has no column for more; it has id, word",
    }.items():
        with pytest.raises(PipelineError, match=message):
            opened(properties, commits, T.StructType(list(fields)))
    nowhere = IcebergSink(IcebergTarget(table="nope.words", catalog=properties), commits.storage)
    with pytest.raises(PipelineError, match="the catalog has no namespace 'nope', make it first"):
        nowhere.schema_of([Described(SCHEMA)])
    away = IcebergTarget(table=TABLE, catalog={"type": "rest", "uri": "http://127.0.0.1:1", "token": "s3cret"})
    with pytest.raises(UnavailableError, match="the Iceberg catalog does not answer") as caught:
        IcebergSink(away, commits.storage).schema_of([Described(SCHEMA)])
    assert "s3cret" not in f"{caught.value} {away!r}"


def committed(properties: dict[str, str], commits: Commits, *epochs: int, generation: int = 1) -> IcebergSink:
    """A sink that has committed these epochs."""
    sink, ctx = opened(properties, commits), commits.context(generation)
    sink.open(ctx)
    for epoch in epochs:
        sink.write(epoch, commits.objects(rows((epoch, "a"), (epoch, "b"))), ctx)
    return sink


def ids(catalog: Catalog) -> list[int]:
    return sorted({row[0] for row in words(catalog)})


def test_files_of_later_epochs_are_taken_back_and_no_others(
    properties: dict[str, str], catalog: Catalog, commits: Commits
) -> None:
    committed(properties, commits, 1, 2)
    other, other_ctx = opened(properties, commits), commits.context(name="other")
    other.open(other_ctx)
    other.write(4, commits.objects(rows((40, "of another sink"))), other_ctx)
    committed(properties, commits, 4, 5)
    catalog.load_table(TABLE).append(pa.table({"id": [99], "word": ["of somebody else"]}))
    sink, ctx = committed(properties, commits, generation=2), commits.context(2)
    assert sink.take_back(3, ctx) == 2
    assert ids(catalog) == [1, 2, 40, 99]
    assert sink.take_back(3, ctx) == 0
    # It goes on with numbers of its own, and back once more, past what was taken back before.
    sink = committed(properties, commits, 6, 7, generation=3)
    assert ids(catalog) == [1, 2, 6, 7, 40, 99]
    assert sink.take_back(1, commits.context(3)) == 3
    assert ids(catalog) == [1, 40, 99]
    assert other.take_back(0, other_ctx) == 1
    assert ids(catalog) == [1, 99]


@pytest.mark.parametrize("after", [False, True])
def test_taking_back_that_is_cut_off_is_done_again(
    properties: dict[str, str], catalog: Catalog, commits: Commits, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    sink, ctx, real = committed(properties, commits, 1, 2, 3), commits.context(), Transaction.commit_transaction

    def cutting(self: Transaction) -> None:
        if after:
            real(self)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit_transaction", cutting)
        with pytest.raises(Cut):
            sink.take_back(1, ctx)
    assert ids(catalog) == ([1] if after else [1, 2, 3])
    assert sink.take_back(1, ctx) == (0 if after else 2)
    assert ids(catalog) == [1]
    assert sink.write(4, commits.objects(rows((4, "a"))), ctx)


def test_an_old_generation_takes_nothing_back(properties: dict[str, str], catalog: Catalog, commits: Commits) -> None:
    zombie = committed(properties, commits, 1, 2)
    committed(properties, commits, generation=2)
    with pytest.raises(SinkFencedError):
        zombie.take_back(1, commits.context(1))
    assert ids(catalog) == [1, 2]


def test_files_that_somebody_rewrote_are_not_guessed(
    properties: dict[str, str], catalog: Catalog, commits: Commits
) -> None:
    sink = committed(properties, commits, 1, 2, 3)
    catalog.load_table(TABLE).delete("id = 2 and word = 'a'")
    before = words(catalog)
    with pytest.raises(PipelineError, match=r"epochs 2, 3 added 2 files to Iceberg table shop\.words, and 1 of them"):
        sink.take_back(1, commits.context())
    assert words(catalog) == before


def test_snapshots_that_expired_cannot_be_taken_back(
    properties: dict[str, str], catalog: Catalog, commits: Commits
) -> None:
    sink, ctx = committed(properties, commits, 1, 2, 3, 4), commits.context()
    table = catalog.load_table(TABLE)
    oldest = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)[:3]
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in oldest]).commit()
    with pytest.raises(PipelineError, match="snapshots that say which files they added have expired"):
        sink.take_back(1, ctx)
    assert sink.take_back(3, ctx) == 1
    assert ids(catalog) == [1, 2, 3]


@pytest.mark.parametrize("sinks", [1, 2])
def test_epochs_of_a_version_before_this_one_are_taken_back_if_it_is_clear_whose_they_are(
    properties: dict[str, str], catalog: Catalog, commits: Commits, monkeypatch: pytest.MonkeyPatch, sinks: int
) -> None:
    """Their snapshots do not name the sink."""
    with monkeypatch.context() as patch:
        patch.setattr(
            iceberg_sink, "_told", lambda ctx, epoch: {"epochal.job": ctx.job.name, "epochal.epoch": str(epoch)}
        )
        committed(properties, commits, 1, 2)
        if sinks == 2:
            opened(properties, commits).open(commits.context(name="other"))
    sink, ctx = committed(properties, commits, 3, generation=2), commits.context(2)
    if sinks == 2:
        with pytest.raises(PipelineError, match="did not note which snapshot is whose"):
            sink.take_back(1, ctx)
        assert sink.take_back(2, ctx) == 1
    else:
        assert sink.take_back(1, ctx) == 2
        assert ids(catalog) == [1]
