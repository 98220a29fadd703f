"""Going back past committed output: taken back by sinks that can, refused where one cannot, and decided once."""

import pytest

from epochal.protocol.documents import CommitRecord, DamageRecord, GenerationRecord, decode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.publish import record_commit, record_damage
from epochal.protocol.resolve import Found, LeftBehind, NothingToRestore, StartEmpty
from epochal.protocol.savepoints import pin
from epochal.protocol.start import StartRequest, WouldRepeat, start_generation
from epochal.protocol.store import Store, open_store
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch, state_name
from tests.protocol.stepping import Actor, Order, SteppedStore

CAN = {"files": None}
BOTH = {"files": None, "topic": "records stay in their topic"}


def published(store: Store, epoch: int, *, generation: int = 1, parent: int | None = None, min_epoch: int = 1) -> None:
    """An epoch that gave 10 rows to one sink and as many as its number to the other; committed."""
    made = manifest(
        epoch,
        generation=generation,
        parent=parent,
        min_epoch=min_epoch,
        pending={"files": 10, "topic": epoch},
    )
    put_epoch(store, made)
    record_commit(store, PATHS, CommitRecord(epoch=Epoch(epoch), generation=Generation(generation)))


def damage(store: Store, epoch: int) -> None:
    record = DamageRecord(epoch=Epoch(epoch), generation=Generation(1), object=state_name(epoch), problem="is missing")
    record_damage(store, PATHS, record)


def unreadable(store: Store, epoch: int) -> None:
    store.delete([PATHS.manifest(Epoch(epoch))])
    store.create(PATHS.manifest(Epoch(epoch)), b"{")


@pytest.fixture
def store() -> Store:
    """Three committed epochs."""
    store = open_store("memory:///")
    for epoch in (1, 2, 3):
        published(store, epoch)
    return store


def begin(store: Store, generation: int = 2, *, known: int = 3, issued: int = 3, **given: object) -> object:
    record = generation_record(
        generation,
        claim=f"driver-{generation}",
        back_to=given.pop("back_to", None),  # type: ignore[arg-type]
        savepoint=given.pop("savepoint", None),  # type: ignore[arg-type]
    )
    request = StartRequest(record=record, known=Epoch(known), issued=Epoch(issued), **given)  # type: ignore[arg-type]
    return start_generation(store, PATHS, request)


def left_by(outcome: object) -> LeftBehind | None:
    assert isinstance(outcome, Found | StartEmpty), outcome
    return outcome.left


def claimed(store: Store, generation: int) -> GenerationRecord:
    name = PATHS.generation(Generation(generation))
    return decode(name, store.get(name), GenerationRecord)


def test_who_restores_the_newest_epoch_leaves_nothing_behind(store: Store) -> None:
    assert left_by(begin(store, sinks=BOTH)) is None
    assert claimed(store, 2).back_to is None


@pytest.mark.parametrize("break_it", [damage, unreadable])
def test_what_cannot_be_restored_is_left_behind_and_taken_back(store: Store, break_it: object) -> None:
    break_it(store, 3)  # type: ignore[operator]
    left = left_by(begin(store, sinks=CAN))
    assert left is not None
    assert (left.restored, left.epochs) == (2, (3,))
    record = claimed(store, 2)
    assert (record.back_to, record.unasked) == (2, True)


def test_what_was_left_behind_stays_so_although_it_is_whole_again(store: Store) -> None:
    damage(store, 3)
    begin(store, sinks=CAN)
    store.delete([PATHS.damaged(Epoch(3))])
    left = left_by(begin(store, 3, sinks=CAN))
    assert left is not None, "the generation before may have died before it took anything back"
    assert (left.restored, left.epochs, left.new) == (2, (3,), ())


def test_output_of_the_new_line_is_not_taken_back(store: Store) -> None:
    damage(store, 3)
    begin(store, sinks=CAN)
    published(store, 4, generation=2, parent=2)
    assert left_by(begin(store, 3, known=4, issued=4, sinks=CAN)) is None


def test_a_sink_that_cannot_take_back_makes_the_job_wait(store: Store) -> None:
    damage(store, 3)
    outcome = begin(store, sinks=BOTH)
    assert outcome == WouldRepeat(
        "going back to epoch 2 would leave epoch 3 behind, whose output is committed and cannot be taken back "
        "everywhere. It would come a second time: 3 rows of sink 'topic': records stay in their topic. sink 'files' "
        "would take back what was written since. Set restore.onCommittedOutput to Repeat if that may be. Not used: "
        f"epoch 3: {state_name(3)} is missing (if it is whole again, delete {PATHS.damaged(Epoch(3))})"
    )
    assert store.list_names(PATHS.generations) == [], "nothing was changed"
    store.delete([PATHS.damaged(Epoch(3))])
    assert left_by(begin(store, 3, sinks=BOTH)) is None, "somebody has brought it back"


