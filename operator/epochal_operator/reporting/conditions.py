"""A job's conditions, as ``metav1.Condition`` has them. Pure, and worded so that nothing changes while nothing happens:
each change is a write."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from epochal.control.job import JobSpec
from epochal.control.lifecycle import JobPhase, JobRecord, LifeReason, Seen, needs_person, unanswered
from epochal.control.reconcile import Tick
from epochal.protocol.decision import CheckpointSpec, CleanupExists, Reason, Seconds
from epochal_operator.api import JsonObject
from epochal_operator.reporting.timestamps import timestamp

FRESH_INTERVALS = 3
LEAST_FRESH: Seconds = 60.0


class ConditionType(StrEnum):
    READY = "Ready"
    CHECKPOINTING = "Checkpointing"
    CHECKPOINT_FRESH = "CheckpointFresh"
    CLEANUP_RUNNING = "CleanupRunning"
    STALLED = "Stalled"


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    type: ConditionType
    status: Status
    reason: str
    message: str = ""


def conditions(spec: JobSpec, tick: Tick, now: Seconds) -> list[Condition]:
    job = tick.step.job
    return [
        _ready(tick),
        _checkpointing(job),
        _fresh(spec.checkpoint, job, now),
        _cleanup_running(job, tick.seen),
        _stalled(spec, tick),
    ]


def blocked(reason: str, message: str) -> list[Condition]:
    """What can be said of a job whose round could not even be planned."""
    return [Condition(ConditionType.STALLED, Status.TRUE, reason, message)]


def _ready(tick: Tick) -> Condition:
    job = tick.step.job
    if job.phase is JobPhase.RUNNING:
        if job.silent_since is not None:
            return Condition(ConditionType.READY, Status.UNKNOWN, Reason.DRIVER_UNREACHABLE, unanswered(tick.seen))
        message = f"generation {job.checkpoints.generation} runs"
        return Condition(ConditionType.READY, Status.TRUE, job.phase, message)
    return Condition(ConditionType.READY, Status.FALSE, job.phase, phase_message(tick))


def phase_message(tick: Tick) -> str:
    """Why the job is where it is. A text that counts seconds down would be a write a second."""
    job = tick.step.job
    if job.refusal is not None:
        return f"{job.refusal.message}; next try at {timestamp(job.refusal.not_before)}"
    match job.phase:
        case JobPhase.RESTARTING if job.restarts.not_before:
            return f"{job.restarts.message}; next try at {timestamp(job.restarts.not_before)}"
        case JobPhase.RESTARTING:
            return job.restarts.message
        case JobPhase.STARTING | JobPhase.PENDING:
            return tick.step.message
        case JobPhase.RUNNING:
            return ""
        case JobPhase.STOPPING:
            return job.message if job.committing else ""
        case JobPhase.STOPPED | JobPhase.FINISHED | JobPhase.FAILED | JobPhase.WAITING:
            return job.message


def _checkpointing(job: JobRecord) -> Condition:
    flight = job.checkpoints.in_flight
    if flight is None:
        return Condition(ConditionType.CHECKPOINTING, Status.FALSE, "NoneInFlight")
    message = f"epoch {flight.epoch}" + (", then the job stops" if flight.then_stop else "")
    reason = Reason.CHECKPOINT_ABORTED if flight.aborting else Reason.CHECKPOINT_IN_PROGRESS
    return Condition(ConditionType.CHECKPOINTING, Status.TRUE, reason, message)


def fresh_limit(spec: CheckpointSpec) -> Seconds:
    return max(LEAST_FRESH, FRESH_INTERVALS * spec.interval)


def _fresh(spec: CheckpointSpec, job: JobRecord, now: Seconds) -> Condition:
    kind = ConditionType.CHECKPOINT_FRESH
    if job.phase in (JobPhase.STOPPED, JobPhase.FINISHED, JobPhase.PENDING):
        return Condition(kind, Status.UNKNOWN, "NotRunning")
    since = job.checkpoints.last_checkpoint or job.running_since
    if since is None:
        return Condition(kind, Status.UNKNOWN, "NoCheckpointYet")
    if now - since <= fresh_limit(spec):
        return Condition(kind, Status.TRUE, "Recent")
    message = f"no checkpoint has completed since {timestamp(since)}"
    return Condition(kind, Status.FALSE, "TooOld", message)


def _cleanup_running(job: JobRecord, seen: Seen) -> Condition:
    kind, refused = ConditionType.CLEANUP_RUNNING, job.checkpoints.cleanup.refused
    if refused:
        return Condition(kind, Status.FALSE, LifeReason.FAILED_CREATE, refused)
    running = isinstance(seen.cleanup, CleanupExists)
    return Condition(kind, Status.TRUE, "JobExists") if running else Condition(kind, Status.FALSE, "NoJob")


def _stalled(spec: JobSpec, tick: Tick) -> Condition:
    """True if nothing will get better until somebody does something. A job that is tried again by itself meanwhile is
    stalled, too, until a try succeeds."""
    kind, job = ConditionType.STALLED, tick.step.job
    if job.phase is JobPhase.FAILED:
        return Condition(kind, Status.TRUE, "Failed", job.message)
    if job.phase is JobPhase.WAITING:
        return Condition(kind, Status.TRUE, LifeReason.WOULD_REPEAT, job.message)
    if job.refusal is not None:
        return Condition(kind, Status.TRUE, LifeReason.FAILED_CREATE, job.refusal.message)
    if needs_person(job):
        return Condition(kind, Status.TRUE, job.restarts.fault, job.restarts.message)
    if spec.problem:
        return Condition(kind, Status.TRUE, LifeReason.SPEC_NOT_ACCEPTED, spec.problem)
    return Condition(kind, Status.FALSE, "Progressing")


def laid_over(
    before: Iterable[Mapping[str, Any]], found: Iterable[Condition], *, version: int, now: Seconds
) -> list[JsonObject]:
    """The list for the status: what was not found anew stays, and the time of transition moves with the status only."""
    result = {str(condition["type"]): dict(condition) for condition in before}
    for condition in found:
        old = result.get(condition.type)
        since = old["lastTransitionTime"] if old and old["status"] == condition.status else timestamp(now)
        result[condition.type] = {
            "type": str(condition.type),
            "status": str(condition.status),
            "observedGeneration": version,
            "lastTransitionTime": since,
            "reason": str(condition.reason),
            "message": condition.message,
        }
    return list(result.values())
