"""Parquet files: copied by the store where it can, through the driver where it cannot, and never over another's."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from epochal.connectors.parquet.sink import OWNER, ParquetSink
from epochal.protocol.control import StorageConfig
from epochal.protocol.errors import StoreRefusedError
from epochal.protocol.store import Store
from epochal.runtime.errors import OutsideError, PipelineError
from epochal.runtime.state.persistence import store_of
from tests.connectors.commits import Commits, Cut, rows
from tests.support.s3 import S3Bucket

FIRST, SECOND = (f"epoch-0000000007-{number:05d}.parquet" for number in range(2))


class Place:
    """Where epochs are, and where results go."""

    def __init__(self, commits: Commits, output: StorageConfig) -> None:
        self.commits = commits
        self.output = output
        self.objects = commits.objects(rows((1, "a")), rows((2, "b")))
        self.sink = ParquetSink(output, commits.storage)

    def commit(self) -> None:
        self.sink.commit(7, None, self.objects, self.commits.context())

    def holds(self) -> dict[str, bytes]:
        store = store_of(self.output)
        return {name: store.get(name) for name in store.list_names("")}

    def pending(self) -> list[bytes]:
        return [store_of(self.commits.storage).get(name) for name in self.objects]


Make = Callable[[str], Place]


@pytest.fixture
def in_bucket(s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> Make:
    server = s3_bucket.server
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    other = server.make_bucket(f"{s3_bucket.name}-results")

    def make(where: str) -> Place:
        bucket = other.name if where == "another bucket" else s3_bucket.name

        def storage(uri: str) -> StorageConfig:
            return StorageConfig(uri=uri, endpoint=server.endpoint, region=server.region)

        commits = Commits(storage(f"s3://{s3_bucket.name}/some/jobs"))
        return Place(commits, storage(f"s3://{bucket}" + ("" if where == "its root" else "/results/of/it")))

    return make


def test_later_epochs_are_taken_back_and_nothing_else(on_disk: Place) -> None:
    ctx, store = on_disk.commits.context(2), store_of(on_disk.output)
    on_disk.sink.open(ctx)
    for epoch in (7, 9, 12, 1_000_000_000):
        on_disk.sink.commit(epoch, None, on_disk.objects, ctx)
    others = ["epoch-0000000099-00000.parquet.crc", "notes.txt", "old/epoch-0000000099-00000.parquet"]
    for name in others:
        store.create(name, b"of somebody else")
    assert on_disk.sink.take_back(9, ctx) == 2
    assert on_disk.sink.take_back(9, ctx) == 0
    kept = {name for name in on_disk.holds() if name.startswith("epoch-") and name.endswith(".parquet")}
    assert kept == {f"epoch-{epoch:010d}-{part:05d}.parquet" for epoch in (7, 9) for part in range(2)}
    assert set(others) <= set(on_disk.holds())
    # The same epochs, committed again by numbers of their own, are there once.
    on_disk.sink.commit(1_000_000_001, None, on_disk.objects, ctx)
    assert on_disk.sink.take_back(0, ctx) == 3
    assert set(on_disk.holds()) == {OWNER, *others}


def test_taking_back_that_is_cut_off_is_done_again(on_disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = on_disk.commits.context()
    for epoch in range(1, 6):
        on_disk.sink.commit(epoch, None, on_disk.objects, ctx)
    real = Store.delete

    def cut(self: Store, names: Iterable[str]) -> None:
        real(self, list(names)[:3])
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", cut)
        with pytest.raises(Cut):
            on_disk.sink.take_back(2, ctx)
    assert sorted(on_disk.holds())[-1] == "epoch-0000000004-00000.parquet", "the newest went first"
    assert on_disk.sink.take_back(2, ctx) == 2
    assert {int(name[6:16]) for name in on_disk.holds()} == {1, 2}


def test_a_place_has_one_owner(on_disk: Place) -> None:
    """Otherwise one job could take back the other's files: their names tell nothing but the epoch."""
    for generation in (1, 2):
        on_disk.sink.open(on_disk.commits.context(generation))
    with pytest.raises(PipelineError, match=r'its _epochal.json says \{"job":"test/job","operator":"out"\}'):
        on_disk.sink.open(on_disk.commits.context(name="another"))
    with pytest.raises(PipelineError, match="Give this sink its own directory, or remove"):
        on_disk.sink.open(on_disk.commits.context(job="test/other"))


