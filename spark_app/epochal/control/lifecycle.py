"""The life of a job: starting drivers, following them, replacing them, stopping. Pure: no clock, no client, no store.

:func:`decide` looks after the driver, and asks :func:`epochal.protocol.progress.progress` about checkpoints whenever
there is a driver that could make one, or an epoch in flight whose fate is open. One action a tick; the record is stored
before the action is carried out, so a controller that dies in between decides the same again.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from epochal.control.job import DesiredState, JobSpec, OnCommittedOutput
from epochal.control.refusal import Refused, RefusedTries, refused_again
from epochal.protocol.control import (
    EXIT_DRAINED,
    EXIT_MISCONFIGURED,
    EXIT_NOTHING_TO_RESTORE,
    EXIT_REFUSED,
    EXIT_WOULD_REPEAT,
    CheckpointReport,
    DriverPhase,
    DriverStatus,
    RestoreConfig,
)
from epochal.protocol.decision import (
    Action,
    CleanupState,
    Complete,
    DriverLost,
    Fail,
    Fate,
    NoCleanup,
    Nothing,
    Observation,
    Reason,
    Record,
    Recover,
    Seconds,
    Stop,
)
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation, next_generation
from epochal.protocol.progress import begin_generation, progress, request_stop, restored

STOP_GRACE: Seconds = 60.0
"""How long a driver may take to leave after its last checkpoint."""


class JobPhase(StrEnum):
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FINISHED = "Finished"
    FAILED = "Failed"
    WAITING = "Waiting"


_P = JobPhase
TRANSITIONS: dict[JobPhase, frozenset[JobPhase]] = {
    _P.PENDING: frozenset({_P.STARTING, _P.STOPPING, _P.STOPPED}),
    _P.STARTING: frozenset({_P.RUNNING, _P.STOPPING, _P.RESTARTING, _P.STOPPED, _P.PENDING, _P.FAILED, _P.WAITING}),
    _P.RUNNING: frozenset({_P.STOPPING, _P.RESTARTING, _P.STARTING, _P.FAILED}),
    _P.RESTARTING: frozenset({_P.STARTING, _P.STOPPING, _P.STOPPED, _P.FINISHED, _P.PENDING, _P.FAILED}),
    _P.STOPPING: frozenset(
        {_P.RUNNING, _P.STOPPED, _P.FINISHED, _P.RESTARTING, _P.STARTING, _P.PENDING, _P.FAILED, _P.WAITING}
    ),
    _P.STOPPED: frozenset({_P.PENDING}),
    _P.FINISHED: frozenset({_P.PENDING}),
    _P.FAILED: frozenset({_P.RESTARTING}),
    _P.WAITING: frozenset({_P.RESTARTING}),
}
"""Where each phase can lead to. From Failed, Waiting and Finished only somebody who asks leads on. A job that runs or
stops starts again without a restart if its driver begins the next generation by itself."""

HALTED = (JobPhase.FAILED, JobPhase.WAITING)
"""No driver is started until the spec is edited: the job has failed for good, or waits for a choice."""


class LifeReason(StrEnum):
    """Why a driver is started, replaced or left alone; as :class:`Reason` is for checkpoints."""

    STARTING = "Starting"
    RESTORED = "Restored"
    RECOVERING_IN_PLACE = "RecoveringInPlace"
    FAILED_CREATE = "FailedCreate"
    RESTART_SCHEDULED = "RestartScheduled"
    BACKING_OFF = "BackingOff"
    ENDING_DRIVER = "EndingDriver"
    DRIVER_LEAVING = "DriverLeaving"
    COMMITTING = "Committing"
    SOURCES_FINISHED = "SourcesFinished"
    RESTARTS_EXHAUSTED = "RestartsExhausted"
    SPEC_NOT_ACCEPTED = "SpecNotAccepted"
    MISCONFIGURED = "Misconfigured"
    REFUSED = "Refused"
    NOTHING_TO_RESTORE = "NothingToRestore"
    WOULD_REPEAT = "OutputWouldRepeat"
    RESUMING = "Resuming"
    DRAINED = "Drained"
    ENDED = "Ended"


# --- what is written down ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """``in_a_row`` without a healthy time between them. ``fault``: the last driver ended by something that a person
    must mend, and this says what kind; empty if time mends it. ``version`` is the spec's when the restart was
    planned."""

    in_a_row: int = 0
    total: int = 0
    not_before: Seconds = 0.0
    message: str = ""
    fault: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """Rows that came too late since the job was started by somebody. ``of_driver``: those that the present driver has
    told of. Not the newest numbers: each change is a write."""

    total: int = 0
    of_driver: int = 0

    def seen(self, status: DriverStatus) -> "LateRows":
        """Written down when they begin, when they have doubled, and at the end."""
        new = status.late_rows - self.of_driver
        if new <= 0 or (0 < new < self.total and not status.finished and status.phase is DriverPhase.RUNNING):
            return self
        return LateRows(total=self.total + new, of_driver=status.late_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """All that a controller writes down about a job.

    ``restored`` says that the present generation has restored, and the record knows what. ``went_back`` is the wish to
    go back that was carried out, so that it is not carried out again. ``finished``: every source has ended.
    ``revision`` is the spec's that the present generation was started with; ``failed_version`` the spec's version with
    which the job failed: any edit after that gives it another chance. ``committing``: the job is to rest, but for the
    output of its newest epoch, which the present generation commits; still set if that failed for good. ``late`` is how
    many rows came too late. ``proven`` is the newest revision with which a generation has restored: what ends such a
    job later has come from outside. ``draining_since``: since when the present generation's driver has to go (its pod
    is evicted, its node is drained), so it makes a last checkpoint, and another one starts elsewhere. ``begun``: the
    present generation's driver was seen, alive or not; until then ``refusal`` is what keeps it from being made.
    ``version`` is the spec's with which the present generation was started, ``asked`` the wish to go back that it was
    started with, and ``told`` all that it was told of where to begin: the spec may say another by the time it has
    restored. A record of release 0.1 has none of these. ``process`` is the generation with which the present driver's
    process began, if it has gone on to the present one by itself: its pod or directory has that number, and ``told`` is
    what it was told as that one.
    """

    checkpoints: Record
    phase: JobPhase = JobPhase.PENDING
    message: str = ""
    restarts: Restarts = field(default_factory=Restarts)
    restored: bool = False
    running_since: Seconds | None = None
    silent_since: Seconds | None = None
    went_back: str | None = None
    finished: bool = False
    revision: str = ""
    failed_version: int = 0
    committing: bool = False
    late: LateRows = field(default_factory=LateRows)
    proven: str | None = None
    draining_since: Seconds | None = None
    begun: bool = False
    refusal: RefusedTries | None = None
    version: int = 0
    asked: str | None = None
    told: RestoreConfig | None = None
    process: Generation | None = None

    @property
    def process_generation(self) -> Generation:
        """Under which number the present driver's process is found."""
        return self.checkpoints.generation if self.process is None else self.process

    def generation_now(self, began: Generation) -> Generation:
        """The generation of a process that began with this one."""
        return self.checkpoints.generation if began == self.process else began


