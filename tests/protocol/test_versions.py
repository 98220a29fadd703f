"""What another release has written is no damage. What it adds is passed over, unless it says that it must be known:
then it is refused with the release that is needed, and nothing that it names is deleted, overwritten or passed over
for something older."""

import hashlib
import json
from typing import Any

import pytest
from obstore.store import MemoryStore

from epochal.protocol.cleanup import NotCleaned, clean
from epochal.protocol.documents import Document, Seal, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import DocumentError, NewerDocumentError
from epochal.protocol.publish import EpochTaken, GivenUp, give_up, publish
from epochal.protocol.resolve import Found, read_epoch, resolve, uncommitted_epoch
from epochal.protocol.savepoints import NotPinned, Pinned, pin
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import Store
from epochal.version import __version__
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch, state_name

KINDS = ("a newer version", "an unknown need", "an unknown value")


def by_newer(document: Document, how: str = "an unknown need", release: str = "9.9.0") -> bytes:
    """The document as a newer release may write it."""
    plain = json.loads(encode(document))
    body: dict[str, Any] = plain["body"]
    body["colour"] = "blue"
    if how == "an unknown value":
        body["operators"]["sums"]["tables"]["totals"]["kind"] = "Sketch"
    text = json.dumps(body, separators=(",", ":"))
    needs = ["colour"] if how == "an unknown need" else []
    digest = hashlib.sha256(("\n".join([release, *needs]) + text).encode()).hexdigest()
    version = 3 if how == "a newer version" else 2 if needs else 1
    head = f'"kind":"{plain["kind"]}","version":{version},"release":"{release}"'
    head += f',"needs":{json.dumps(needs)}' if needs else ',"hint":"of no matter"'
    return f'{{{head},"sha256":"{digest}","body":{text}}}\n'.encode()


def stored(*epochs: int, newer: int = 0, how: str = "an unknown need") -> Store:
    store = Store(MemoryStore(), uri="memory:///")
    for epoch in epochs:
        put_epoch(store, manifest(epoch))
    if newer:
        store.create(state_name(newer), b"rows")
        store.create(PATHS.manifest(Epoch(newer)), by_newer(manifest(newer), how))
    return store


def begin(store: Store, generation: int, *, issued: int, back_to: int | None = None) -> object:
    record = generation_record(generation, back_to=back_to)
    return start_generation(store, PATHS, StartRequest(record=record, issued=Epoch(issued)))


@pytest.mark.parametrize("how", KINDS)
def test_an_older_epoch_is_not_restored_in_its_place(how: str) -> None:
    store = stored(1, newer=2, how=how)
    with pytest.raises(NewerDocumentError) as caught:
        begin(store, 2, issued=2)
    assert not isinstance(caught.value, DocumentError), "whoever passes over damage would pass over it"
    said = str(caught.value)
    assert said.startswith(PATHS.manifest(Epoch(2)))
    assert f"written by Epochal 9.9.0 and cannot be read by Epochal {__version__}, which knows version 2" in said
    assert said.endswith("use Epochal 9.9.0 or a newer one")
    assert ("(version 3)" in said) == (how == "a newer version")
    assert ("(it needs colour)" in said) == (how == "an unknown need")


def test_a_field_that_need_not_be_known_is_passed_over() -> None:
    """An image is rolled back: what the newer release has added means nothing to this one, and it says so."""
    store = stored(1, newer=2, how="an unknown field")
    store.create(PATHS.generation(Generation(1)), by_newer(generation_record(1), "an unknown field"))
    found = begin(store, 2, issued=2)
    assert isinstance(found, Found)
    assert found.manifest == manifest(2)
    assert isinstance(pin(store, PATHS, "kept", Epoch(2)), Pinned)
    assert not isinstance(clean(store, PATHS, Epoch(2)), NotCleaned)


@pytest.mark.parametrize(("damage", "into"), [(b'"needs"', b'"nedes"'), (b'["colour"]', b'["colous"]')])
def test_a_need_that_is_lost_is_damage(damage: bytes, into: bytes) -> None:
    store = stored(1)
    store.create(PATHS.manifest(Epoch(2)), by_newer(manifest(2)).replace(damage, into))
    with pytest.raises(DocumentError):
        read_epoch(store, PATHS, Epoch(2))


