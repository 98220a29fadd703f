"""What the controller does next: pure, given spec, record, observation and now.

The heart is :func:`progress`. Each tick it decides one of three things:

1. a checkpoint is in flight -> finish it if all operators are done (or deal with its deadline or failure);
2. else the interval has passed since the last one *completed*, and no cleanup exists -> start one;
3. else nothing.

Everything else (stop wishes, pauses, cleanup) hangs on these three. The answer is a :class:`Decision`: an action, the
record as it must be stored *before* the action is carried out (write-ahead), and a reason and message that conditions,
events, logs and metrics share. A controller that dies between storing and acting decides the same
again from what it then observes.

Times are seconds since 1970. Clocks jump: no time that is stored is trusted further than the spec allows it to reach.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import assert_never

from epochal.protocol.decision import (
    AbortEpoch,
    CheckpointSpec,
    CleanupExists,
    CleanupFailed,
    CleanupRecord,
    CleanupRefused,
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
    NoCleanup,
    Nothing,
    Observation,
    Reason,
    Record,
    Recover,
    Seconds,
    SendBarrier,
    StartCleanup,
    Stop,
)
from epochal.protocol.epochs import Epoch, Generation, next_epoch

CLEANUP_FIRST_BACKOFF: Seconds = 10.0
CLEANUP_LONGEST_BACKOFF: Seconds = 600.0


# --- the decision -----------------------------------------------------------------------------------------------------


def progress(spec: CheckpointSpec, record: Record, observed: Observation, now: Seconds) -> Decision:
    """Decide what to do next. See the module's docstring; the order of the branches is the meaning."""
    record = _without_future(spec, record, now)
    if record.recovering:
        return _recover(record, Reason.DRIVER_GONE, "the driver is still to be replaced")
    if record.in_flight is not None:
        return _follow(spec, record, record.in_flight, observed.fate, now)
    if record.stop and not record.stopped:
        return _stop(spec, record, observed, now)
    if ended := _ended_cleanup(spec, record, observed.cleanup, now):
        return ended
    due = _checkpoint_due(spec, record, observed, now)
    if due.start and not _cleanup_goes_first(spec, record, now):
        return _start(spec, record, now, reason=due.reason, then_stop=False)
    if not may_be_restoring(observed) and may_clean(spec, record, observed.cleanup, now):
        return _start_cleanup(spec, record, now)
    return Decision(action=Nothing(), record=record, reason=due.reason, message=due.message)


def begin_generation(record: Record, generation: Generation, now: Seconds) -> Record:
    """The record when a new driver is started. What became of an epoch in flight shows when that driver has
    restored."""
    if generation <= record.generation:
        raise ValueError(f"generation {generation} does not come after {record.generation}")
    return replace(
        record,
        generation=generation,
        generation_started=now,
        failures_in_a_row=0,
        stopped=False,
        recovering=False,
    )


def restored(record: Record, epoch: Epoch, newest_number: Epoch) -> Record:
    """The record once the generation's driver has restored ``epoch`` (0: started empty).

    The driver has read the store, so it knows better: an epoch that was taken for failed may be there after all,
    epochs that it went back behind are left, and no number up to ``newest_number`` may be given out again.
    """
    kept = tuple(completed for completed in record.completed if completed < epoch)
    return replace(
        record,
        completed=(*kept, epoch) if epoch else (),
        issued=max(record.issued, newest_number, epoch),
        in_flight=None,
    )


def request_stop(record: Record) -> Record:
    """Write down the wish to stop. It outlives whatever is in flight now; a job that has stopped has it fulfilled."""
    return record if record.stop or record.stopped else replace(record, stop=True, failures_in_a_row=0)


# --- branch 1: a checkpoint is in flight ------------------------------------------------------------------------------