AT_REST = (JobPhase.STOPPED, JobPhase.FINISHED)
"""Where a job can stay without a driver: the output of its newest epoch is committed."""


def needs_person(job: JobRecord) -> bool:
    """Whether the last driver ended by something that a person must mend, and none has succeeded since."""
    return bool(job.restarts.fault) and job.phase not in (*AT_REST, *HALTED)


def about_to_rest(job: JobRecord) -> bool:
    """Whether it matters what the store says about the newest epoch's output, once there is no driver."""
    return (job.checkpoints.stopped or job.committing) and job.phase not in (*AT_REST, *HALTED)


# --- what is seen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverAbsent:
    """No driver of the record's generation was ever started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEnded:
    """``code`` is None where nobody knows, as after a lost node. ``message`` is what it said last."""

    generation: Generation
    code: int | None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverUp:
    """``status`` is None if it does not answer (yet); ``waiting`` says what it is waiting for, where that is known, and
    ``since`` when its process began. ``leaving`` says why it has to go, if it was asked to by somebody else.
    ``silence``: why it does not answer, if that does not pass by itself."""

    generation: Generation
    status: DriverStatus | None
    waiting: str = ""
    since: Seconds | None = None
    leaving: str = ""
    silence: str = ""


Driver = DriverAbsent | DriverEnded | DriverUp


@dataclass(frozen=True, slots=True)
class OutputUnseen:
    """Nobody has looked whether the newest epoch's output is committed."""


@dataclass(frozen=True, slots=True)
class OutputCommitted:
    """The sinks have committed the newest epoch; or there is none."""


@dataclass(frozen=True, slots=True)
class OutputPending:
    """This epoch is published, and its sinks are not known to have committed."""

    epoch: Epoch


Output = OutputUnseen | OutputCommitted | OutputPending


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """``newest_generation`` is the store's; looked at only when a driver says that it was fenced. ``output``, too, and
    only when the job is about to rest. ``refused``: what came of the last try to start a driver, if it was refused;
    ``cleanup`` says the same of a cleanup."""

    driver: Driver = DriverAbsent()
    fate: Fate = field(default_factory=DriverLost)
    cleanup: CleanupState = field(default_factory=NoCleanup)
    report: CheckpointReport | None = None
    newest_generation: Generation | None = None
    output: Output = OutputUnseen()
    refused: Refused | None = None


