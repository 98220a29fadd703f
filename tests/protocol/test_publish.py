"""How an epoch becomes real: one winner, and nothing from a generation that has been replaced."""

from collections.abc import Callable

import msgspec
import pytest

from epochal.protocol.documents import CommitRecord, Manifest, Seal, decode, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import InvalidDocumentError
from epochal.protocol.publish import (
    EpochTaken,
    Fenced,
    Published,
    claim_generation,
    newer_generation,
    publish,
    record_commit,
    seal,
)
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import Created, Exists, Store, open_store
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch


@pytest.fixture
def store() -> Store:
    store = open_store("memory:///")
    assert claim_generation(store, PATHS, generation_record(1)) is None
    return store


def a_seal(epoch: int, *, generation: int = 2) -> Seal:
    return Seal(epoch=Epoch(epoch), generation=Generation(generation), claim="driver-b")


def test_an_epoch_is_published(store: Store) -> None:
    assert publish(store, PATHS, manifest(1)) == Published(Epoch(1))
    name = PATHS.manifest(Epoch(1))
    assert decode(name, store.get(name), Manifest) == manifest(1)


def test_publishing_the_same_again_has_the_same_answer(store: Store) -> None:
    publish(store, PATHS, manifest(1))
    assert publish(store, PATHS, manifest(1)) == Published(Epoch(1))


def test_publishing_takes_three_requests(store: Store) -> None:
    store.requests.clear()
    publish(store, PATHS, manifest(1))
    assert store.requests == {"list": 2, "create": 1}


def test_a_stale_generation_publishes_nothing(store: Store) -> None:
    claim_generation(store, PATHS, generation_record(2, claim="driver-b"))
    outcome = publish(store, PATHS, manifest(1))
    assert outcome == Fenced(Generation(2), "generation 2 has taken over from generation 1")
    assert store.list_names(PATHS.epochs) == []


def test_an_epoch_sealed_by_a_newer_generation_is_fenced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zombie looked at the fence before the newer generation was there; the seal is what stops it."""
    before_create(store, monkeypatch, lambda: seal(store, PATHS, a_seal(1)))
    assert publish(store, PATHS, manifest(1)) == Fenced(Generation(2), "generation 2 has sealed epoch 1")


def test_a_generation_that_began_while_publishing_is_noticed_after_the_put(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_create(store, monkeypatch, lambda: claim_generation(store, PATHS, generation_record(2, claim="b")))
    assert isinstance(publish(store, PATHS, manifest(1)), Fenced)


def test_another_driver_of_the_same_generation_is_fenced_by_its_claim(store: Store) -> None:
    publish(store, PATHS, manifest(1, claim="driver-b"))
    assert publish(store, PATHS, manifest(1)) == Fenced(Generation(1), "generation 1 has published epoch 1")


def test_a_number_that_an_older_generation_used_is_taken(store: Store) -> None:
    publish(store, PATHS, manifest(1))
    claim_generation(store, PATHS, generation_record(2))
    taken = publish(store, PATHS, manifest(1, generation=2))
    assert isinstance(taken, EpochTaken)
    assert "published by generation 1 already" in taken.message


def test_a_number_that_holds_rubbish_is_taken(store: Store) -> None:
    store.create(PATHS.manifest(Epoch(1)), b"{")
    taken = publish(store, PATHS, manifest(1))
    assert isinstance(taken, EpochTaken)
    assert "cannot be read" in taken.message


def test_what_could_not_be_read_back_is_not_published(store: Store) -> None:
    with pytest.raises(InvalidDocumentError):
        publish(store, PATHS, msgspec.structs.replace(manifest(1), timestamp=-1))
    assert store.list_names(PATHS.epochs) == []


def test_a_generation_has_one_driver(store: Store) -> None:
    second = claim_generation(store, PATHS, generation_record(1, claim="driver-b"))
    assert second == Fenced(Generation(1), "generation 1 has a driver already")


def test_claiming_the_same_again_is_a_success(store: Store) -> None:
    assert claim_generation(store, PATHS, generation_record(1)) is None


def test_an_older_generation_cannot_be_claimed_any_more(store: Store) -> None:
    claim_generation(store, PATHS, generation_record(3))
    assert isinstance(claim_generation(store, PATHS, generation_record(2, claim="late")), Fenced)
    assert newer_generation(store, PATHS, Generation(3)) is None


def test_a_seal_does_not_replace_a_manifest(store: Store) -> None:
    publish(store, PATHS, manifest(1))
    assert not seal(store, PATHS, a_seal(1))
    assert decode("name", store.get(PATHS.manifest(Epoch(1))), Manifest) == manifest(1)


def test_sealing_twice_is_harmless(store: Store) -> None:
    assert seal(store, PATHS, a_seal(1))
    assert seal(store, PATHS, a_seal(1, generation=3))


def test_whoever_notes_a_commit_second_finds_it_done(store: Store) -> None:
    for generation in (1, 2):
        record_commit(store, PATHS, CommitRecord(epoch=Epoch(1), generation=Generation(generation)))
    noted = decode("name", store.get(PATHS.committed(Epoch(1))), CommitRecord)
    assert noted.generation == 1


def test_a_new_generation_seals_what_was_given_out_and_is_not_there(store: Store) -> None:
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    request = StartRequest(record=generation_record(2, claim="b"), known=Epoch(1), issued=Epoch(4))
    start_generation(store, PATHS, request)
    for epoch in (3, 4):
        assert decode("name", store.get(PATHS.manifest(Epoch(epoch))), Seal).generation == 2
    assert isinstance(publish(store, PATHS, manifest(3)), Fenced)


def before_create(store: Store, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let ``act`` happen once, right before the next manifest is put."""
    create = store.create
    acted: list[bool] = []

    def late_create(name: str, data: bytes) -> Created | Exists:
        if not acted and data == encode(manifest(1)):
            acted.append(True)
            act()
        return create(name, data)

    monkeypatch.setattr(store, "create", late_create)