def _follow(spec: CheckpointSpec, record: Record, flight: InFlight, fate: Fate, now: Seconds) -> Decision:
    match fate:
        case EpochPublished():
            return _complete(spec, record, flight, fate, now)
        case EpochFailed(message):
            reason = Reason.CHECKPOINT_ABORTED if flight.aborting else Reason.CHECKPOINT_FAILED
            return _fail(spec, record, flight, now, reason=reason, message=message)
        case DriverLost():
            return _driver_lost(record, flight, now)
        case InProgress() | EpochUnknown() | DriverSilent():
            if flight.generation != record.generation:
                # Nobody has to hurry: the new driver seals the epoch or restores it, and `restored` ends it.
                return _wait_for(record, flight, DriverSilent())
            if now > flight.deadline:
                return _too_late(spec, record, flight, now)
            return _wait_for(record, flight, fate)
        case _:
            assert_never(fate)


def _wait_for(record: Record, flight: InFlight, fate: InProgress | EpochUnknown | DriverSilent) -> Decision:
    match fate:
        case DriverSilent():
            message = f"the driver does not answer about epoch {flight.epoch}"
            return Decision(action=Nothing(), record=record, reason=Reason.DRIVER_UNREACHABLE, message=message)
        case _ if flight.aborting:
            # Also if it has never seen the epoch: its barrier may still be on its way. Only a driver that was told to
            # give it up refuses it.
            message = f"epoch {flight.epoch} is being aborted"
            return Decision(
                action=AbortEpoch(flight.epoch), record=record, reason=Reason.CHECKPOINT_ABORTED, message=message
            )
        case EpochUnknown():
            return Decision(
                action=SendBarrier(flight.barrier(), flight.generation),
                record=record,
                reason=Reason.BARRIER_LOST,
                message=f"the driver has not seen the barrier of epoch {flight.epoch}: sending it again",
            )
        case InProgress(operators_done=done, operators_total=total):
            message = f"epoch {flight.epoch}: {done} of {total} operators done"
            return Decision(action=Nothing(), record=record, reason=Reason.CHECKPOINT_IN_PROGRESS, message=message)
        case _:
            assert_never(fate)


def _complete(spec: CheckpointSpec, record: Record, flight: InFlight, fate: EpochPublished, now: Seconds) -> Decision:
    record = replace(
        record,
        in_flight=None,
        last_checkpoint=now,
        last_checkpoint_generation=flight.generation,
        last_attempt_ended=now,
        failures_in_a_row=0,
        completed=(*record.completed, flight.epoch)[-_remembered(spec) :],
        completed_count=record.completed_count + 1,
    )
    duration = max(0.0, now - flight.started)
    if flight.then_stop:
        return Decision(
            action=Stop(forced=False),
            record=replace(record, stop=False, stopped=True),
            reason=Reason.STOPPED,
            message=f"stopped with epoch {flight.epoch}",
        )
    return Decision(
        action=Complete(flight.epoch, duration, fate.bytes),
        record=record,
        reason=Reason.CHECKPOINT_COMPLETED,
        message=f"epoch {flight.epoch} completed in {duration:.1f} s, {fate.bytes} bytes",
    )


def _fail(
    spec: CheckpointSpec, record: Record, flight: InFlight, now: Seconds, *, reason: Reason, message: str
) -> Decision:
    failures = record.failures_in_a_row + 1
    record = replace(record, in_flight=None, last_attempt_ended=now, failures_in_a_row=failures)
    message = f"epoch {flight.epoch} failed: {message}"
    if failures <= spec.tolerable_failures:
        return Decision(action=Fail(flight.epoch), record=record, reason=reason, message=message)
    if record.stop:
        return _force_stop(record, f"{message}; given up after {failures} tries")
    message = f"{message}; {failures} in a row ({spec.tolerable_failures} tolerated): restarting from the newest"
    return _recover(replace(record, failures_in_a_row=0), Reason.TOO_MANY_FAILURES, message)


