"""Savepoints: kept until their owner deletes them."""

import pytest

from epochal.protocol.documents import Manifest, Seal, decode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import InvalidNameError
from epochal.protocol.publish import seal
from epochal.protocol.savepoints import NotPinned, Pinned, list_savepoints, pin, unpin
from epochal.protocol.store import Created, Exists, Store, open_store
from tests.protocol.making import PATHS, manifest, put_epoch


@pytest.fixture
def store() -> Store:
    store = open_store("memory:///")
    put_epoch(store, manifest(1))
    put_epoch(store, manifest(2))
    return store


def test_a_savepoint_is_a_copy_of_the_manifest(store: Store) -> None:
    assert pin(store, PATHS, "before-upgrade", Epoch(1)) == Pinned("before-upgrade", Epoch(1))
    assert decode("name", store.get(PATHS.savepoint("before-upgrade")), Manifest) == manifest(1)
    assert list_savepoints(store, PATHS) == ["before-upgrade"]


def test_the_same_savepoint_again_is_a_success(store: Store) -> None:
    pin(store, PATHS, "a", Epoch(1))
    assert pin(store, PATHS, "a", Epoch(1)) == Pinned("a", Epoch(1))


def test_a_savepoint_is_not_moved_to_another_epoch(store: Store) -> None:
    pin(store, PATHS, "a", Epoch(1))
    refused = pin(store, PATHS, "a", Epoch(2))
    assert isinstance(refused, NotPinned)
    assert "delete it first, or use another name" in refused.message
    assert decode("name", store.get(PATHS.savepoint("a")), Manifest).epoch == 1


def test_what_does_not_exist_cannot_be_kept(store: Store) -> None:
    seal(store, PATHS, Seal(epoch=Epoch(3), generation=Generation(2), claim="b"))
    for epoch, message in ((3, "never completed"), (9, "cannot be kept")):
        refused = pin(store, PATHS, "a", Epoch(epoch))
        assert isinstance(refused, NotPinned)
        assert message in refused.message
    assert list_savepoints(store, PATHS) == []


def test_a_savepoint_that_comes_too_late_is_taken_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create = store.create

    def create_after_cleanup(name: str, data: bytes) -> Created | Exists:
        store.delete([PATHS.manifest(Epoch(1))])
        return create(name, data)

    monkeypatch.setattr(store, "create", create_after_cleanup)
    refused = pin(store, PATHS, "a", Epoch(1))
    assert refused == NotPinned("epoch 1 was cleaned up meanwhile")
    assert list_savepoints(store, PATHS) == []


def test_deleting_a_savepoint_twice_is_no_error(store: Store) -> None:
    pin(store, PATHS, "a", Epoch(1))
    unpin(store, PATHS, "a")
    unpin(store, PATHS, "a")
    assert list_savepoints(store, PATHS) == []


def test_a_hostile_name_is_refused(store: Store) -> None:
    with pytest.raises(InvalidNameError, match=r"savepoint name '\.\./x' is not allowed"):
        pin(store, PATHS, "../x", Epoch(1))
