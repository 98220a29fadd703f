"""Cleanup: takes what only epochs below min_epoch need, and refuses where it cannot know."""

import pytest

from epochal.protocol.cleanup import Cleaned, NotCleaned, clean
from epochal.protocol.documents import CommitRecord, DamageRecord, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.publish import claim_generation, record_commit, record_damage
from epochal.protocol.resolve import Found, resolve
from epochal.protocol.savepoints import pin, unpin
from epochal.protocol.store import PAGE, Store, open_store
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch, state_name


@pytest.fixture
def store() -> Store:
    """Five epochs, each with a state object of its own; 3 to 5 need that of epoch 1, too."""
    store = open_store("memory:///")
    claim_generation(store, PATHS, generation_record(1))
    for epoch in range(1, 6):
        objects = (state_name(epoch),) if epoch < 3 else (state_name(1), state_name(epoch))
        put_epoch(store, manifest(epoch, objects=objects))
        record_commit(store, PATHS, CommitRecord(epoch=Epoch(epoch), generation=Generation(1)))
    return store


def left(store: Store, prefix: str) -> list[str]:
    return store.list_names(prefix)


def test_what_only_older_epochs_need_is_deleted(store: Store) -> None:
    cleaned = clean(store, PATHS, Epoch(4))
    assert cleaned == Cleaned(min_epoch=Epoch(4), epochs=3, objects=8, bytes=8)
    assert left(store, PATHS.epochs) == [
        name for epoch in (4, 5) for name in (PATHS.committed(Epoch(epoch)), PATHS.manifest(Epoch(epoch)))
    ]
    assert left(store, PATHS.state) == [state_name(1), state_name(4), state_name(5)]


def test_what_was_noted_of_damage_goes_with_its_epoch(store: Store) -> None:
    for epoch in (3, 4):
        record = DamageRecord(epoch=Epoch(epoch), generation=Generation(1), object="x", problem="is missing")
        record_damage(store, PATHS, record)
    clean(store, PATHS, Epoch(4))
    assert [name for name in left(store, PATHS.epochs) if "damaged" in name] == [PATHS.damaged(Epoch(4))]


def test_cleaning_again_changes_nothing(store: Store) -> None:
    clean(store, PATHS, Epoch(4))
    before = left(store, "")
    assert clean(store, PATHS, Epoch(4)) == Cleaned(min_epoch=Epoch(4), epochs=0, objects=0, bytes=0)
    assert left(store, "") == before


def test_the_newest_epoch_can_be_restored_afterwards(store: Store) -> None:
    clean(store, PATHS, Epoch(5))
    found = resolve(store, PATHS)
    assert isinstance(found, Found)
    assert found.manifest.objects() <= set(left(store, PATHS.state))


def test_what_an_unpublished_epoch_has_written_stays(store: Store) -> None:
    store.create(state_name(6), b"in the making")
    clean(store, PATHS, Epoch(5))
    assert state_name(6) in left(store, PATHS.state)


def test_what_a_failed_epoch_left_goes_once_it_is_below_min_epoch(store: Store) -> None:
    store.create(state_name(3, part=7), b"of a try that failed")
    clean(store, PATHS, Epoch(3))
    assert state_name(3, part=7) in left(store, PATHS.state)
    clean(store, PATHS, Epoch(4))
    assert state_name(3, part=7) not in left(store, PATHS.state)


def test_a_savepoint_keeps_what_it_needs_until_it_is_deleted(store: Store) -> None:
    pin(store, PATHS, "keep", Epoch(2))
    clean(store, PATHS, Epoch(5))
    assert state_name(2) in left(store, PATHS.state)
    unpin(store, PATHS, "keep")
    clean(store, PATHS, Epoch(5))
    assert state_name(2) not in left(store, PATHS.state)


def test_what_is_not_ours_stays_and_is_told(store: Store) -> None:
    store.create(f"{PATHS.state}notes.txt", b"")
    cleaned = clean(store, PATHS, Epoch(5))
    assert isinstance(cleaned, Cleaned)
    assert cleaned.unknown == (f"{PATHS.state}notes.txt",)
    assert f"{PATHS.state}notes.txt" in left(store, "")


def test_another_jobs_objects_are_not_touched(store: Store) -> None:
    store.create("team/orders-2/epochs/0000000001/manifest.json", b"")
    clean(store, PATHS, Epoch(5))
    assert store.list_names("team/orders-2/") == ["team/orders-2/epochs/0000000001/manifest.json"]


@pytest.mark.parametrize("what", ["epoch", "savepoint"])
def test_nothing_is_deleted_if_something_kept_cannot_be_read(store: Store, what: str) -> None:
    if what == "epoch":
        store.create(PATHS.manifest(Epoch(6)), b"{")
    else:
        store.create(PATHS.savepoint("broken"), encode(manifest(2))[:50])
    before = left(store, "")
    refused = clean(store, PATHS, Epoch(5))
    assert isinstance(refused, NotCleaned)
    assert "cannot be read, so what it needs is not known" in refused.message
    assert left(store, "") == before


def test_the_last_epoch_is_never_deleted(store: Store) -> None:
    before = left(store, "")
    refused = clean(store, PATHS, Epoch(6))
    assert isinstance(refused, NotCleaned)
    assert "would lose all state" in refused.message
    assert left(store, "") == before


def test_records_of_generations_that_no_epoch_is_of_go(store: Store) -> None:
    claim_generation(store, PATHS, generation_record(2))
    put_epoch(store, manifest(6, generation=2))
    clean(store, PATHS, Epoch(5))
    assert len(left(store, PATHS.generations)) == 2
    clean(store, PATHS, Epoch(6))
    assert left(store, PATHS.generations) == [PATHS.generation(Generation(2))]


def test_manifests_go_before_what_they_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    delete = store.delete

    def noted(names: list[str]) -> None:
        order.extend(names)
        delete(names)

    monkeypatch.setattr(store, "delete", noted)
    clean(store, PATHS, Epoch(4))
    kinds = [name.removeprefix(PATHS.prefix).split("/")[0] for name in order]
    assert kinds == ["epochs"] * 6 + ["state"] * 2
    assert order[:3] == [PATHS.manifest(Epoch(epoch)) for epoch in (1, 2, 3)]


def test_objects_are_deleted_a_page_at_a_time_and_progress_is_told(store: Store) -> None:
    for part in range(1, 2 * PAGE + 1):
        store.create(state_name(1, part=part), b"")
    told: list[tuple[int, int]] = []
    store.requests.clear()
    cleaned = clean(store, PATHS, Epoch(4), on_progress=lambda deleted, total: told.append((deleted, total)))
    assert isinstance(cleaned, Cleaned)
    assert told[-1] == (cleaned.objects, cleaned.objects)
    assert store.requests["delete"] <= 6