def _too_late(spec: CheckpointSpec, record: Record, flight: InFlight, now: Seconds) -> Decision:
    """The deadline has passed. First ask the driver to give up; if that has no answer either, go on without it."""
    took = f"not done {now - flight.started:.0f} s after its start"
    if not flight.aborting:
        record = replace(record, in_flight=replace(flight, aborting=True, deadline=now + spec.timeout))
        return Decision(
            action=AbortEpoch(flight.epoch),
            record=record,
            reason=Reason.CHECKPOINT_TIMED_OUT,
            message=f"epoch {flight.epoch} timed out: {took}",
        )
    record = replace(record, in_flight=None, last_attempt_ended=now, failures_in_a_row=0)
    message = f"epoch {flight.epoch} timed out and the driver did not give it up"
    if record.stop:
        return _force_stop(record, message)
    return _recover(record, Reason.CHECKPOINT_TIMED_OUT, message)


def _driver_lost(record: Record, flight: InFlight, now: Seconds) -> Decision:
    record = replace(record, in_flight=None, last_attempt_ended=now)
    message = f"the driver of generation {flight.generation} ended before epoch {flight.epoch} was published"
    if record.stop:
        return _force_stop(record, message)
    return _recover(record, Reason.DRIVER_GONE, message)


def _recover(record: Record, reason: Reason, message: str) -> Decision:
    """Written down, because the old driver may still be at an epoch that the record has given up: until it is
    replaced, no other may begin."""
    return Decision(action=Recover(), record=replace(record, recovering=True), reason=reason, message=message)


# --- branch 2: start one ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Due:
    start: bool
    reason: Reason
    message: str


def _checkpoint_due(spec: CheckpointSpec, record: Record, observed: Observation, now: Seconds) -> _Due:
    """Whether a periodic checkpoint starts now: a chain of small checks, the first that objects gives the reason."""
    if record.stopped:
        return _Due(False, Reason.STOPPED, "the job has stopped")
    if not observed.driver_ready:
        return _Due(False, Reason.DRIVER_NOT_READY, "the driver is not ready")
    if record.last_checkpoint is None or record.last_checkpoint_generation != record.generation:
        if now <= next_checkpoint(spec, record):
            return _Due(False, Reason.NOT_DUE, f"the first checkpoint of generation {record.generation} is not due yet")
        reason, message = Reason.FIRST_CHECKPOINT_DUE, f"the first checkpoint of generation {record.generation} is due"
    else:
        if not interval_passed(spec, record.last_checkpoint, now):
            return _Due(False, Reason.NOT_DUE, "the interval has not passed since the last checkpoint completed")
        reason, message = Reason.CHECKPOINT_DUE, "the interval has passed since the last checkpoint completed"
    if pausing(spec, record, now):
        return _Due(False, Reason.MIN_PAUSE, "the pause after the last checkpoint is not over")
    if not cleanup_allows_checkpoint(observed.cleanup):
        return _Due(False, Reason.CLEANUP_RUNNING, "deferred: a cleanup is running")
    return _Due(True, reason, message)


def next_checkpoint(spec: CheckpointSpec, record: Record) -> Seconds:
    """No periodic checkpoint begins before this moment."""
    if record.last_checkpoint is None or record.last_checkpoint_generation != record.generation:
        return record.generation_started + first_delay(spec, record)
    return record.last_checkpoint + spec.interval


def interval_passed(spec: CheckpointSpec, last_checkpoint: Seconds, now: Seconds) -> bool:
    """Strictly more than the interval. A completion that lies further ahead than that is a clock that was set back."""
    return abs(now - last_checkpoint) > spec.interval


def pausing(spec: CheckpointSpec, record: Record, now: Seconds) -> bool:
    return record.last_attempt_ended is not None and now < record.last_attempt_ended + spec.min_pause


def first_delay(spec: CheckpointSpec, record: Record) -> Seconds:
    """U(0, interval), the same each time it is asked for: a thousand jobs started together do not checkpoint
    together."""
    seed = hashlib.sha256(f"{record.uid}/{record.generation}".encode()).digest()
    return spec.interval * (int.from_bytes(seed[:8]) / 2**64)


