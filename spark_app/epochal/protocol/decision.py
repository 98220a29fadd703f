"""The words of the controller's decision: what is asked for, what is written down, what is seen, what to do.

:mod:`epochal.protocol.progress` turns the first three into the fourth. Nothing here decides anything.
"""

from dataclasses import dataclass
from enum import StrEnum

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH, Epoch, Generation

Seconds = float
"""Since 1970 for a moment; plain for a duration."""


class Reason(StrEnum):
    """Why a decision was made. Conditions, events, logs and metric labels use these words and no others."""

    # in flight
    CHECKPOINT_IN_PROGRESS = "CheckpointInProgress"
    CHECKPOINT_COMPLETED = "CheckpointCompleted"
    CHECKPOINT_FAILED = "CheckpointFailed"
    CHECKPOINT_TIMED_OUT = "CheckpointTimedOut"
    CHECKPOINT_ABORTED = "CheckpointAborted"
    BARRIER_LOST = "BarrierLost"
    DRIVER_UNREACHABLE = "DriverUnreachable"
    DRIVER_GONE = "DriverGone"
    TOO_MANY_FAILURES = "TooManyFailures"
    # starting
    CHECKPOINT_DUE = "CheckpointDue"
    FIRST_CHECKPOINT_DUE = "FirstCheckpointDue"
    STOP_REQUESTED = "StopRequested"
    # waiting
    NOT_DUE = "NotDue"
    MIN_PAUSE = "MinPause"
    CLEANUP_RUNNING = "CleanupRunning"
    DRIVER_NOT_READY = "DriverNotReady"
    # stopping
    STOPPED = "Stopped"
    STOP_FORCED = "StopForced"
    # cleanup
    CLEANUP_DUE = "CleanupDue"
    CLEANUP_SUCCEEDED = "CleanupSucceeded"
    CLEANUP_FAILED = "CleanupFailed"
    CLEANUP_TIMED_OUT = "CleanupTimedOut"
    CLEANUP_REFUSED = "CleanupRefused"


# --- what the user asks for -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """The part of a StreamingJob's spec that decides about checkpoints. Read anew each tick, so edits apply at once."""

    interval: Seconds = 10.0
    timeout: Seconds = 600.0
    min_pause: Seconds = 0.0
    tolerable_failures: int = 3
    keep: int = 4
    every: int = 20
    cleanup_timeout: Seconds = 300.0


# --- what the controller has written down -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """The one checkpoint in flight. ``aborting``: its deadline has passed and the driver has been asked to give it
    up."""

    epoch: Epoch
    generation: Generation
    started: Seconds
    deadline: Seconds
    min_epoch: Epoch
    then_stop: bool = False
    aborting: bool = False

    def barrier(self) -> CheckpointBarrier:
        """The same barrier each time it is asked for: sending it twice is harmless."""
        return CheckpointBarrier(
            epoch=self.epoch,
            min_epoch=self.min_epoch,
            timestamp=max(0, int(self.started * 1_000_000)),
            then_stop=self.then_stop,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRecord:
    """The cleanup in hand (``started``), and how the ones before went. ``refused``: why the last one could not be
    made, if that is so."""

    started: Seconds | None = None
    failures: int = 0
    not_before: Seconds = 0.0
    completed_at_last_try: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the controller knows of a job's checkpoints; stored in the job's status.

    ``issued`` is the highest epoch number ever given out. ``completed`` holds the newest completed epochs, oldest
    first, as many as retention needs. ``last_checkpoint`` is when the newest of them completed, and moves for nothing
    else. ``stop`` is the wish to stop: it stays until its own checkpoint is published or given up. ``recovering``: the
    driver is to be replaced, and stays so until a new generation begins.
    """

    generation: Generation
    generation_started: Seconds
    uid: str = ""
    issued: Epoch = NO_EPOCH
    min_epoch: Epoch = FIRST_EPOCH
    in_flight: InFlight | None = None
    last_checkpoint: Seconds | None = None
    last_checkpoint_generation: Generation | None = None
    last_attempt_ended: Seconds | None = None
    failures_in_a_row: int = 0
    completed: tuple[Epoch, ...] = ()
    completed_count: int = 0
    stop: bool = False
    stopped: bool = False
    recovering: bool = False
    cleanup: CleanupRecord = CleanupRecord()

    @property
    def newest_completed(self) -> Epoch:
        return self.completed[-1] if self.completed else NO_EPOCH


# --- what the controller sees -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InProgress:
    """The driver is at it."""

    operators_done: int = 0
    operators_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPublished:
    """The epoch is real: the driver says so, or, if there is no driver any more, the store."""

    bytes: int = 0


@dataclass(frozen=True, slots=True)
class EpochFailed:
    """The epoch will never be: an operator or the store failed, or the driver gave it up as asked."""

    message: str


@dataclass(frozen=True, slots=True)
class EpochUnknown:
    """The driver answers, but has never seen this barrier."""


@dataclass(frozen=True, slots=True)
class DriverSilent:
    """The driver does not answer; what became of the epoch is not known."""


@dataclass(frozen=True, slots=True)
class DriverLost:
    """The driver has ended, and the store does not have the epoch."""


Fate = InProgress | EpochPublished | EpochFailed | EpochUnknown | DriverSilent | DriverLost
"""What became of the epoch in flight."""


@dataclass(frozen=True, slots=True)
class NoCleanup:
    """There is no cleanup Job."""


@dataclass(frozen=True, slots=True)
class CleanupExists:
    """A cleanup Job exists and has not ended."""


@dataclass(frozen=True, slots=True)
class CleanupSucceeded:
    """The cleanup Job has done its work and is still there."""


@dataclass(frozen=True, slots=True)
class CleanupFailed:
    """The cleanup Job has failed and is still there."""

    message: str


@dataclass(frozen=True, slots=True)
class CleanupRefused:
    """The cleanup Job could not be made, or exists and cannot get a pod."""

    message: str


CleanupState = NoCleanup | CleanupExists | CleanupSucceeded | CleanupFailed | CleanupRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is out there now. ``fate`` is looked at only while a checkpoint is in flight."""

    driver_ready: bool = True
    fate: Fate = EpochUnknown()
    cleanup: CleanupState = NoCleanup()


# --- what to do -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendBarrier:
    """Send this barrier to the driver: for the first time, or again because it never arrived."""

    barrier: CheckpointBarrier
    generation: Generation


@dataclass(frozen=True, slots=True)
class AbortEpoch:
    """Ask the driver to give this epoch up. Its answer is the epoch's fate."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Complete:
    """The epoch completed."""

    epoch: Epoch
    duration: Seconds
    bytes: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The epoch failed; the job goes on."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Recover:
    """Replace the driver: a new generation from the newest epoch."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The job has stopped, or is to be stopped without its last checkpoint (``forced``): end its driver."""

    forced: bool


@dataclass(frozen=True, slots=True)
class StartCleanup:
    """Create the cleanup Job. ``min_epoch`` is in the record already."""

    min_epoch: Epoch


@dataclass(frozen=True, slots=True)
class EndCleanup:
    """Remove the cleanup Job: it has ended, or has run too long."""

    succeeded: bool


@dataclass(frozen=True, slots=True)
class Nothing:
    """Wait."""


Action = SendBarrier | AbortEpoch | Complete | Fail | Recover | Stop | StartCleanup | EndCleanup | Nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Store ``record`` first, then carry out ``action``."""

    action: Action
    record: Record
    reason: Reason
    message: str
