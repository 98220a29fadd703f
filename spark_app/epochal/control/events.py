"""What is worth a Kubernetes event: transitions, never states. Pure.

An event's reason is one of :class:`EventReason`; the documentation's table is made from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from epochal.control.lifecycle import AT_REST, DriverUp, JobPhase, LifeReason, StartDriver, needs_person
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
    CLEANUP_SUCCEEDED = "CleanupSucceeded"
    REPAIRED = "Repaired"
    DRAINING = "Draining"
    # warnings
    CHECKPOINT_FAILED = "CheckpointFailed"
    CHECKPOINT_TIMED_OUT = "CheckpointTimedOut"
    DRIVER_UNREACHABLE = "DriverUnreachable"
    DRIVER_NOT_STARTING = "DriverNotStarting"
    FAILED_CREATE = "FailedCreate"
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
    EventReason.STARTING: "A new generation's driver is started.",
    EventReason.RESTORED: "The driver runs, and says from which epoch it went on.",
    EventReason.SPEC_CHANGED: "The spec has changed in a way that needs a new driver: the old one stops first.",
    EventReason.SOURCES_FINISHED: "Every source has ended: the last checkpoint is made.",
    EventReason.STOPPED: "The job has stopped, or finished: the output of its newest epoch is committed.",
    EventReason.CLEANUP_SUCCEEDED: "What only old epochs needed is deleted.",
    EventReason.REPAIRED: "Something that belongs to the job was deleted by somebody, and is there again.",
    EventReason.DRAINING: (
        "The driver has to go (its pod is evicted, preempted or deleted, its node is drained): it makes a last "
        "checkpoint, and a new driver starts elsewhere."
    ),
    EventReason.CHECKPOINT_FAILED: "A checkpoint failed; the message says why.",
    EventReason.CHECKPOINT_TIMED_OUT: "A checkpoint took longer than its timeout and is aborted.",
    EventReason.DRIVER_UNREACHABLE: "The driver does not answer.",
    EventReason.DRIVER_NOT_STARTING: "The driver's pod waits for something that may never come.",
    EventReason.FAILED_CREATE: (
        "The API server refuses something that the driver needs (a quota is used up, Pod Security or a webhook says "
        "no, it is too busy); the message has its words. It is tried again, and told once."
    ),
    EventReason.RESTART_SCHEDULED: "The driver ended, or is replaced; the message says when the next one starts.",
    EventReason.STALLED: (
        "The driver ended by something that a person must mend; the message says what. It is tried again meanwhile."
    ),
    EventReason.FAILED: "The job has failed for good; an edit of its spec gives it another chance.",
    EventReason.WOULD_REPEAT: (
        "Going back would bring committed output a second time, and a sink cannot take it back: the job waits until "
        "`spec.restore.onCommittedOutput` is Repeat, or a newer epoch can be restored."
    ),
    EventReason.STOP_FORCED: "The job was stopped without a last checkpoint: the newest epoch is what counts.",
    EventReason.CLEANUP_FAILED: "A cleanup failed; checkpoints go on, and it is tried again later.",
    EventReason.SPEC_NOT_ACCEPTED: "The spec cannot be run; the job is left as it was.",
    EventReason.UNKNOWN_FIELDS: "The spec has fields that this release does not know; it passes over them.",
    EventReason.STORE_UNAVAILABLE: "The operator cannot read the job's store.",
    EventReason.LATE_ROWS: "Rows came too late for the first time: they are not in the result.",
}

NORMAL = frozenset(
    {
        EventReason.STARTING,
        EventReason.RESTORED,
        EventReason.SPEC_CHANGED,
        EventReason.SOURCES_FINISHED,
        EventReason.STOPPED,
        EventReason.CLEANUP_SUCCEEDED,
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
    LifeReason.RESTART_SCHEDULED: EventReason.RESTART_SCHEDULED,
    LifeReason.DRAINED: EventReason.DRAINING,
    Reason.CHECKPOINT_FAILED: EventReason.CHECKPOINT_FAILED,
    Reason.CHECKPOINT_TIMED_OUT: EventReason.CHECKPOINT_TIMED_OUT,
    Reason.TOO_MANY_FAILURES: EventReason.CHECKPOINT_FAILED,
    Reason.STOP_FORCED: EventReason.STOP_FORCED,
    Reason.CLEANUP_SUCCEEDED: EventReason.CLEANUP_SUCCEEDED,
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
        yield Event(EventReason.DRIVER_UNREACHABLE, "the driver does not answer")


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