def cleanup_allows_checkpoint(cleanup: CleanupState) -> bool:
    return isinstance(cleanup, NoCleanup)


def _start(spec: CheckpointSpec, record: Record, now: Seconds, *, reason: Reason, then_stop: bool) -> Decision:
    flight = InFlight(
        epoch=next_epoch(record.issued),
        generation=record.generation,
        started=now,
        deadline=now + spec.timeout,
        min_epoch=record.min_epoch,
        then_stop=then_stop,
    )
    return Decision(
        action=SendBarrier(flight.barrier(), flight.generation),
        record=replace(record, issued=flight.epoch, in_flight=flight),
        reason=reason,
        message=f"starting epoch {flight.epoch}" + (", then stopping" if then_stop else ""),
    )


def _stop(spec: CheckpointSpec, record: Record, observed: Observation, now: Seconds) -> Decision:
    """A stop waits for the checkpoint in flight, for nothing else: not for the interval, not for cleanup."""
    if isinstance(observed.fate, DriverLost):
        return _force_stop(record, "no driver is running that could take a last checkpoint")
    if record.failures_in_a_row and pausing(spec, record, now):
        message = "pausing before the next try to stop"
        return Decision(action=Nothing(), record=record, reason=Reason.MIN_PAUSE, message=message)
    if not observed.driver_ready:
        return Decision(
            action=Nothing(),
            record=record,
            reason=Reason.DRIVER_NOT_READY,
            message="stopping: waiting for the driver to be ready for a last checkpoint",
        )
    return _start(spec, record, now, reason=Reason.STOP_REQUESTED, then_stop=True)


def _force_stop(record: Record, why: str) -> Decision:
    kept = f"the newest epoch is {record.newest_completed}" if record.completed else "there is no epoch"
    return Decision(
        action=Stop(forced=True),
        record=replace(record, in_flight=None, stop=False, stopped=True, recovering=False),
        reason=Reason.STOP_FORCED,
        message=f"stopped without a last checkpoint ({why}); {kept}",
    )


# --- cleanup ----------------------------------------------------------------------------------------------------------


def collectable(spec: CheckpointSpec, record: Record) -> Epoch | None:
    """The min_epoch that retention allows, if a cleanup is worth it: the newest ``keep`` completed epochs stay, and at
    least ``every`` older ones wait to be collected."""
    if len(record.completed) <= spec.keep:
        return None
    new_min = record.completed[-spec.keep]
    waiting = sum(1 for epoch in record.completed if epoch < new_min)
    return new_min if waiting >= spec.every else None


def may_be_restoring(observed: Observation) -> bool:
    """A driver that is not ready may be going back to an epoch that retention does not count on any more."""
    return not observed.driver_ready


def may_clean(spec: CheckpointSpec, record: Record, cleanup: CleanupState, now: Seconds) -> bool:
    """No cleanup while stopping, while one exists, before the back-off is over, or twice without a checkpoint
    between."""
    return (
        not record.stop
        and not record.stopped
        and isinstance(cleanup, NoCleanup)
        and collectable(spec, record) is not None
        and now >= record.cleanup.not_before
        and record.completed_count > record.cleanup.completed_at_last_try
    )


def _cleanup_goes_first(spec: CheckpointSpec, record: Record, now: Seconds) -> bool:
    """Checkpoints come first; but where they are always due, a cleanup that waits too long would never have its
    turn."""
    overdue = replace(spec, every=2 * spec.every)
    return record.completed_count > 0 and may_clean(overdue, record, NoCleanup(), now)