@pytest.fixture
def on_disk(tmp_path: Path) -> Place:
    return Place(Commits(tmp_path / "store"), StorageConfig(uri=(tmp_path / "out").as_uri()))


@pytest.mark.s3
@pytest.mark.parametrize("where", ["the same bucket", "another bucket"])
def test_results_are_the_pending_objects_however_often_they_are_committed(in_bucket: Make, where: str) -> None:
    place = in_bucket(where)
    for _ in range(2):
        place.commit()
        assert place.holds() == dict(zip((FIRST, SECOND), place.pending(), strict=True))


@pytest.mark.s3
@pytest.mark.parametrize("where", ["the same bucket", "another bucket", "its root"])
def test_later_epochs_are_taken_back_in_a_bucket(in_bucket: Make, where: str) -> None:
    place = in_bucket(where)
    ctx = place.commits.context()
    place.sink.open(ctx)
    pending = place.pending()
    for epoch in (7, 8, 9):
        place.sink.commit(epoch, None, place.objects, ctx)
    assert [place.sink.take_back(7, ctx) for _ in range(2)] == [2, 0]
    files = {name for name in place.holds() if name.startswith("epoch-")}
    assert files == {FIRST, SECOND}
    assert place.pending() == pending, "the job's own objects stay"


@pytest.mark.s3
def test_within_a_bucket_no_result_comes_through_the_driver(in_bucket: Make) -> None:
    place = in_bucket("the same bucket")
    store, results = store_of(place.commits.storage), store_of(place.output)
    place.commit()
    assert store.requests["get"] == results.requests["create"] == 0


@pytest.mark.s3
def test_results_may_go_to_the_root_of_the_bucket(in_bucket: Make) -> None:
    place = in_bucket("its root")
    place.commit()
    assert store_of(place.output).get(FIRST) == place.pending()[0]


@pytest.mark.s3
def test_where_the_store_does_not_copy_results_go_through_the_driver(
    in_bucket: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(self: Store, name: str, new_name: str) -> None:
        asked.append(name)
        raise StoreRefusedError(self.uri, f"refused to copy {name} to {new_name}: NotImplemented")

    monkeypatch.setattr(Store, "copy", refuse)
    place = in_bucket("the same bucket")
    for _ in range(3):
        place.commit()
    assert place.holds() == dict(zip((FIRST, SECOND), place.pending(), strict=True))
    assert 1 <= len(asked) <= 2, "asked again of a store that does not copy"


@pytest.mark.s3
def test_a_file_of_somebody_else_is_not_overwritten_in_a_bucket(in_bucket: Make) -> None:
    place = in_bucket("the same bucket")
    store_of(place.output).create(FIRST, b"of somebody else")
    with pytest.raises(OutsideError, match=rf"{FIRST} with other content.*Give this job a place of its own"):
        place.commit()
    assert store_of(place.output).get(FIRST) == b"of somebody else"


def test_a_file_of_somebody_else_is_not_overwritten_on_disk(on_disk: Place) -> None:
    same_size = b"x" * len(on_disk.pending()[0])
    store_of(on_disk.output).create(FIRST, same_size)
    with pytest.raises(OutsideError, match=rf"{FIRST} with other content.*Give this job a place of its own"):
        on_disk.commit()
    assert store_of(on_disk.output).get(FIRST) == same_size


def test_on_disk_results_may_be_committed_again(on_disk: Place) -> None:
    for _ in range(2):
        on_disk.commit()
        assert on_disk.holds() == dict(zip((FIRST, SECOND), on_disk.pending(), strict=True))


def test_what_was_copied_to_another_disk_may_be_committed_again(
    on_disk: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", elsewhere)
    for _ in range(2):
        on_disk.commit()
    assert on_disk.holds() == dict(zip((FIRST, SECOND), on_disk.pending(), strict=True))