def test_what_was_chosen_once_is_not_asked_again(store: Store) -> None:
    damage(store, 3)
    assert left_by(begin(store, sinks=BOTH, repeat=True)) is not None
    assert left_by(begin(store, 3, sinks=BOTH)) is not None, "its first epoch was not made yet"


def test_a_sink_that_got_no_rows_need_not_take_any_back(store: Store) -> None:
    damage(store, 3)
    assert left_by(begin(store, sinks={"quiet": "no way"})) is not None


def test_rows_of_an_epoch_that_cannot_be_read_are_unknown(store: Store) -> None:
    unreadable(store, 3)
    outcome = begin(store, sinks={"topic": "no way", "quiet": "no way"})
    assert isinstance(outcome, WouldRepeat)
    assert "an unknown number of rows of sink 'topic'" in outcome.message
    assert "an unknown number of rows of sink 'quiet'" in outcome.message


@pytest.mark.parametrize("how", [{"back_to": 1}, {"back_to": 1, "savepoint": "kept"}], ids=["epoch", "savepoint"])
def test_the_same_holds_for_who_is_told_to_go_back(store: Store, how: dict[str, object]) -> None:
    pin(store, PATHS, "kept", Epoch(1))
    outcome = begin(store, sinks=BOTH, **how)  # type: ignore[arg-type]
    assert isinstance(outcome, WouldRepeat)
    assert "leave epochs 2 to 3 behind" in outcome.message
    assert "5 rows of sink 'topic'" in outcome.message
    left = left_by(begin(store, 3, sinks=BOTH, repeat=True, **how))  # type: ignore[arg-type]
    assert left is not None
    assert left.epochs == (2, 3)
    assert not claimed(store, 3).unasked


def test_what_cleanup_has_taken_after_a_savepoint_came_out_all_the_same(store: Store) -> None:
    pin(store, PATHS, "kept", Epoch(1))
    published(store, 4, min_epoch=4)
    store.delete([PATHS.manifest(Epoch(epoch)) for epoch in (1, 2, 3)])
    outcome = begin(store, known=4, issued=4, min_epoch=Epoch(4), sinks=BOTH, back_to=1, savepoint="kept")
    assert isinstance(outcome, WouldRepeat)
    assert "leave epochs 3 to 4 behind" in outcome.message
    assert "at least 4 rows of sink 'topic'" in outcome.message


def test_the_same_holds_where_nothing_is_restored_at_all(store: Store) -> None:
    lost = open_store("memory:///")
    assert isinstance(begin(lost, allow_empty=True, sinks=BOTH), WouldRepeat)
    left = left_by(begin(lost, allow_empty=True, sinks=CAN))
    assert left is not None
    assert (left.restored, left.epochs) == (0, (3,))
    assert claimed(lost, 2).back_to == 0
    assert left_by(begin(lost, 3, sinks=CAN)) is not None, "once allowed, it is not asked again"


def test_newer_manifests_that_are_gone_are_no_reason_to_repeat_their_output(store: Store) -> None:
    store.delete([PATHS.manifest(Epoch(3))])
    assert isinstance(begin(store, sinks=BOTH), WouldRepeat)


def test_a_new_job_asks_nobody() -> None:
    assert left_by(begin(open_store("memory:///"), known=0, issued=0, sinks=BOTH)) is None


def test_an_epoch_that_was_left_behind_is_not_restored_once_its_output_is_taken_back(store: Store) -> None:
    begin(store, sinks=CAN, back_to=1)
    outcome = begin(store, 3, sinks=CAN, back_to=3)
    assert isinstance(outcome, NothingToRestore)
    assert "generation 2 went back to epoch 1, so sinks have taken back" in outcome.message
    assert isinstance(begin(store, 4, sinks={"topic": "no way"}, back_to=3), Found), "here it is all still there"


def test_what_is_asked_for_and_not_whole_is_refused_before_anything_is_left_behind(store: Store) -> None:
    store.delete([state_name(2)])
    outcome = begin(store, sinks=CAN, back_to=2)
    assert isinstance(outcome, NothingToRestore)
    assert f"{state_name(2)} is missing" in outcome.message
    assert store.list_names(PATHS.generations) == []


@pytest.mark.parametrize("order", [Order.CRASH, Order.ERROR_AFTER, Order.DELAY], ids=lambda order: order.name)
def test_killed_anywhere_the_next_generation_restores_the_same_and_takes_back_the_same(order: Order) -> None:
    def prepared() -> SteppedStore:
        store = SteppedStore(tries=1)
        for epoch in (1, 2, 3):
            published(store, epoch)
        damage(store, 3)
        return store

    store = prepared()
    Actor("undisturbed", lambda: begin(store, sinks=CAN)).finish()
    requests = len(store.log)
    assert requests > 8
    for killed_at in range(requests):
        store = prepared()
        store.trouble = (killed_at, order)
        Actor("killed", lambda store=store: begin(store, sinks=CAN)).finish()  # type: ignore[misc]
        for late in store.late:
            late()
        left = left_by(begin(store, 3, sinks=CAN))
        assert left is not None
        assert (left.restored, left.epochs) == (2, (3,))