def test_what_needs_something_is_refused_by_releases_that_know_no_needs() -> None:
    plain = json.loads(encode(manifest(1)))
    assert plain["version"] == 1
    assert "needs" not in plain
    assert json.loads(encode(manifest(1), needs=("colour",)))["version"] == 2


def test_damage_is_still_damage() -> None:
    store = stored(1)
    store.create(PATHS.manifest(Epoch(2)), by_newer(manifest(2)).replace(b"blue", b"bluf"))
    found = resolve(store, PATHS)
    assert isinstance(found, Found)
    assert found.manifest.epoch == 1


def test_one_can_go_back_to_an_epoch_that_this_release_wrote() -> None:
    store = stored(1, newer=2)
    assert isinstance(begin(store, 2, issued=2, back_to=1), Found)
    again = begin(store, 3, issued=2)
    assert isinstance(again, Found)
    assert again.manifest.epoch == 1, "the newer one was left behind, whoever wrote it"
    with pytest.raises(NewerDocumentError):
        begin(store, 4, issued=2, back_to=2)


def test_a_seal_of_a_newer_release_says_what_every_seal_does() -> None:
    store = stored(1)
    seal = Seal(epoch=Epoch(2), generation=Generation(2), claim="newer")
    store.create(PATHS.manifest(Epoch(2)), by_newer(seal))
    found = resolve(store, PATHS)
    assert isinstance(found, Found)
    assert found.manifest.epoch == 1


def test_a_generation_of_a_newer_release_may_have_gone_back() -> None:
    store = stored(1)
    store.create(PATHS.generation(Generation(2)), by_newer(generation_record(2)))
    with pytest.raises(NewerDocumentError, match=r"GenerationRecord was written by Epochal 9\.9\.0"):
        resolve(store, PATHS)


@pytest.mark.parametrize("how", KINDS)
def test_a_cleanup_deletes_nothing_that_it_cannot_know_to_be_garbage(how: str) -> None:
    store = stored(1, 2, newer=3, how=how)
    before = set(store.list_names(PATHS.prefix))
    refused = clean(store, PATHS, Epoch(2))
    assert isinstance(refused, NotCleaned)
    assert "Epochal 9.9.0" in refused.message
    assert set(store.list_names(PATHS.prefix)) == before


def test_a_savepoint_of_a_newer_release_keeps_what_it_names() -> None:
    store = stored(1, 2)
    store.create(PATHS.savepoint("kept"), by_newer(manifest(1)))
    refused = clean(store, PATHS, Epoch(2))
    assert isinstance(refused, NotCleaned)
    assert "delete it to go on" not in refused.message, "it is as good as ever to the release that wrote it"


def test_its_number_is_taken_and_nothing_is_written_over_it() -> None:
    store = stored(1, newer=2)
    before = store.get(PATHS.manifest(Epoch(2)))
    assert isinstance(publish(store, PATHS, manifest(2, claim="other")), EpochTaken)
    assert not isinstance(give_up(store, PATHS, manifest(2, claim="other")), GivenUp)
    assert store.get(PATHS.manifest(Epoch(2))) == before


def test_whether_it_is_committed_shows_without_reading_it() -> None:
    store = stored(1, newer=2)
    assert uncommitted_epoch(store, PATHS) == 2
    store.create(PATHS.committed(Epoch(2)), b"whatever")
    assert uncommitted_epoch(store, PATHS) is None


def test_a_savepoint_is_the_same_in_the_bytes_of_another_release() -> None:
    store = stored(1, newer=2)
    plain = json.loads(encode(manifest(1)))
    body = json.dumps(plain["body"], indent=1)
    older = {"kind": "Manifest", "version": 1, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    store.create(PATHS.savepoint("kept"), (json.dumps(older)[:-1] + f', "body": {body}}}\n').encode())
    assert isinstance(pin(store, PATHS, "kept", Epoch(1)), Pinned)
    refused = pin(store, PATHS, "newer", Epoch(2))
    assert isinstance(refused, NotPinned)
    assert "Epochal 9.9.0" in refused.message
