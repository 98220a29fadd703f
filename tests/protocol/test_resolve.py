"""Which epoch is restored: the newest good one on the job's line; never empty by accident."""

import pytest

from epochal.protocol.documents import CommitRecord, DamageRecord, Seal, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import StoreUnreachableError
from epochal.protocol.publish import claim_generation, record_commit, record_damage, seal
from epochal.protocol.resolve import (
    Found,
    NothingToRestore,
    StartEmpty,
    newest_epoch_number,
    resolve,
    resolve_epoch,
    resolve_savepoint,
)
from epochal.protocol.savepoints import pin
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import RetryPolicy, Store, StoreOptions, open_store
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch, state_name


@pytest.fixture
def store() -> Store:
    return open_store("memory:///")


def with_epochs(store: Store, *epochs: int) -> None:
    for epoch in epochs:
        put_epoch(store, manifest(epoch))


def damage(store: Store, epoch: int) -> None:
    name = PATHS.manifest(Epoch(epoch))
    data = store.get(name)
    store.delete([name])
    store.create(name, data[: len(data) // 2])


def restored_epoch(outcome: object) -> int:
    assert isinstance(outcome, Found), outcome
    return outcome.manifest.epoch


def test_a_new_job_starts_empty(store: Store) -> None:
    assert resolve(store, PATHS) == StartEmpty("the job has no epoch yet")


def test_the_newest_epoch_is_restored(store: Store) -> None:
    with_epochs(store, 1, 2, 3)
    assert restored_epoch(resolve(store, PATHS)) == 3


@pytest.mark.parametrize("known", [1, 2, 3])
def test_an_epoch_newer_than_the_controller_knows_is_found(store: Store, known: int) -> None:
    with_epochs(store, 1, 2, 3)
    assert restored_epoch(resolve(store, PATHS, known=Epoch(known))) == 3


def test_with_the_newest_epoch_known_it_takes_three_requests(store: Store) -> None:
    with_epochs(store, *range(1, 50))
    store.requests.clear()
    resolve(store, PATHS, known=Epoch(49))
    assert store.requests == {"list": 2, "get": 1}


def test_sinks_are_committed_first_unless_that_is_on_record(store: Store) -> None:
    with_epochs(store, 1)
    found = resolve(store, PATHS)
    assert isinstance(found, Found)
    assert found.needs_commit
    record_commit(store, PATHS, CommitRecord(epoch=Epoch(1), generation=Generation(1)))
    found = resolve(store, PATHS)
    assert isinstance(found, Found)
    assert not found.needs_commit


@pytest.mark.parametrize("known", [0, 2, 3])
def test_an_unreadable_epoch_is_skipped_and_told(store: Store, known: int) -> None:
    with_epochs(store, 1, 2, 3)
    damage(store, 3)
    found = resolve(store, PATHS, known=Epoch(known))
    assert restored_epoch(found) == 2
    assert [skip.epoch for skip in found.skipped] == [3]
    assert "in the middle of its document" in found.skipped[0].why


def test_a_sealed_epoch_is_passed_over_without_a_word(store: Store) -> None:
    with_epochs(store, 1)
    seal(store, PATHS, Seal(epoch=Epoch(2), generation=Generation(2), claim="b"))
    found = resolve(store, PATHS)
    assert restored_epoch(found) == 1
    assert found.skipped == ()


def test_an_object_under_another_epochs_name_is_skipped(store: Store) -> None:
    with_epochs(store, 1)
    store.create(PATHS.manifest(Epoch(2)), encode(manifest(7)))
    found = resolve(store, PATHS)
    assert restored_epoch(found) == 1
    assert "holds epoch 7, not 2" in found.skipped[0].why


def test_if_nothing_is_readable_somebody_has_to_look(store: Store) -> None:
    with_epochs(store, 1, 2)
    damage(store, 1)
    damage(store, 2)
    outcome = resolve(store, PATHS, known=Epoch(2))
    assert isinstance(outcome, NothingToRestore)
    assert "set allowEmptyStart" in outcome.message
    assert [skip.epoch for skip in outcome.skipped] == [2, 1]


def test_a_store_that_lost_everything_is_not_taken_for_a_new_job(store: Store) -> None:
    outcome = resolve(store, PATHS, known=Epoch(9))
    assert isinstance(outcome, NothingToRestore)
    assert "up to epoch 9" in outcome.message
    assert "check the storage URI" in outcome.message


def test_starting_empty_is_done_when_allowed(store: Store) -> None:
    assert isinstance(resolve(store, PATHS, known=Epoch(9), allow_empty=True), StartEmpty)


def test_allowing_an_empty_start_does_not_ask_for_it(store: Store) -> None:
    with_epochs(store, 1)
    assert restored_epoch(resolve(store, PATHS, allow_empty=True)) == 1


def found_damaged(store: Store, epoch: int) -> None:
    record = DamageRecord(epoch=Epoch(epoch), generation=Generation(2), object=state_name(epoch), problem="is missing")
    record_damage(store, PATHS, record)


def test_an_epoch_that_a_driver_found_damaged_is_not_tried_again(store: Store) -> None:
    with_epochs(store, 1, 2, 3)
    found_damaged(store, 3)
    found = resolve(store, PATHS, known=Epoch(3))
    assert restored_epoch(found) == 2
    assert [skip.epoch for skip in found.skipped] == [3]
    assert f"{state_name(3)} is missing (if it is whole again, delete {PATHS.damaged(Epoch(3))})" in (
        found.skipped[0].why
    )
    asked = resolve_epoch(store, PATHS, Epoch(3))
    assert isinstance(asked, NothingToRestore)
    assert "is missing" in asked.message
    store.delete([PATHS.damaged(Epoch(3))])
    assert restored_epoch(resolve(store, PATHS, known=Epoch(3))) == 3


def test_a_savepoint_that_a_driver_found_damaged_is_not_restored(store: Store) -> None:
    with_epochs(store, 1, 2)
    pin(store, PATHS, "kept", Epoch(1))
    found_damaged(store, 1)
    answer = resolve_savepoint(store, PATHS, "kept", Epoch(1))
    assert isinstance(answer, NothingToRestore)
    assert "savepoint 'kept' cannot be restored" in answer.message


def test_an_unreachable_store_is_an_error_and_not_an_empty_one() -> None:
    options = StoreOptions(endpoint="http://127.0.0.1:1", region="r", access_key_id="k", secret_access_key="s")
    away = open_store("s3://bucket", options, retry=RetryPolicy(tries=2, first_pause=0.001))
    with pytest.raises(StoreUnreachableError):
        resolve(away, PATHS, allow_empty=True)


def test_foreign_objects_do_not_matter(store: Store) -> None:
    with_epochs(store, 1)
    store.create(f"{PATHS.epochs}9999999999/notes.txt", b"")
    store.create(f"{PATHS.epochs}readme", b"")
    assert restored_epoch(resolve(store, PATHS)) == 1


def test_the_highest_number_counts_unreadable_and_sealed_ones(store: Store) -> None:
    with_epochs(store, 1, 2)
    damage(store, 2)
    seal(store, PATHS, Seal(epoch=Epoch(3), generation=Generation(2), claim="b"))
    assert newest_epoch_number(store, PATHS) == 3
    assert newest_epoch_number(store, PATHS, known=Epoch(8)) == 8


# --- going back


def test_what_a_generation_went_back_behind_is_not_restored_again(store: Store) -> None:
    with_epochs(store, 1, 2, 3)
    claim_generation(store, PATHS, generation_record(2, back_to=1))
    found = resolve(store, PATHS, known=Epoch(3))
    assert restored_epoch(found) == 1
    assert found.skipped[0].why == "generation 2 went back to epoch 1"


def test_epochs_made_after_going_back_are_restored(store: Store) -> None:
    with_epochs(store, 1, 2, 3)
    claim_generation(store, PATHS, generation_record(2, back_to=1))
    put_epoch(store, manifest(4, generation=2, parent=1))
    assert restored_epoch(resolve(store, PATHS, known=Epoch(3))) == 4


def test_going_back_to_an_epoch_that_is_not_there_changes_nothing(store: Store) -> None:
    with_epochs(store, 2, 3)
    outcome = start_generation(
        store, PATHS, StartRequest(record=generation_record(2, back_to=1), known=Epoch(3), issued=Epoch(3))
    )
    assert isinstance(outcome, NothingToRestore)
    assert store.list_names(PATHS.generations) == []


def test_going_back_to_an_epoch_that_never_completed_is_refused(store: Store) -> None:
    seal(store, PATHS, Seal(epoch=Epoch(1), generation=Generation(2), claim="b"))
    outcome = resolve_epoch(store, PATHS, Epoch(1))
    assert isinstance(outcome, NothingToRestore)
    assert "never completed" in outcome.message


def test_going_back_to_a_savepoint_whose_epoch_was_cleaned_up(store: Store) -> None:
    with_epochs(store, 1, 2)
    pin(store, PATHS, "before-upgrade", Epoch(1))
    store.delete([PATHS.manifest(Epoch(1))])
    record = generation_record(2, back_to=1, savepoint="before-upgrade")
    outcome = start_generation(store, PATHS, StartRequest(record=record, known=Epoch(2), issued=Epoch(2)))
    assert restored_epoch(outcome) == 1
    assert restored_epoch(resolve(store, PATHS, known=Epoch(2))) == 1