def unanswered(seen: Seen, message: str = "the driver does not answer") -> str:
    """What people are told of a driver that does not answer: with the reason, if it does not pass by itself."""
    silence = seen.driver.silence if isinstance(seen.driver, DriverUp) else ""
    return f"{message}: {silence}" if silence else message


def in_its_words(seen: Seen, message: str) -> str:
    """What people are told of a driver that is not as far as it should be: with what it says itself, such as which
    sink's target it waits for; or why it does not answer."""
    status = seen.driver.status if isinstance(seen.driver, DriverUp) else None
    return f"{message}: {status.message}" if status and status.message else unanswered(seen, message)


# --- what to do -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartDriver:
    generation: Generation
    restore: RestoreConfig


@dataclass(frozen=True, slots=True)
class EndDriver:
    """End whatever driver runs, now. Nothing is lost but the work since the newest epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Store ``job`` first, then carry out ``action``."""

    action: Action | StartDriver | EndDriver
    job: JobRecord
    reason: Reason | LifeReason
    message: str

    @property
    def acts(self) -> bool:
        """Whether anything is to be done but to store the record."""
        return not isinstance(self.action, Complete | Fail | Recover | Stop | Nothing)


# --- the decision -----------------------------------------------------------------------------------------------------


def decide(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    """What to do next. The order of the branches is the meaning."""
    job = _with_drain(_with_start(spec, _with_proof(job), seen, now), seen, now)
    job = _with_wishes(spec, _begun_anew(spec, job))
    if job.phase in HALTED:
        return _rest(spec, job, seen)
    if job.committing:
        return _committing(spec, job, seen, now)
    if job.checkpoints.stopped:
        return _stopped(spec, job, seen, now)
    if job.phase in (JobPhase.PENDING, JobPhase.RESTARTING):
        return _waiting_to_start(spec, job, seen, now)
    match seen.driver:
        case DriverAbsent() if job.phase is JobPhase.STARTING and not job.begun and not job.checkpoints.stop:
            # Written down and not done: it was refused, or a controller ended in between.
            return _start(spec, job, seen, now)
        case DriverAbsent() | DriverEnded():
            return _driver_gone(spec, job, seen, now)
        case DriverUp() as driver:
            return _with_driver(spec, job, seen, driver, now)
        case _:
            assert_never(seen.driver)


def resumed(job: JobRecord) -> JobRecord:
    """The record when somebody starts a job again that had finished, failed or was restarting: counting begins
    anew."""
    if job.phase in (*HALTED, JobPhase.RESTARTING):
        job = replace(job, phase=JobPhase.RESTARTING)
    restarts = replace(job.restarts, in_a_row=0, not_before=0.0, fault="")
    return replace(job, finished=False, restarts=restarts, message="", committing=False, late=LateRows())


def outdated(spec: JobSpec, job: JobRecord) -> bool:
    """Whether the present generation was started with another spec than a new one would be. A spec that cannot be
    started leaves the job as it is."""
    return job.checkpoints.generation > 0 and spec.revision != job.revision and not spec.problem


def _with_proof(job: JobRecord) -> JobRecord:
    """From what the record knows already, so that one of a release before counts, too."""
    return replace(job, proven=job.revision) if job.restored and job.proven != job.revision else job


def _with_start(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> JobRecord:
    """What is known of the present generation's start: its driver was seen, or could not be made."""
    record = job.checkpoints
    match seen.driver:
        case DriverUp(generation=generation) | DriverEnded(generation=generation) if generation == record.generation:
            return replace(job, begun=True, refusal=None)
        case _ if job.begun or not (job.phase is JobPhase.STARTING or job.committing):
            return replace(job, refusal=None)
        case _ if seen.refused is not None:
            seed = f"{spec.uid}/{record.generation}"
            return replace(job, refusal=refused_again(job.refusal, seen.refused, spec, now, seed=seed))
        case _:
            return job


def _begun_anew(spec: JobSpec, job: JobRecord) -> JobRecord:
    """Whoever edits the spec of a job that waits for its next try does not want to wait any longer."""
    edited = spec.version != job.restarts.version or outdated(spec, job)
    if job.phase is not JobPhase.RESTARTING or not edited or not job.restarts.not_before:
        return job
    return replace(job, restarts=replace(job.restarts, in_a_row=0, not_before=0.0, version=spec.version))


def _with_drain(job: JobRecord, seen: Seen, now: Seconds) -> JobRecord:
    """A driver that has to go is stopped: it makes a last checkpoint if there is time for one. One that has not begun
    has nothing to lose."""
    match seen.driver:
        case DriverUp(generation=generation, leaving=leaving) if leaving and job.phase is JobPhase.RUNNING:
            ours = generation == job.checkpoints.generation and job.draining_since is None
            return replace(job, draining_since=now) if ours else job
        case _:
            return job


def _drains_too_long(spec: JobSpec, job: JobRecord, now: Seconds) -> bool:
    """Whoever empties a node waits for this driver, and must not wait for ever."""
    since = job.draining_since
    return since is not None and job.phase is JobPhase.STOPPING and now - since > spec.checkpoint.timeout


def _with_wishes(spec: JobSpec, job: JobRecord) -> JobRecord:
    if spec.restore.wish is None and job.went_back is not None:
        job = replace(job, went_back=None)
    if outdated(spec, job) and job.phase is JobPhase.FINISHED:
        job = replace(job, finished=False)
    if job.committing:
        return job  # soon over, whatever is wished for
    record = job.checkpoints
    if _stop_wanted(spec, job):
        if record.stop or record.stopped:
            return job
        stopping = JobPhase.STOPPING if job.phase is JobPhase.RUNNING else job.phase
        return replace(job, checkpoints=request_stop(record), phase=stopping)
    if record.stop and not (record.in_flight and record.in_flight.then_stop):
        # The wish was taken back before its barrier was sent.
        phase = JobPhase.RUNNING if job.phase is JobPhase.STOPPING else job.phase
        return replace(job, checkpoints=replace(record, stop=False), phase=phase)
    return job


def _stop_wanted(spec: JobSpec, job: JobRecord) -> bool:
    if spec.state is DesiredState.SUSPENDED or job.finished:
        return True
    if job.draining_since is not None and job.phase in (JobPhase.RUNNING, JobPhase.STOPPING):
        return True
    return outdated(spec, job) and job.phase in (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)


def _has_begun(status: DriverStatus | None) -> bool:
    return status is not None and status.restored_epoch is not None


# --- without a driver -------------------------------------------------------------------------------------------------


def _rest(spec: JobSpec, job: JobRecord, seen: Seen) -> Step:
    startable = not spec.problem or spec.state is DesiredState.SUSPENDED
    edited = spec.version != job.failed_version and startable
    if edited or outdated(spec, job):
        message = "the spec was edited: the job gets another chance"
        return Step(action=Nothing(), job=resumed(job), reason=LifeReason.RESUMING, message=message)
    if isinstance(seen.driver, DriverUp):
        return Step(action=EndDriver(), job=job, reason=LifeReason.ENDING_DRIVER, message=job.message)
    return Step(action=Nothing(), job=job, reason=LifeReason.ENDED, message=job.message)


def _stopped(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    if isinstance(seen.driver, DriverUp):
        since = job.checkpoints.last_checkpoint or 0.0
        if 0 <= now - since <= STOP_GRACE:
            message = "its last checkpoint is made: waiting for the driver to leave"
            return Step(action=Nothing(), job=job, reason=LifeReason.DRIVER_LEAVING, message=message)
        return Step(action=EndDriver(), job=job, reason=LifeReason.ENDING_DRIVER, message="ending the stopped driver")
    if spec.state is DesiredState.RUNNING and not job.finished:
        job = replace(job, phase=JobPhase.PENDING, checkpoints=replace(job.checkpoints, stopped=False))
        return Step(action=Nothing(), job=job, reason=LifeReason.RESUMING, message="resuming a stopped job")
    if job.phase not in AT_REST:
        match seen.output:
            case OutputUnseen():
                message = "seeing whether the output of the newest epoch is committed"
                return Step(action=Nothing(), job=job, reason=LifeReason.COMMITTING, message=message)
            case OutputPending(epoch):
                job = replace(job, restarts=replace(job.restarts, in_a_row=0, not_before=0.0))
                return _commit(spec, job, seen, epoch, now)
            case OutputCommitted():
                pass
            case _:
                assert_never(seen.output)
    newest = job.checkpoints.newest_completed
    message = (
        f"{'finished' if job.finished else 'stopped'} with epoch {newest}" if newest else "stopped without an epoch"
    )
    job = replace(job, phase=JobPhase.FINISHED if job.finished else JobPhase.STOPPED, message=message)
    return Step(action=Nothing(), job=job, reason=Reason.STOPPED, message=message)


def _commit(spec: JobSpec, job: JobRecord, seen: Seen, epoch: Epoch, now: Seconds) -> Step:
    """Start a generation that commits the output of ``epoch`` and ends."""
    pending = f"epoch {epoch} is published and its output is not committed"
    if spec.problem:
        message = f"{pending}: {spec.problem}"
        job = replace(job, message=message)
        return Step(action=Nothing(), job=job, reason=LifeReason.SPEC_NOT_ACCEPTED, message=message)
    job = replace(job, checkpoints=restored(job.checkpoints, epoch, epoch))
    if waiting := _refused(spec, job, now):
        return waiting
    job = replace(_next_start(spec, job, seen, now), phase=JobPhase.STOPPING, message=pending, committing=True)
    restore, generation = restore_config(spec, job), job.checkpoints.generation
    message = f"{pending}: starting generation {generation} to commit it"
    action = StartDriver(generation, restore)
    return Step(action=action, job=replace(job, told=restore), reason=LifeReason.COMMITTING, message=message)


def _committing(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    """A generation commits the newest epoch's output, or failed to and gets another try."""
    record = job.checkpoints
    match seen.driver:
        case DriverUp(generation=generation) if generation != record.generation or job.phase is JobPhase.RESTARTING:
            message = f"ending the driver of generation {generation}"
            return Step(action=EndDriver(), job=job, reason=LifeReason.ENDING_DRIVER, message=message)
        case DriverUp(waiting=waiting, since=since):
            took, output = (
                now - max(record.generation_started, since or 0.0),
                f"output of epoch {record.newest_completed}",
            )
            if took > spec.start_timeout and not waiting:
                message = in_its_words(seen, f"the {output} is not committed after {took:.0f} s")
                return _restart(spec, job, now, message, EndDriver())
            message = f"committing the {output}"
            message = f"{message}: {waiting}" if waiting else in_its_words(seen, message)
            return Step(action=Nothing(), job=job, reason=LifeReason.COMMITTING, message=message)
        case DriverAbsent() | DriverEnded():
            return _commit_ended(spec, job, seen, now)
        case _:
            assert_never(seen.driver)


def _commit_ended(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    left = job.restarts.not_before - now
    match seen.output:
        case OutputCommitted():
            job = replace(
                job,
                committing=False,
                checkpoints=replace(job.checkpoints, stopped=True),
                restarts=replace(job.restarts, fault=""),
            )
            message = f"the output of epoch {job.checkpoints.newest_completed} is committed"
            return Step(action=Nothing(), job=job, reason=LifeReason.COMMITTING, message=message)
        case OutputUnseen():
            return Step(action=Nothing(), job=job, reason=LifeReason.COMMITTING, message=job.message)
        case OutputPending() if job.begun and job.phase is not JobPhase.RESTARTING:
            return _ended(spec, job, seen, now)
        case OutputPending() if 0 < left <= spec.restart_policy.max_backoff and job.phase is JobPhase.RESTARTING:
            message = f"trying again in {left:.1f} s: {job.restarts.message}"
            return Step(action=Nothing(), job=job, reason=LifeReason.BACKING_OFF, message=message)
        case OutputPending(epoch):
            return _commit(spec, job, seen, epoch, now)
        case _:
            assert_never(seen.output)


def _waiting_to_start(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    if isinstance(seen.driver, DriverUp):
        # Never two drivers: the old one is ended, and seen to have ended, before a new generation begins.
        message = f"ending the driver of generation {seen.driver.generation}"
        return Step(action=EndDriver(), job=job, reason=LifeReason.ENDING_DRIVER, message=message)
    # There is no driver any more that could be at an epoch which the record has given up.
    job = replace(job, checkpoints=replace(job.checkpoints, recovering=False))
    if job.checkpoints.stop or job.checkpoints.in_flight:
        return _checkpoints(spec, job, seen, now, ready=False)
    left = job.restarts.not_before - now
    if 0 < left <= spec.restart_policy.max_backoff:
        message = f"restarting in {left:.1f} s: {job.restarts.message}"
        return Step(action=Nothing(), job=job, reason=LifeReason.BACKING_OFF, message=message)
    return _start(spec, job, seen, now)


def _start(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    if spec.problem:
        return Step(action=Nothing(), job=job, reason=LifeReason.SPEC_NOT_ACCEPTED, message=spec.problem)
    if waiting := _refused(spec, job, now):
        return waiting
    restore = restore_config(spec, job)
    job = replace(_next_start(spec, job, seen, now), phase=JobPhase.STARTING, message="", told=restore)
    generation = job.checkpoints.generation
    message = f"starting generation {generation}"
    return Step(action=StartDriver(generation, restore), job=job, reason=LifeReason.STARTING, message=message)


def _to_be_begun(spec: JobSpec, job: JobRecord) -> bool:
    """Whether the present generation has been written down, as it would be now, and its driver was never seen: then it
    is the one to start. Its name, and the record in the store that it claims, see to it that there is only one."""
    starting = job.phase is JobPhase.STARTING or (job.committing and job.phase is JobPhase.STOPPING)
    as_it_would_be = spec.version == job.version and not outdated(spec, job)
    return starting and not job.begun and not job.checkpoints.stopped and as_it_would_be


def _refused(spec: JobSpec, job: JobRecord, now: Seconds) -> Step | None:
    """Wait for the moment of the next try, if the last one was refused. Who edits the spec need not wait."""
    refusal = job.refusal
    if refusal is None or not refusal.waits(spec, now) or not _to_be_begun(spec, job):
        return None
    return Step(action=Nothing(), job=job, reason=LifeReason.FAILED_CREATE, message=refusal.message)


def _next_start(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> JobRecord:
    """The record with the generation to start: the present one if it has not begun, else the next."""
    record = job.checkpoints
    if _to_be_begun(spec, job):
        # Its time to begin counts from now: it may have been refused for hours.
        return replace(job, checkpoints=replace(record, generation_started=now))
    generation = next_generation(Generation(max(record.generation, seen.newest_generation or 0)))
    return replace(
        job,
        checkpoints=begin_generation(record, generation, now),
        restored=False,
        running_since=None,
        silent_since=None,
        late=replace(job.late, of_driver=0),
        revision=spec.revision,
        version=spec.version,
        asked=job.went_back if job.committing else spec.restore.wish,
        draining_since=None,
        begun=False,
        refusal=None,
        process=None,
    )


def restore_config(spec: JobSpec, job: JobRecord) -> RestoreConfig:
    """What a driver that begins now is told."""
    if job.committing:
        return RestoreConfig(
            known=job.checkpoints.newest_completed,
            issued=job.checkpoints.issued,
            min_epoch=job.checkpoints.min_epoch,
            commit_only=True,
        )
    wish = spec.restore if spec.restore.wish != job.went_back else None
    return RestoreConfig(
        known=job.checkpoints.newest_completed,
        issued=job.checkpoints.issued,
        min_epoch=job.checkpoints.min_epoch,
        back_to=wish.from_epoch if wish else None,
        savepoint=wish.from_savepoint if wish else None,
        allow_empty=spec.restore.allow_empty_start,
        repeat=spec.restore.on_committed_output is OnCommittedOutput.REPEAT,
    )


def told(spec: JobSpec, job: JobRecord) -> RestoreConfig | None:
    """What the present generation was told when it was started, for a driver that has to be told again. None if nobody
    knows: the spec is another by now, and the record is of a release that did not write it down."""
    if job.told is None and spec.version == job.version:
        return restore_config(spec, job)
    return job.told


def _driver_gone(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    if job.checkpoints.stop or job.checkpoints.in_flight:
        return _checkpoints(spec, job, seen, now, ready=False)
    return _ended(spec, job, seen, now)


_FAULTS = {
    EXIT_MISCONFIGURED: LifeReason.MISCONFIGURED,
    EXIT_NOTHING_TO_RESTORE: LifeReason.NOTHING_TO_RESTORE,
    EXIT_REFUSED: LifeReason.REFUSED,
}
"""The exit codes that say that a person must mend something."""


def _ended(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    """A driver has ended that should not have: restart it, unless only an edit of the job can mend it."""
    code, said = (
        (seen.driver.code, seen.driver.message) if isinstance(seen.driver, DriverEnded) else (None, "it is gone")
    )
    fault = _FAULTS.get(code) if code is not None else None
    if fault in (LifeReason.MISCONFIGURED, LifeReason.NOTHING_TO_RESTORE) and not _has_run(spec, job):
        return _failed(spec, job, fault, said or f"the driver ended with code {code}")
    if code == EXIT_WOULD_REPEAT:
        waiting = _failed(spec, job, LifeReason.WOULD_REPEAT, said or f"the driver ended with code {code}")
        return replace(waiting, job=replace(waiting.job, phase=JobPhase.WAITING))
    if code == EXIT_DRAINED and job.restored:
        # Nothing is wrong with it: the next one starts at once.
        message = f"the driver of generation {job.checkpoints.generation} was asked to end: {said}"
        restarts = replace(job.restarts, not_before=now, message=message, version=spec.version)
        job = replace(job, phase=JobPhase.RESTARTING, restarts=restarts, running_since=None, silent_since=None)
        return Step(action=Nothing(), job=job, reason=LifeReason.DRAINED, message=message)
    how = "was lost" if code is None else f"ended with code {code}"
    message = f"the driver of generation {job.checkpoints.generation} {how}" + (f": {said}" if said else "")
    return _restart(spec, job, now, message, Nothing(), fault=fault)


def _has_run(spec: JobSpec, job: JobRecord) -> bool:
    """Whether the present generation is what has run before. One that was asked to go back is not."""
    asked = not job.committing and spec.restore.wish not in (None, job.went_back)
    return job.proven is not None and job.proven == job.revision and not asked


def _restart(
    spec: JobSpec,
    job: JobRecord,
    now: Seconds,
    message: str,
    action: Nothing | EndDriver,
    *,
    fault: LifeReason | None = None,
) -> Step:
    in_a_row, policy = job.restarts.in_a_row + 1, spec.restart_policy
    if policy.max_restarts is not None and in_a_row > policy.max_restarts:
        failed = _failed(spec, job, LifeReason.RESTARTS_EXHAUSTED, f"{message}; given up after {in_a_row - 1} restarts")
        return replace(failed, action=action)
    total = job.restarts.total + 1
    pause = policy.pause(in_a_row, seed=f"{spec.uid}/{total}")
    restarts = Restarts(
        in_a_row=in_a_row,
        total=total,
        not_before=now + pause,
        message=message,
        fault=fault or "",
        version=spec.version,
    )
    of = "" if policy.max_restarts is None else f" of {policy.max_restarts}"
    return Step(
        action=action,
        job=replace(job, phase=JobPhase.RESTARTING, restarts=restarts, running_since=None, silent_since=None),
        reason=LifeReason.RESTART_SCHEDULED,
        message=f"{message}; restart {in_a_row}{of} in {pause:.1f} s",
    )


def _failed(spec: JobSpec, job: JobRecord, reason: LifeReason, message: str) -> Step:
    if job.committing:
        epoch = job.checkpoints.newest_completed
        message = f"the job cannot stop, because the output of epoch {epoch} is not committed: {message}"
    job = replace(
        job,
        phase=JobPhase.FAILED,
        message=message,
        running_since=None,
        silent_since=None,
        failed_version=spec.version,
    )
    return Step(action=Nothing(), job=job, reason=reason, message=message)


# --- with a driver ----------------------------------------------------------------------------------------------------


def _with_driver(spec: JobSpec, job: JobRecord, seen: Seen, driver: DriverUp, now: Seconds) -> Step:
    status, generation = driver.status, job.checkpoints.generation
    if driver.generation != generation:
        message = f"ending the driver of generation {driver.generation}: {generation} is the one to run"
        return Step(action=EndDriver(), job=job, reason=LifeReason.ENDING_DRIVER, message=message)
    if status is not None and status.generation > generation:
        return _gone_on(spec, job, status, now)
    if _drains_too_long(spec, job, now):
        message = f"the driver has to go, and has made no last checkpoint within {spec.checkpoint.timeout:.0f} s"
        return _restart(spec, job, now, message, EndDriver())
    if job.checkpoints.stop and not job.restored and not _has_begun(status):
        message = "ending a driver that had not started yet: no work is lost"
        return Step(action=EndDriver(), job=job, reason=LifeReason.ENDING_DRIVER, message=message)
    if status is None:
        return _silent(spec, job, seen, now)
    return _answering(spec, job, seen, status, now)


def _gone_on(spec: JobSpec, job: JobRecord, status: DriverStatus, now: Seconds) -> Step:
    """The driver has lost state and has claimed the next generation in the store by itself: the record follows. It is
    no restart. What became of an epoch in flight shows when that generation has restored, as in any start."""
    record = job.checkpoints
    if status.generation != next_generation(record.generation):
        # It needs an epoch between two such steps, and only this record gives epochs out.
        message = f"the driver says that it is of generation {status.generation}: {record.generation} is the one to run"
        return _restart(spec, job, now, message, EndDriver())
    job = replace(
        job,
        phase=JobPhase.STARTING,
        checkpoints=begin_generation(record, status.generation, now),
        restored=False,
        running_since=None,
        silent_since=None,
        late=replace(job.late, of_driver=0),
        # It carries out no wish to go back: one that has come meanwhile is the next start's.
        asked=job.went_back if job.restored else job.asked,
        draining_since=None,
        process=job.process_generation,
    )
    message = _in_place(job) + (f": {status.message}" if status.message else "")
    return Step(action=Nothing(), job=job, reason=LifeReason.RECOVERING_IN_PLACE, message=message)


def _in_place(job: JobRecord) -> str:
    return f"generation {job.checkpoints.generation} begins in the driver that was started as generation {job.process}"


def _silent(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    since = job.silent_since if job.silent_since is not None and job.silent_since <= now else now
    job = replace(job, silent_since=since)
    if not job.restored:
        return _not_restored(spec, job, seen, now)
    if now - since > spec.unreachable_timeout:
        message = unanswered(seen, f"the driver has not answered for {now - since:.0f} s")
        return _restart(spec, job, now, message, EndDriver())
    if job.checkpoints.in_flight:
        return _checkpoints(spec, job, seen, now, ready=False)
    return Step(action=Nothing(), job=job, reason=Reason.DRIVER_UNREACHABLE, message=unanswered(seen))


def _not_restored(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds) -> Step:
    found = seen.driver if isinstance(seen.driver, DriverUp) else None
    if found and found.waiting:
        # Its node, or the scheduler, tries again by itself: another pod would wait for the same.
        message = f"the driver is starting: {found.waiting}"
        return Step(action=Nothing(), job=job, reason=Reason.DRIVER_NOT_READY, message=message)
    begun = job.checkpoints.generation_started
    took = now - max(begun, found.since if found and found.since is not None else begun)
    if took > spec.start_timeout:
        message = in_its_words(seen, f"the driver has not begun after {took:.0f} s")
        return _restart(spec, job, now, message, EndDriver())
    message = in_its_words(seen, "the driver is starting" if job.process is None else _in_place(job))
    return Step(action=Nothing(), job=job, reason=Reason.DRIVER_NOT_READY, message=message)


def _answering(spec: JobSpec, job: JobRecord, seen: Seen, status: DriverStatus, now: Seconds) -> Step:
    job = replace(job, silent_since=None, late=job.late.seen(status))
    if not job.restored:
        if status.restored_epoch is None:
            return _not_restored(spec, job, seen, now)
        return _take_restored(spec, job, status, now)
    if job.restarts.in_a_row and job.running_since is not None:
        healthy = now - job.running_since
        if healthy >= spec.restart_policy.reset_after:
            job = replace(job, restarts=replace(job.restarts, in_a_row=0, not_before=0.0))
    if status.finished and not job.finished and not job.checkpoints.stop:
        job = replace(job, finished=True, checkpoints=request_stop(job.checkpoints), phase=JobPhase.STOPPING)
        message = "every source has ended: making the last checkpoint"
        return Step(action=Nothing(), job=job, reason=LifeReason.SOURCES_FINISHED, message=message)
    return _checkpoints(spec, job, seen, now, ready=status.phase is DriverPhase.RUNNING)


def _take_restored(spec: JobSpec, job: JobRecord, status: DriverStatus, now: Seconds) -> Step:
    epoch = status.restored_epoch if status.restored_epoch is not None else NO_EPOCH
    record = restored(job.checkpoints, epoch, status.newest_number or epoch)
    job = replace(
        job,
        checkpoints=record,
        restored=True,
        running_since=now,
        went_back=job.asked if job.version or job.process is not None else spec.restore.wish,
        restarts=replace(job.restarts, fault=""),
        phase=JobPhase.STOPPING if record.stop else JobPhase.RUNNING,
    )
    message = f"generation {record.generation} runs, " + (f"restored from epoch {epoch}" if epoch else "started empty")
    if status.message:
        message += f"; {status.message}"
    if status.skipped_epochs:
        skipped = "; ".join(f"epoch {number}: {why}" for number, why in list(status.skipped_epochs.items())[:3])
        message += f"; not used: {skipped}"
    return Step(action=Nothing(), job=job, reason=LifeReason.RESTORED, message=message)


def _checkpoints(spec: JobSpec, job: JobRecord, seen: Seen, now: Seconds, *, ready: bool) -> Step:
    """Let the checkpoint timer decide, and do to the driver what follows from it."""
    observed = Observation(driver_ready=ready, fate=seen.fate, cleanup=seen.cleanup)
    decision = progress(spec.checkpoint, job.checkpoints, observed, now)
    job = replace(job, checkpoints=decision.record)
    up = isinstance(seen.driver, DriverUp)
    match decision.action:
        case Recover() if job.phase is JobPhase.RESTARTING:
            # Its restart is counted already; this settles what became of the epoch that it had in flight.
            return Step(action=Nothing(), job=job, reason=decision.reason, message=decision.message)
        case Recover() if up:
            return _restart(spec, job, now, decision.message, EndDriver())
        case Recover():
            return _ended(spec, job, seen, now)
        case Stop(forced=True) if up:
            return Step(action=EndDriver(), job=job, reason=decision.reason, message=decision.message)
        case action:
            return Step(action=action, job=job, reason=decision.reason, message=decision.message)
