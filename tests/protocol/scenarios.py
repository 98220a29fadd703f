"""One small scenario for each invariant. Each is a plain function that fails by an assertion; :mod:`test_guards` runs
it as it is, and again with the guard taken out that the invariant rests on. Functions of the protocol are looked up in
their modules at each call, so that a guard can be taken out."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from obstore.store import MemoryStore

from epochal.control.job import DesiredState, JobSpec, PipelineSpec
from epochal.control.lifecycle import JobPhase
from epochal.control.reconcile import Reconciler
from epochal.protocol import cleanup, progress, publish, resolve, savepoints, start
from epochal.protocol.decision import (
    AbortEpoch,
    CheckpointSpec,
    CleanupExists,
    CleanupFailed,
    CleanupRecord,
    EpochFailed,
    EpochPublished,
    InFlight,
    InProgress,
    NoCleanup,
    Nothing,
    Observation,
    Record,
    Recover,
    SendBarrier,
    StartCleanup,
)
from epochal.protocol.documents import encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import NewerDocumentError, UnsafeStoreError
from epochal.protocol.store import Created, Exists, Store
from tests.operator.world import World
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch, state_name
from tests.protocol.stepping import Actor, Order, SteppedStore

NOW = 1_800_000_000.0
SPEC = CheckpointSpec(interval=10, timeout=60, keep=1, every=1, tolerable_failures=1)


def _store(*epochs: int) -> Store:
    store = Store(MemoryStore(), uri="memory:///")
    for epoch in epochs:
        put_epoch(store, manifest(epoch))
    return store


def _record(**changes: Any) -> Record:
    """Generation 1, whose epoch 1 completed now."""
    record = Record(
        generation=Generation(1),
        generation_started=NOW - 100,
        uid="orders",
        issued=Epoch(1),
        completed=(Epoch(1),),
        completed_count=1,
        last_checkpoint=NOW,
        last_checkpoint_generation=Generation(1),
    )
    return replace(record, **changes)


def _flight(**changes: Any) -> InFlight:
    flight = InFlight(
        epoch=Epoch(2), generation=Generation(1), started=NOW, deadline=NOW + 60, min_epoch=Epoch(1), then_stop=False
    )
    return replace(flight, **changes)


def _in_flight(**changes: Any) -> Record:
    return _record(issued=Epoch(2), in_flight=_flight(), **changes)


def _begin(store: Store, generation: int, *, issued: int = 0, known: int = 0, **record: Any) -> Any:
    request = start.StartRequest(
        record=generation_record(generation, claim=f"driver-{generation}", **record),
        known=Epoch(known),
        issued=Epoch(issued),
    )
    return start.start_generation(store, PATHS, request)


def _restored(store: Store, generation: int, **request: Any) -> int:
    answer = _begin(store, generation, **request)
    assert isinstance(answer, resolve.Found), answer
    return answer.manifest.epoch


# --- publishing -------------------------------------------------------------------------------------------------------


def a_fenced_generation_publishes_nothing() -> None:
    store = _store(1)
    _begin(store, 1)
    _begin(store, 2, issued=1)
    answer = publish.publish(store, PATHS, manifest(2, generation=1, claim="driver-1"))
    assert isinstance(answer, publish.Fenced)


def a_zombie_between_fence_and_manifest_publishes_nothing() -> None:
    store = SteppedStore()
    put_epoch(store, manifest(1))
    _begin(store, 1)
    late = manifest(2, generation=1, claim="driver-1")
    zombie = Actor("zombie", lambda: publish.publish(store, PATHS, late))
    assert zombie.step_up_to("create ")
    _begin(store, 2, issued=2)
    zombie.finish()
    assert isinstance(zombie.result, publish.Fenced)
    assert store.get(PATHS.manifest(Epoch(2))) != encode(late)


def a_zombie_that_was_overtaken_commits_no_sink() -> None:
    store = SteppedStore()
    zombie = Actor("zombie", lambda: publish.publish(store, PATHS, manifest(1, generation=1, claim="driver-1")))
    zombie.step_up_to("create ")
    zombie.step()  # the manifest is there; the second look at the fence is to come
    assert _restored(store, 2, issued=1) == 1
    zombie.finish()
    assert isinstance(zombie.result, publish.Fenced), "both generations would commit the sinks"


def a_zombie_whose_seal_was_cleaned_up_makes_no_epoch() -> None:
    store = SteppedStore()
    put_epoch(store, manifest(1))
    _begin(store, 1)
    zombie = Actor("zombie", lambda: publish.publish(store, PATHS, manifest(2, generation=1, claim="driver-1")))
    assert zombie.step_up_to("create ")
    _begin(store, 2, issued=2)
    put_epoch(store, manifest(3, generation=2, claim="driver-2"))
    assert isinstance(cleanup.clean(store, PATHS, Epoch(3)), cleanup.Cleaned)
    zombie.finish()
    assert isinstance(zombie.result, publish.Fenced), "its sinks would be committed"
    store.delete([PATHS.manifest(Epoch(3))])
    store.create(PATHS.manifest(Epoch(3)), b"damaged")
    answer = resolve.resolve(store, PATHS, known=Epoch(3), min_epoch=Epoch(3))
    assert isinstance(answer, resolve.NothingToRestore), "the zombie's epoch was restored"


def an_epoch_that_was_given_up_never_appears() -> None:
    store = SteppedStore(tries=1)
    late = manifest(1, claim="driver-1")
    driver = Actor("driver", lambda: publish.publish(store, PATHS, late))
    driver.step_up_to("create ")
    driver.step(Order.DELAY)
    driver.finish()
    assert isinstance(publish.give_up(store, PATHS, late), publish.GivenUp)
    for request in store.late:
        request()
    assert store.get(PATHS.manifest(Epoch(1))) != encode(late)


def a_store_that_overwrites_begins_no_generation() -> None:
    """The server takes each PUT, whatever its condition says: of two drivers of one generation both would go on."""
    store = _Overwriting(MemoryStore(), uri="memory:///")
    begun = 0
    for claim in ("a", "b"):
        with suppress(UnsafeStoreError):
            begun += publish.claim_generation(store, PATHS, generation_record(1, claim=claim)) is None
    assert not begun


class _Overwriting(Store):
    def create(self, name: str, data: bytes) -> Created | Exists:
        self.delete([name])
        return super().create(name, data)


def a_lost_answer_is_no_defeat() -> None:
    store = SteppedStore()
    driver = Actor("driver", lambda: store.create("name", b"ours"))
    driver.step()
    driver.step(Order.ERROR_AFTER)
    assert driver.finish() == Created()


def a_generation_that_comes_up_late_does_not_turn_the_line() -> None:
    """Whether its successor has begun, or is just about to."""
    store = SteppedStore()
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    _begin(store, 1)
    successor = Actor("successor", lambda: _begin(store, 3, issued=2))
    assert successor.step_up_to("create team/orders/generations/000003")
    assert isinstance(_begin(store, 2, issued=2, back_to=1), publish.Fenced)
    assert successor.finish().manifest.epoch == 2
    assert isinstance(_begin(store, 2, issued=2, back_to=1), publish.Fenced)
    assert _restored(store, 4, issued=2) == 2


# --- restoring --------------------------------------------------------------------------------------------------------


def what_was_left_behind_is_not_restored() -> None:
    store = _store(1, 2, 3)
    _begin(store, 2, issued=3, back_to=1)
    assert _restored(store, 3, issued=3, known=1) == 1


def one_can_go_back_to_what_was_left_behind() -> None:
    store = _store(1, 2, 3)
    _begin(store, 2, issued=3, back_to=1)
    _begin(store, 3, issued=3, back_to=3)
    assert _restored(store, 4, issued=3) == 3


def a_job_that_was_emptied_once_is_not_emptied_by_damage() -> None:
    store = _store(1)
    _begin(store, 2, issued=1, back_to=0)
    store.create(PATHS.manifest(Epoch(2)), b"damaged")
    assert isinstance(_begin(store, 3, issued=2), resolve.NothingToRestore)


def a_job_with_unreadable_state_does_not_start_empty() -> None:
    store = _store()
    store.create(PATHS.manifest(Epoch(1)), b"damaged")
    assert isinstance(_begin(store, 2, issued=1), resolve.NothingToRestore)


def a_target_that_cannot_be_restored_does_not_turn_the_line() -> None:
    store = _store(1, 3)
    store.create(PATHS.manifest(Epoch(2)), b"damaged")
    assert isinstance(_begin(store, 2, issued=3, back_to=2), resolve.NothingToRestore)
    assert _restored(store, 3, issued=3) == 3


def an_epoch_of_a_newer_release_is_not_passed_over() -> None:
    store = _store(1)
    newer = encode(manifest(2)).replace(b'"version":1', b'"version":3')
    store.create(PATHS.manifest(Epoch(2)), newer)
    try:
        answer = _begin(store, 2, issued=2)
    except NewerDocumentError:
        return
    raise AssertionError(f"epoch 1 was restored over it: {answer}")


def a_job_that_stops_leaves_no_output_behind() -> None:
    """The driver dies between the manifest of its last epoch and the commit of its sinks."""
    world = World()
    reconciler = Reconciler(world)
    job = JobSpec(namespace="default", name="job", pipeline=PipelineSpec(file="x.py"), checkpoint=SPEC)
    world.ticks(reconciler, job, 5)
    world.sink_fails = True
    world.ticks(reconciler, replace(job, state=DesiredState.SUSPENDED), 3)
    world.sink_fails = False
    world.ticks(reconciler, replace(job, state=DesiredState.SUSPENDED), 10)
    record = world.load()
    assert record is not None
    assert record.phase is JobPhase.STOPPED
    assert max(end for _, end in world.stretches()) == world.position()


# --- cleanup and savepoints -------------------------------------------------------------------------------------------


def cleanup_keeps_what_a_kept_epoch_needs() -> None:
    store = _store(1)
    put_epoch(store, manifest(2, objects=(state_name(1), state_name(2))))
    cleanup.clean(store, PATHS, Epoch(2))
    assert store.get(state_name(1))


def cleanup_keeps_what_an_unpublished_epoch_has_written() -> None:
    store = _store(1, 2)
    store.create(state_name(3), b"rows")
    cleanup.clean(store, PATHS, Epoch(2))
    assert state_name(3) in store.list_names(PATHS.state)


def whoever_finds_a_manifest_finds_what_it_names() -> None:
    store = SteppedStore()
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    job = Actor("cleanup", lambda: cleanup.clean(store, PATHS, Epoch(2)))
    while job.alive:
        job.step()
        names = set(store.list_names(PATHS.prefix))
        assert PATHS.manifest(Epoch(1)) not in names or state_name(1) in names


def a_savepoint_made_during_cleanup_keeps_its_objects() -> None:
    store = SteppedStore()
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    job = Actor("cleanup", lambda: cleanup.clean(store, PATHS, Epoch(2)))
    job.step_up_to("delete ")
    assert savepoints.pin(store, PATHS, "kept", Epoch(1)) == savepoints.Pinned("kept", Epoch(1))
    job.finish()
    assert state_name(1) in store.list_names(PATHS.state)


def a_savepoint_that_came_too_late_is_taken_back() -> None:
    store = SteppedStore()
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    owner = Actor("owner", lambda: savepoints.pin(store, PATHS, "late", Epoch(1)))
    owner.step_up_to("create ")
    cleanup.clean(store, PATHS, Epoch(2))
    assert isinstance(owner.finish(), savepoints.NotPinned)
    assert savepoints.list_savepoints(store, PATHS) == []


def a_late_caller_does_not_take_back_another_ones_savepoint() -> None:
    store = SteppedStore()
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    late = Actor("late", lambda: savepoints.pin(store, PATHS, "same", Epoch(1)))
    late.step_up_to("create ")
    assert isinstance(savepoints.pin(store, PATHS, "same", Epoch(1)), savepoints.Pinned)
    cleanup.clean(store, PATHS, Epoch(2))
    assert isinstance(late.finish(), savepoints.NotPinned)
    assert savepoints.list_savepoints(store, PATHS) == ["same"]


# --- the controller ---------------------------------------------------------------------------------------------------


def one_checkpoint_is_in_flight() -> None:
    decision = progress.progress(SPEC, _in_flight(), Observation(fate=InProgress()), NOW + 30)
    assert decision.action == Nothing()


def no_checkpoint_starts_while_a_cleanup_exists() -> None:
    record = _record(cleanup=CleanupRecord(started=NOW))
    decision = progress.progress(SPEC, record, Observation(cleanup=CleanupExists()), NOW + 11)
    assert not isinstance(decision.action, SendBarrier)


def the_interval_counts_from_completion() -> None:
    done = progress.progress(SPEC, _in_flight(), Observation(fate=EpochPublished()), NOW + 8)
    assert not isinstance(progress.progress(SPEC, done.record, Observation(), NOW + 12).action, SendBarrier)
    assert isinstance(progress.progress(SPEC, done.record, Observation(), NOW + 19).action, SendBarrier)


def a_stop_outlives_the_checkpoint_in_flight() -> None:
    record = progress.request_stop(_in_flight())
    record = progress.progress(SPEC, record, Observation(fate=EpochPublished()), NOW + 1).record
    action = progress.progress(SPEC, record, Observation(), NOW + 2).action
    assert isinstance(action, SendBarrier)
    assert action.barrier.then_stop


def a_number_is_never_given_out_twice() -> None:
    record = progress.restored(_record(), Epoch(1), Epoch(7))
    action = progress.progress(SPEC, record, Observation(), NOW + 11).action
    assert isinstance(action, SendBarrier)
    assert action.barrier.epoch == 8


def too_many_failures_in_a_row_replace_the_driver() -> None:
    failed = Observation(fate=EpochFailed("no space"))
    assert progress.progress(SPEC, _in_flight(failures_in_a_row=0), failed, NOW).action != Recover()
    assert progress.progress(SPEC, _in_flight(failures_in_a_row=1), failed, NOW).action == Recover()


def a_checkpoint_that_takes_too_long_is_aborted() -> None:
    decision = progress.progress(SPEC, _in_flight(), Observation(fate=InProgress()), NOW + 61)
    assert decision.action == AbortEpoch(Epoch(2))


def a_controller_that_dies_still_replaces_the_driver() -> None:
    record = replace(_in_flight(), in_flight=_flight(aborting=True))
    stored = progress.progress(SPEC, record, Observation(fate=InProgress()), NOW + 61).record
    assert progress.progress(SPEC, stored, Observation(), NOW + 100).action == Recover()


def first_checkpoints_are_spread() -> None:
    delays = [progress.first_delay(SPEC, _record(uid=str(job))) for job in range(100)]
    assert min(delays) < 2 < 8 < max(delays)


def a_clock_set_back_stops_no_checkpoint() -> None:
    assert isinstance(progress.progress(SPEC, _record(), Observation(), NOW - 100_000).action, SendBarrier)


def a_clock_set_back_moves_no_deadline_away() -> None:
    waiting = progress.progress(SPEC, _in_flight(), Observation(fate=InProgress()), NOW - 100_000)
    later = progress.progress(SPEC, waiting.record, Observation(fate=InProgress()), NOW - 100_000 + 61)
    assert later.action == AbortEpoch(Epoch(2))


def a_failing_cleanup_backs_off_and_holds_nothing_back() -> None:
    record = _record(completed=(Epoch(1), Epoch(2)), completed_count=2, issued=Epoch(2))
    record = replace(record, cleanup=CleanupRecord(started=NOW, completed_at_last_try=1))
    failed = progress.progress(SPEC, record, Observation(cleanup=CleanupFailed("no")), NOW + 1).record
    again = progress.progress(SPEC, failed, Observation(cleanup=NoCleanup()), NOW + 2).action
    assert not isinstance(again, StartCleanup)
    assert isinstance(progress.progress(SPEC, failed, Observation(), NOW + 10.5).action, SendBarrier)


def no_cleanup_starts_while_a_driver_may_be_going_back() -> None:
    record = _record(completed=(Epoch(1), Epoch(2)), completed_count=2, issued=Epoch(2))
    decision = progress.progress(SPEC, record, Observation(driver_ready=False), NOW + 1)
    assert not isinstance(decision.action, StartCleanup)


def a_cleanup_does_not_wait_for_ever() -> None:
    """Where checkpoints are always due, they would never let a cleanup have its turn."""
    record = _record(completed=tuple(Epoch(number) for number in range(1, 5)), completed_count=4, issued=Epoch(4))
    assert isinstance(progress.progress(SPEC, record, Observation(), NOW + 11).action, StartCleanup)
