"""What is worth a Kubernetes event: transitions, never states. Pure.

An event's reason is one of :class:`EventReason`; the documentation's table is made from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from epochal.control.lifecycle import AT_REST, DriverUp, JobPhase, LifeReason, StartDriver, needs_person, unanswered
from epochal.control.reconcile import Tick
from epochal.protocol.decision import Complete, EndCleanup, Reason


class EventReason(StrEnum):
    """Why an event is sent; each with what it means for a person."""

    # normal
    STARTING = "Starting"
    RESTORED = "Restored"
    SPEC_CHANGED = "SpecChanged"
    SOURCES_FINISHED = "SourcesFinished"
    STOPPED = "Stopped"
    REPAIRED = "Repaired"
    DRAINING = "Draining"
    # warnings
    CHECKPOINT_FAILED = "CheckpointFailed"
    CHECKPOINT_TIMED_OUT = "CheckpointTimedOut"
    DRIVER_UNREACHABLE = "DriverUnreachable"
    DRIVER_NOT_STARTING = "DriverNotStarting"
    FAILED_CREATE = "FailedCreate"
    RECOVERING_IN_PLACE = "RecoveringInPlace"
    RESTART_SCHEDULED = "RestartScheduled"
    STALLED = "Stalled"
    FAILED = "Failed"
    WOULD_REPEAT = "OutputWouldRepeat"
    STOP_FORCED = "StopForced"
    CLEANUP_FAILED = "CleanupFailed"
    SPEC_NOT_ACCEPTED = "SpecNotAccepted"
    UNKNOWN_FIELDS = "UnknownFields"
    STORE_UNAVAILABLE = "StoreUnavailable"
    LATE_ROWS = "LateRows"


MEANING: dict[EventReason, str] = {
    EventReason.STARTING: "The operator starts the driver of a new generation.",
    EventReason.RESTORED: "The driver runs; the message names the epoch it has restored.",
    EventReason.SPEC_CHANGED: "An edit of the spec needs a new driver: the old one takes a last checkpoint first.",
    EventReason.SOURCES_FINISHED: "All sources have ended: the job takes its last checkpoint.",
    EventReason.STOPPED: "The job has stopped or finished, and its sinks have committed the latest epoch.",
    EventReason.REPAIRED: "Somebody deleted an object of the job; the operator has created it again.",
    EventReason.DRAINING: (
        "The driver has to leave its node (eviction, preemption, drain or deletion of its pod): it takes a last "
        "checkpoint, and a new driver starts elsewhere."
    ),
    EventReason.CHECKPOINT_FAILED: "A checkpoint failed; the message has the reason.",
    EventReason.CHECKPOINT_TIMED_OUT: "A checkpoint exceeded its timeout and was aborted.",
    EventReason.DRIVER_UNREACHABLE: "The driver does not answer; the message says why, where that is known.",
    EventReason.DRIVER_NOT_STARTING: (
        "The driver cannot start; the message says what its pod waits for, or what is wrong with its image."
    ),
    EventReason.FAILED_CREATE: (
        "The API server refuses an object that the driver needs (quota, Pod Security, admission webhook, "
        "overload); the message has its answer. The operator keeps retrying and sends this event once."
    ),
    EventReason.RECOVERING_IN_PLACE: (
        "An executor was lost, and with it state: the driver goes on as the next generation in the same pod and "
        "restores the latest epoch. This does not count as a restart."
    ),
    EventReason.RESTART_SCHEDULED: "The driver failed or is replaced; the message has the time of the next start.",
    EventReason.STALLED: (
        "The driver failed because of something that you need to fix; the message says what. The operator keeps "
        "retrying."
    ),
    EventReason.FAILED: "The job has failed and does not restart. Edit its spec to start it again.",
    EventReason.WOULD_REPEAT: (
        "A restore would write committed output a second time, and a sink cannot remove it. The job waits until "
        "you set `spec.restore.onCommittedOutput` to Repeat, or until a newer epoch can be restored."
    ),
    EventReason.STOP_FORCED: "The job was stopped without a last checkpoint; its latest epoch counts.",
    EventReason.CLEANUP_FAILED: "A cleanup failed. Checkpoints go on, and the operator retries later.",
    EventReason.SPEC_NOT_ACCEPTED: "The spec cannot run; the message says why. The job stays as it was.",
    EventReason.UNKNOWN_FIELDS: "The spec has fields that this release does not know; the operator ignores them.",
    EventReason.STORE_UNAVAILABLE: "The operator cannot read the job's store.",
    EventReason.LATE_ROWS: "The job dropped late rows for the first time since its start.",
}

NORMAL = frozenset(
    {
        EventReason.STARTING,
        EventReason.RESTORED,
        EventReason.SPEC_CHANGED,
        EventReason.SOURCES_FINISHED,
        EventReason.STOPPED,
        EventReason.REPAIRED,
        EventReason.DRAINING,
    }
)


@dataclass(frozen=True, slots=True)
class Event:
    reason: EventReason
    message: str

    @property
    def type(self) -> str:
        return "Normal" if self.reason in NORMAL else "Warning"


_AS_THEY_ARE: dict[Reason | LifeReason, EventReason] = {
    LifeReason.RESTORED: EventReason.RESTORED,
    LifeReason.SOURCES_FINISHED: EventReason.SOURCES_FINISHED,
    LifeReason.RECOVERING_IN_PLACE: EventReason.RECOVERING_IN_PLACE,
    LifeReason.RESTART_SCHEDULED: EventReason.RESTART_SCHEDULED,
    LifeReason.DRAINED: EventReason.DRAINING,
    Reason.CHECKPOINT_FAILED: EventReason.CHECKPOINT_FAILED,
    Reason.CHECKPOINT_TIMED_OUT: EventReason.CHECKPOINT_TIMED_OUT,
    Reason.TOO_MANY_FAILURES: EventReason.CHECKPOINT_FAILED,
    Reason.STOP_FORCED: EventReason.STOP_FORCED,
    Reason.CLEANUP_FAILED: EventReason.CLEANUP_FAILED,
    Reason.CLEANUP_TIMED_OUT: EventReason.CLEANUP_FAILED,
}
"""Steps that are transitions by themselves: no tick decides them twice."""


def events_of(tick: Tick) -> Iterator[Event]:
    """What this tick is worth telling."""
    step, before = tick.step, tick.before
    if not tick.changed and not isinstance(step.action, EndCleanup):
        return
    if _starts(tick):
        yield Event(EventReason.STARTING, step.message)
    elif reason := _AS_THEY_ARE.get(step.reason):
        yield Event(reason, step.message)
    if step.job.draining_since is not None and before is not None and before.draining_since is None:
        why = tick.seen.driver.leaving if isinstance(tick.seen.driver, DriverUp) else ""
        yield Event(EventReason.DRAINING, f"the driver has to go ({why}): making a last checkpoint, then a new driver")
    yield from _refused(tick)
    if _came_to(AT_REST, tick):
        yield Event(EventReason.STOPPED, step.job.message)
    if step.reason is Reason.CHECKPOINT_ABORTED and before and before.checkpoints.in_flight:
        yield Event(EventReason.CHECKPOINT_FAILED, step.message)
    if needs_person(step.job) and not (before and needs_person(before)):
        yield Event(EventReason.STALLED, step.job.restarts.message)
    if _came_to((JobPhase.FAILED,), tick):
        yield Event(EventReason.FAILED, step.job.message)
    if step.job.late.total and before is not None and not before.late.total:
        yield Event(EventReason.LATE_ROWS, late_message(step.job.late.total))
    if step.job.phase is JobPhase.WAITING and (before is None or before.phase is not JobPhase.WAITING):
        yield Event(EventReason.WOULD_REPEAT, step.job.message)
    silent = step.job.silent_since is not None and step.job.restored
    if silent and before is not None and before.silent_since is None:
        yield Event(EventReason.DRIVER_UNREACHABLE, unanswered(tick.seen))


def _starts(tick: Tick) -> bool:
    """A generation that was not tried before."""
    action, before = tick.step.action, tick.before
    return isinstance(action, StartDriver) and (before is None or before.checkpoints.generation != action.generation)


def _refused(tick: Tick) -> Iterator[Event]:
    """Once, and not with every try."""
    job, before = tick.step.job, tick.before
    if job.refusal is not None and (before is None or before.refusal is None):
        yield Event(EventReason.FAILED_CREATE, job.refusal.message)
    if job.checkpoints.cleanup.refused and (before is None or not before.checkpoints.cleanup.refused):
        yield Event(EventReason.CLEANUP_FAILED, tick.step.message)


def late_message(rows: int) -> str:
    return (
        f"{rows:,} rows came too late and are not in the result: give their source a longer delay, or read the late "
        "output of the operator that left them out"
    )


def _came_to(phases: tuple[JobPhase, ...], tick: Tick) -> bool:
    return tick.step.job.phase in phases and (tick.before is None or tick.before.phase not in phases)


def completed(tick: Tick) -> Complete | None:
    """The checkpoint that completed in this tick."""
    return tick.step.action if isinstance(tick.step.action, Complete) else None
