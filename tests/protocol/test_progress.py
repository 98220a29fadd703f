"""The controller's decision, branch by branch, with a given clock. Reads as its specification."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from epochal.protocol.decision import (
    AbortEpoch,
    CheckpointSpec,
    CleanupExists,
    CleanupFailed,
    CleanupRecord,
    CleanupState,
    CleanupSucceeded,
    Complete,
    Decision,
    DriverLost,
    DriverSilent,
    EndCleanup,
    EpochFailed,
    EpochPublished,
    EpochUnknown,
    Fail,
    Fate,
    InFlight,
    InProgress,
    Nothing,
    Observation,
    Reason,
    Record,
    Recover,
    SendBarrier,
    StartCleanup,
    Stop,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.progress import (
    CLEANUP_LONGEST_BACKOFF,
    begin_generation,
    collectable,
    first_delay,
    progress,
    request_stop,
    restored,
)

T0 = 1_800_000_000.0
SPEC = CheckpointSpec(interval=10, timeout=60, keep=4, every=2, tolerable_failures=2)
IDLE = Observation()


def epochs(*numbers: int) -> tuple[Epoch, ...]:
    return tuple(Epoch(number) for number in numbers)


def running(**changes: object) -> Record:
    """Generation 1 with its first checkpoint completed at T0."""
    record = Record(
        generation=Generation(1),
        generation_started=T0 - 100,
        uid="uid",
        issued=Epoch(1),
        last_checkpoint=T0,
        last_checkpoint_generation=Generation(1),
        last_attempt_ended=T0,
        completed=epochs(1),
        completed_count=1,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def flying(**changes: object) -> Record:
    """Epoch 2 started at T0 + 11."""
    flight = InFlight(epoch=Epoch(2), generation=Generation(1), started=T0 + 11, deadline=T0 + 71, min_epoch=Epoch(1))
    return running(issued=Epoch(2), in_flight=replace(flight, **changes))  # type: ignore[arg-type]


def decide(
    record: Record,
    now: float,
    *,
    spec: CheckpointSpec = SPEC,
    fate: Fate | None = None,
    cleanup: CleanupState | None = None,
    ready: bool = True,
) -> Decision:
    observed = replace(IDLE, driver_ready=ready)
    if fate is not None:
        observed = replace(observed, fate=fate)
    if cleanup is not None:
        observed = replace(observed, cleanup=cleanup)
    return progress(spec, record, observed, T0 + now)


# --- a checkpoint is due


def test_a_checkpoint_starts_strictly_after_the_interval() -> None:
    assert decide(running(), 10.0).reason is Reason.NOT_DUE
    started = decide(running(), 10.001)
    assert started.reason is Reason.CHECKPOINT_DUE
    assert isinstance(started.action, SendBarrier)


def test_the_record_of_a_start_holds_all_that_the_barrier_is_made_of() -> None:
    started = decide(running(min_epoch=Epoch(1)), 11)
    flight = started.record.in_flight
    assert flight == InFlight(
        epoch=Epoch(2), generation=Generation(1), started=T0 + 11, deadline=T0 + 71, min_epoch=Epoch(1)
    )
    assert started.action == SendBarrier(flight.barrier(), Generation(1))
    assert started.record.issued == 2


def test_the_interval_counts_from_completion_so_a_long_checkpoint_is_followed_by_a_whole_interval() -> None:
    completed = decide(flying(), 50, fate=EpochPublished()).record
    assert decide(completed, 60).action == Nothing()
    assert isinstance(decide(completed, 60.1).action, SendBarrier)


def test_an_edited_interval_applies_at_once() -> None:
    assert decide(running(), 5).action == Nothing()
    assert isinstance(decide(running(), 5, spec=replace(SPEC, interval=4)).action, SendBarrier)
    assert decide(running(), 50, spec=replace(SPEC, interval=60)).action == Nothing()


def test_a_failed_checkpoint_does_not_move_the_last_checkpoint() -> None:
    failed = decide(flying(), 20, fate=EpochFailed("disk")).record
    assert failed.last_checkpoint == T0
    assert isinstance(decide(failed, 20.1).action, SendBarrier)


def test_a_pause_is_kept_after_a_failed_checkpoint_too() -> None:
    spec = replace(SPEC, min_pause=15)
    failed = decide(flying(), 20, spec=spec, fate=EpochFailed("disk")).record
    assert decide(failed, 34.9, spec=spec).reason is Reason.MIN_PAUSE
    assert isinstance(decide(failed, 35, spec=spec).action, SendBarrier)


def test_a_pause_longer_than_the_interval_counts() -> None:
    spec = replace(SPEC, min_pause=30)
    assert decide(running(), 29.9, spec=spec).reason is Reason.MIN_PAUSE
    assert isinstance(decide(running(), 30, spec=spec).action, SendBarrier)


def test_a_checkpoint_is_not_started_while_a_cleanup_exists() -> None:
    record = running(cleanup=CleanupRecord(started=T0))
    deferred = decide(record, 11, cleanup=CleanupExists())
    assert (deferred.action, deferred.reason) == (Nothing(), Reason.CLEANUP_RUNNING)


def test_a_checkpoint_is_not_started_before_the_driver_is_ready() -> None:
    assert decide(running(), 11, ready=False).reason is Reason.DRIVER_NOT_READY


def test_failed_numbers_are_never_given_out_again() -> None:
    failed = decide(flying(), 20, fate=EpochFailed("disk")).record
    flight = decide(failed, 20.1).record.in_flight
    assert flight is not None
    assert flight.epoch == 3


# --- the first checkpoint of a generation


def fresh(uid: str = "uid", generation: int = 1) -> Record:
    return Record(generation=Generation(generation), generation_started=T0, uid=uid)


def test_the_first_checkpoint_waits_for_its_own_delay_and_no_longer() -> None:
    delay = first_delay(SPEC, fresh())
    assert decide(fresh(), delay).reason is Reason.NOT_DUE
    assert decide(fresh(), delay + 0.001).reason is Reason.FIRST_CHECKPOINT_DUE


def test_the_delay_is_the_same_each_time_it_is_asked_for() -> None:
    assert first_delay(SPEC, fresh()) == first_delay(SPEC, fresh())


def test_the_delay_differs_between_jobs_and_generations() -> None:
    delays = {first_delay(SPEC, fresh(uid, generation)) for uid in "ab" for generation in (1, 2)}
    assert len(delays) == 4


def test_the_delays_of_a_thousand_jobs_spread_evenly_over_the_interval() -> None:
    tenths = [0] * 10
    for number in range(1000):
        delay = first_delay(SPEC, fresh(f"job-{number}"))
        assert 0 <= delay < SPEC.interval
        tenths[int(delay * 10 / SPEC.interval)] += 1
    assert all(60 <= count <= 140 for count in tenths), tenths


def test_the_delay_follows_an_edited_interval() -> None:
    assert first_delay(replace(SPEC, interval=100), fresh()) == pytest.approx(10 * first_delay(SPEC, fresh()))


def test_a_new_generation_spreads_its_first_checkpoint_again() -> None:
    record = begin_generation(running(), Generation(2), T0 + 50)
    delay = first_delay(SPEC, record)
    assert decide(record, 50 + delay).reason is Reason.NOT_DUE
    assert decide(record, 50 + delay + 0.001).reason is Reason.FIRST_CHECKPOINT_DUE


# --- a checkpoint is in flight


def test_a_published_epoch_completes() -> None:
    done = decide(flying(), 14, fate=EpochPublished(bytes=7))
    assert done.action == Complete(Epoch(2), 3.0, 7)
    assert (done.record.last_checkpoint, done.record.completed) == (T0 + 14, epochs(1, 2))
    assert done.record.in_flight is None


def test_a_published_epoch_completes_however_late_it_is() -> None:
    assert isinstance(decide(flying(aborting=True), 500, fate=EpochPublished()).action, Complete)


def test_progress_is_told_and_nothing_else_is_done() -> None:
    told = decide(flying(), 30, fate=InProgress(operators_done=1, operators_total=3))
    assert (told.action, told.message) == (Nothing(), "epoch 2: 1 of 3 operators done")


def test_no_second_checkpoint_starts_while_one_is_in_flight() -> None:
    assert decide(flying(), 60, fate=InProgress()).action == Nothing()


def test_a_barrier_that_never_arrived_is_sent_again_unchanged() -> None:
    started = decide(running(), 11)
    again = decide(started.record, 12, fate=EpochUnknown())
    assert again.action == started.action
    assert (again.record, again.reason) == (started.record, Reason.BARRIER_LOST)


def test_a_silent_driver_is_waited_for_until_the_deadline() -> None:
    assert decide(flying(), 71, fate=DriverSilent()).reason is Reason.DRIVER_UNREACHABLE
    assert decide(flying(), 71.1, fate=DriverSilent()).reason is Reason.CHECKPOINT_TIMED_OUT


@pytest.mark.parametrize("fate", [InProgress(), EpochUnknown(), DriverSilent()])
def test_past_its_deadline_an_epoch_is_aborted_on_the_driver(fate: Fate) -> None:
    late = decide(flying(), 71.1, fate=fate)
    assert (late.action, late.reason) == (AbortEpoch(Epoch(2)), Reason.CHECKPOINT_TIMED_OUT)
    assert late.record.in_flight is not None
    assert late.record.in_flight.aborting


def test_an_aborted_epoch_fails_when_the_driver_has_given_it_up() -> None:
    given_up = decide(flying(aborting=True), 72, fate=EpochFailed("as asked"))
    assert (given_up.action, given_up.reason) == (Fail(Epoch(2)), Reason.CHECKPOINT_ABORTED)


def test_a_barrier_is_not_sent_again_while_its_epoch_is_being_aborted() -> None:
    """The barrier may still be on its way: only a driver that was told to give the epoch up refuses it."""
    assert decide(flying(aborting=True), 20, fate=EpochUnknown()).action == AbortEpoch(Epoch(2))


def test_a_driver_that_does_not_give_up_is_replaced() -> None:
    late = decide(flying(), 71.1, fate=InProgress()).record
    assert decide(late, 131, fate=InProgress()).action == AbortEpoch(Epoch(2))
    assert decide(late, 131.2, fate=InProgress()).action == Recover()


def test_a_driver_that_is_to_be_replaced_gets_no_barrier_until_it_is() -> None:
    lost = decide(flying(), 12, fate=DriverLost()).record
    assert decide(lost, 1000).action == Recover()
    replaced = begin_generation(lost, Generation(2), T0 + 1000)
    assert isinstance(decide(replaced, 1000 + SPEC.interval).action, SendBarrier)


def test_failures_are_tolerated_up_to_the_given_number_and_the_next_recovers() -> None:
    record = flying()
    failed: list[Decision] = []
    for now in (20.0, 21.0, 22.0):
        failed.append(decide(record, now, fate=EpochFailed("disk")))
        record = decide(failed[-1].record, now + 0.5).record
    assert [each.action for each in failed] == [Fail(Epoch(2)), Fail(Epoch(3)), Recover()]
    assert failed[-1].reason is Reason.TOO_MANY_FAILURES
    assert failed[-1].record.failures_in_a_row == 0


def test_a_completed_checkpoint_ends_the_row_of_failures() -> None:
    record = replace(flying(), failures_in_a_row=2)
    assert decide(record, 20, fate=EpochPublished()).record.failures_in_a_row == 0


def test_no_failure_is_tolerated_if_none_is_asked_for() -> None:
    spec = replace(SPEC, tolerable_failures=0)
    assert decide(flying(), 20, spec=spec, fate=EpochFailed("disk")).action == Recover()


def test_a_lost_driver_is_replaced_at_once() -> None:
    lost = decide(flying(), 12, fate=DriverLost())
    assert (lost.action, lost.reason) == (Recover(), Reason.DRIVER_GONE)
    assert lost.record.in_flight is None


# --- stopping


def test_a_stop_starts_its_own_checkpoint_without_waiting_for_the_interval() -> None:
    stopping = decide(request_stop(running()), 1)
    assert isinstance(stopping.action, SendBarrier)
    assert stopping.action.barrier.then_stop
    assert stopping.reason is Reason.STOP_REQUESTED


def test_a_stop_waits_for_the_checkpoint_in_flight_and_then_issues_its_own() -> None:
    record = request_stop(flying())
    assert decide(record, 12, fate=InProgress()).action == Nothing()
    completed = decide(record, 14, fate=EpochPublished())
    assert completed.action == Complete(Epoch(2), 3.0, 0)
    stopping = decide(completed.record, 14)
    assert isinstance(stopping.action, SendBarrier)
    assert (stopping.action.barrier.epoch, stopping.action.barrier.then_stop) == (3, True)


def test_a_stop_does_not_wait_for_a_cleanup() -> None:
    record = request_stop(running(cleanup=CleanupRecord(started=T0)))
    assert isinstance(decide(record, 1, cleanup=CleanupExists()).action, SendBarrier)


def test_no_cleanup_starts_while_stopping_or_after() -> None:
    ready = running(completed=epochs(1, 2, 3, 4, 5, 6), completed_count=6, issued=Epoch(6))
    assert isinstance(decide(ready, 1).action, StartCleanup)
    assert not isinstance(decide(request_stop(ready), 1).action, StartCleanup)
    assert decide(replace(ready, stopped=True), 1).action == Nothing()


def test_the_stop_is_done_when_its_own_epoch_is_published() -> None:
    stopping = decide(request_stop(running()), 1).record
    stopped = decide(stopping, 3, fate=EpochPublished())
    assert stopped.action == Stop(forced=False)
    assert (stopped.record.stop, stopped.record.stopped) == (False, True)
    assert decide(stopped.record, 1000).reason is Reason.STOPPED


def test_a_failed_last_checkpoint_is_tried_again_and_then_given_up() -> None:
    record = request_stop(running())
    failed: list[Decision] = []
    for now in (1.0, 2.0, 3.0):
        failed.append(decide(decide(record, now).record, now + 0.5, fate=EpochFailed("disk")))
        record = failed[-1].record
    assert [each.action for each in failed] == [Fail(Epoch(2)), Fail(Epoch(3)), Stop(forced=True)]
    assert "the newest epoch is 1" in failed[-1].message


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_stop_without_a_driver_is_forced(in_flight: bool) -> None:
    record = request_stop(flying() if in_flight else running())
    stopped = decide(record, 12, fate=DriverLost())
    assert (stopped.action, stopped.reason) == (Stop(forced=True), Reason.STOP_FORCED)


def test_a_stop_waits_for_a_driver_that_is_starting() -> None:
    assert decide(request_stop(running()), 1, ready=False).reason is Reason.DRIVER_NOT_READY


def test_asking_twice_to_stop_changes_nothing() -> None:
    once = request_stop(running())
    assert request_stop(once) is once


# --- cleanup


@pytest.mark.parametrize(
    ("completed", "expected"),
    [
        ((1, 2, 3, 4), None),
        ((1, 2, 3, 4, 5), None),
        ((1, 2, 3, 4, 5, 6), 3),
        ((1, 2, 5, 6, 9, 10), 5),  # 3, 4, 7 and 8 failed: four good ones are kept, not four numbers
        ((1, 50, 51, 99, 100), None),
        ((7, 8, 9, 10, 11, 12, 13, 14), 11),
        ((), None),
    ],
)
def test_the_newest_keep_are_kept_and_every_many_older_ones_are_worth_a_cleanup(
    completed: tuple[int, ...], expected: int | None
) -> None:
    assert collectable(SPEC, running(completed=epochs(*completed))) == expected


def six_completed(**changes: object) -> Record:
    return running(completed=epochs(1, 2, 3, 4, 5, 6), completed_count=6, issued=Epoch(6), **changes)


def test_a_cleanup_is_written_down_before_it_starts() -> None:
    started = decide(six_completed(), 1)
    assert started.action == StartCleanup(Epoch(3))
    assert started.record.min_epoch == 3
    assert started.record.cleanup.started == T0 + 1


def test_a_checkpoint_that_is_due_goes_before_a_cleanup() -> None:
    assert isinstance(decide(six_completed(), 11).action, SendBarrier)


def test_min_epoch_never_goes_back() -> None:
    assert decide(six_completed(min_epoch=Epoch(5)), 1).action == StartCleanup(Epoch(5))


def test_a_cleanup_that_succeeded_is_noted_and_removed() -> None:
    running_cleanup = decide(six_completed(), 1).record
    ended = decide(running_cleanup, 5, cleanup=CleanupSucceeded())
    assert ended.action == EndCleanup(succeeded=True)
    assert ended.record.completed == epochs(3, 4, 5, 6)
    assert ended.record.cleanup.started is None
    assert decide(ended.record, 6).action == Nothing()


def failed_cleanups(count: int) -> Decision:
    record = six_completed(cleanup=CleanupRecord(started=T0, failures=count - 1))
    return decide(record, 1, cleanup=CleanupFailed("no access"))


@pytest.mark.parametrize(("failures", "pause"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (500, 600)])
def test_a_failed_cleanup_backs_off_from_10_s_doubling_to_10_min(failures: int, pause: float) -> None:
    failed = failed_cleanups(failures)
    assert failed.action == EndCleanup(succeeded=False)
    assert failed.record.cleanup.not_before == T0 + 1 + pause
    assert "checkpoints go on" in failed.message


def test_a_failed_cleanup_does_not_hold_checkpoints_back() -> None:
    assert isinstance(decide(failed_cleanups(500).record, 11).action, SendBarrier)


def test_a_failed_cleanup_is_tried_again_after_its_back_off() -> None:
    record = replace(failed_cleanups(1).record, last_checkpoint=T0 + 10)
    assert decide(record, 10.9).action == Nothing()
    assert decide(record, 11).action == StartCleanup(Epoch(3))


def test_a_cleanup_that_takes_too_long_has_failed() -> None:
    record = six_completed(cleanup=CleanupRecord(started=T0))
    assert decide(record, SPEC.cleanup_timeout, cleanup=CleanupExists()).action == Nothing()
    late = decide(record, SPEC.cleanup_timeout + 1, cleanup=CleanupExists())
    assert (late.action, late.reason) == (EndCleanup(succeeded=False), Reason.CLEANUP_TIMED_OUT)


def test_a_cleanup_that_nobody_wrote_down_gets_a_full_time_to_finish() -> None:
    seen = decide(six_completed(), 1, cleanup=CleanupExists())
    assert (seen.action, seen.record.cleanup.started) == (Nothing(), T0 + 1)


def test_where_checkpoints_are_always_due_an_overdue_cleanup_has_its_turn() -> None:
    many = running(completed=epochs(*range(1, 9)), completed_count=8, issued=Epoch(8))
    assert decide(many, 1000).action == StartCleanup(Epoch(5))


# --- clocks that jump


@pytest.mark.parametrize("back", [15.0, 3600.0, 10**9])
def test_a_clock_set_back_holds_the_next_checkpoint_no_longer_than_an_interval(back: float) -> None:
    assert isinstance(decide(running(), -back).action, SendBarrier)


def test_a_clock_set_back_a_little_does_not_start_one_early() -> None:
    assert decide(running(), -9).reason is Reason.NOT_DUE


def test_a_clock_set_back_does_not_move_a_deadline_further_than_the_timeout() -> None:
    waiting = decide(flying(), -3600, fate=InProgress()).record
    assert isinstance(decide(waiting, -3600 + SPEC.timeout + 1, fate=InProgress()).action, AbortEpoch)


def test_a_clock_set_back_does_not_stretch_a_back_off() -> None:
    record = six_completed(cleanup=CleanupRecord(failures=1, not_before=T0 + 10**6))
    settled = decide(record, 0).record
    assert settled.cleanup.not_before == T0 + CLEANUP_LONGEST_BACKOFF


# --- generations


def test_a_generation_comes_after_the_one_before() -> None:
    for generation in (0, 1):
        with pytest.raises(ValueError, match="does not come after 1"):
            begin_generation(running(), Generation(generation), T0)


def test_a_new_generation_starts_with_a_clean_row_of_failures() -> None:
    record = begin_generation(running(failures_in_a_row=2, stopped=True), Generation(2), T0)
    assert (record.generation, record.failures_in_a_row, record.stopped) == (2, 0, False)


@pytest.mark.parametrize(
    ("epoch", "newest", "completed", "issued"),
    [
        (6, 6, (1, 2, 3, 4, 5, 6), 7),
        (7, 7, (1, 2, 3, 4, 5, 6, 7), 7),  # taken for failed, and there after all
        (3, 9, (1, 2, 3), 9),  # gone back: the newer ones are left, their numbers stay used
        (0, 9, (), 9),
    ],
)
def test_what_a_driver_restored_counts_more_than_the_record(
    epoch: int, newest: int, completed: tuple[int, ...], issued: int
) -> None:
    before = replace(six_completed(), issued=Epoch(7), in_flight=flying().in_flight)
    record = restored(before, Epoch(epoch), Epoch(newest))
    assert record.completed == epochs(*completed)
    assert (record.issued, record.in_flight) == (issued, None)


# --- for every branch


RECORDS: list[Callable[[], Record]] = [running, flying, six_completed, fresh, lambda: request_stop(flying())]


@pytest.mark.parametrize("make", RECORDS)
@pytest.mark.parametrize("now", [-3600.0, 0.0, 11.0, 100.0, 10**6])
def test_the_same_question_has_the_same_answer(make: Callable[[], Record], now: float) -> None:
    assert decide(make(), now) == decide(make(), now)