def _start_cleanup(spec: CheckpointSpec, record: Record, now: Seconds) -> Decision:
    min_epoch = collectable(spec, record)
    assert min_epoch is not None
    record = replace(
        record,
        min_epoch=max(record.min_epoch, min_epoch),
        cleanup=replace(record.cleanup, started=now, completed_at_last_try=record.completed_count),
    )
    return Decision(
        action=StartCleanup(record.min_epoch),
        record=record,
        reason=Reason.CLEANUP_DUE,
        message=f"cleaning up what only epochs before {record.min_epoch} need",
    )


def _ended_cleanup(spec: CheckpointSpec, record: Record, cleanup: CleanupState, now: Seconds) -> Decision | None:
    """A cleanup that has ended is noted and removed; one that takes too long counts as failed."""
    match cleanup:
        case CleanupSucceeded():
            record = replace(
                record,
                completed=tuple(epoch for epoch in record.completed if epoch >= record.min_epoch),
                cleanup=CleanupRecord(completed_at_last_try=record.cleanup.completed_at_last_try),
            )
            message = f"cleaned up to epoch {record.min_epoch}"
            return Decision(
                action=EndCleanup(succeeded=True), record=record, reason=Reason.CLEANUP_SUCCEEDED, message=message
            )
        case CleanupFailed(message):
            return _cleanup_failed(record, now, Reason.CLEANUP_FAILED, message)
        case CleanupRefused(message):
            return _cleanup_failed(record, now, Reason.CLEANUP_REFUSED, message)
        case CleanupExists():
            started = record.cleanup.started
            if started is None:
                # Not in the record: another controller's, or a record that was lost. It gets a full time to finish.
                record = replace(record, cleanup=replace(record.cleanup, started=now))
                message = "a cleanup is running that is not in the record"
                return Decision(action=Nothing(), record=record, reason=Reason.CLEANUP_RUNNING, message=message)
            if now - started > spec.cleanup_timeout:
                message = f"still running after {now - started:.0f} s"
                return _cleanup_failed(record, now, Reason.CLEANUP_TIMED_OUT, message)
            return None
        case NoCleanup():
            return None
        case _:
            assert_never(cleanup)


def _cleanup_failed(record: Record, now: Seconds, reason: Reason, why: str) -> Decision:
    failures = record.cleanup.failures + 1
    pause = min(CLEANUP_LONGEST_BACKOFF, CLEANUP_FIRST_BACKOFF * 2.0 ** min(failures - 1, 10))
    refused = why if reason is Reason.CLEANUP_REFUSED else ""
    cleanup = replace(record.cleanup, started=None, failures=failures, not_before=now + pause, refused=refused)
    return Decision(
        action=EndCleanup(succeeded=False),
        record=replace(record, cleanup=cleanup),
        reason=reason,
        message=f"cleanup failed ({why}); trying again in {pause:.0f} s, checkpoints go on",
    )


# --- clocks -----------------------------------------------------------------------------------------------------------


def _remembered(spec: CheckpointSpec) -> int:
    """How many completed epochs a record holds: what retention asks for, and some more while cleanup is late."""
    return spec.keep + 2 * spec.every + 16


def _without_future(spec: CheckpointSpec, record: Record, now: Seconds) -> Record:
    """Bring times that lie in the future back to now.

    A clock that was set back would otherwise hold the next checkpoint, a deadline or a back-off until it catches up.
    """
    flight = record.in_flight
    if flight is not None:
        flight = replace(flight, started=min(flight.started, now), deadline=min(flight.deadline, now + spec.timeout))
    cleanup = record.cleanup
    if cleanup.started is not None and cleanup.started > now:
        cleanup = replace(cleanup, started=now)
    if cleanup.not_before > now + CLEANUP_LONGEST_BACKOFF:
        cleanup = replace(cleanup, not_before=now + CLEANUP_LONGEST_BACKOFF)
    return replace(
        record,
        in_flight=flight,
        cleanup=cleanup,
        generation_started=min(record.generation_started, now),
        last_attempt_ended=None if record.last_attempt_ended is None else min(record.last_attempt_ended, now),
    )
