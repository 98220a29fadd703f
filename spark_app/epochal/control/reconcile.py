"""The loop that keeps a job running: observe, decide, act, report. It knows no Kubernetes and no processes.

A :class:`Backend` does; there is one for each place where jobs can run. Everything here blocks, so an asyncio caller
runs :meth:`Reconciler.tick` in a thread.
"""

import logging
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

import msgspec

from epochal.control.driver_client import (
    DriverClient,
    DriverError,
    DriverRefused,
    DriverUnreachable,
    DriverWithoutTls,
)
from epochal.control.job import JobSpec
from epochal.control.lifecycle import (
    Driver,
    DriverAbsent,
    DriverEnded,
    DriverUp,
    EndDriver,
    JobRecord,
    Output,
    OutputCommitted,
    OutputPending,
    OutputUnseen,
    Seen,
    StartDriver,
    Step,
    about_to_rest,
    decide,
    told,
)
from epochal.control.permit import Permit
from epochal.control.refusal import Refused, ResourceRefusedError
from epochal.protocol.control import (
    EXIT_FENCED,
    CheckpointReport,
    CheckpointState,
    DriverStatus,
    RefusalReason,
    RestoreConfig,
)
from epochal.protocol.decision import (
    AbortEpoch,
    CleanupRefused,
    CleanupState,
    Complete,
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
    Record,
    Recover,
    Seconds,
    SendBarrier,
    StartCleanup,
    Stop,
)
from epochal.protocol.documents import Manifest
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import DocumentError, NewerDocumentError, ObjectMissingError, StoreError
from epochal.protocol.generations import Generations, Unreadable, newest_number
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import newest_epoch_number, read_epoch, read_savepoint, uncommitted_epoch
from epochal.protocol.store import StoreReader

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAlive:
    """A driver process that has not ended. ``client`` is None until its address is known; ``waiting`` then says what
    it is waiting for, if anything. ``since`` is when it began, ``leaving`` why it has to go, where that is known.
    ``silence``: why it cannot be asked, if that does not pass by itself."""

    generation: Generation
    client: DriverClient | None
    waiting: str = ""
    since: Seconds | None = None
    leaving: str = ""
    silence: str = ""


class Backend(Protocol):
    """Where a job runs: local processes, or a cluster."""

    @property
    def objects(self) -> StoreReader: ...

    @property
    def paths(self) -> JobPaths: ...

    def load(self) -> JobRecord | None:
        """The record as it was last stored; None if there is none."""

    def write_ahead(self, tick: "Tick") -> Permit | None:
        """Store the record as the tick's step has it, if it changed or something is to be done. When this returns it
        survives a crash, and nobody else has stored another one since :meth:`load`. None if nothing was stored."""

    def driver(self) -> DriverAbsent | DriverEnded | DriverAlive:
        """The newest driver, with the generation that its process began with. A living one of any generation comes
        before one that has ended; of these, none counts that is older than the record's driver."""

    def start_driver(self, permit: Permit, generation: Generation, restore: RestoreConfig) -> None:
        """Start it, if it has not been started. :class:`RefusedError` if the place does not take it."""

    def end_driver(self, permit: Permit) -> None:
        """End every driver of this job that was seen. When this returns, or a tick later, none of them is left."""

    def cleanup(self) -> CleanupState: ...

    def start_cleanup(self, permit: Permit, min_epoch: Epoch) -> None:
        """:class:`RefusedError` if the place does not take it."""

    def end_cleanup(self, permit: Permit) -> None:
        """Remove the cleanup that was seen, running or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What one round saw and did. ``before`` is the record that it began with; None if it had to be rebuilt."""

    before: JobRecord | None
    seen: Seen
    step: Step

    @property
    def changed(self) -> bool:
        return self.step.job != self.before

    @property
    def status(self) -> DriverStatus | None:
        return self.seen.driver.status if isinstance(self.seen.driver, DriverUp) else None


class Reconciler:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._client: DriverClient | None = None
        self._refused_epoch: tuple[Epoch, str] | None = None
        self._refused_start: Refused | None = None
        self._refused_cleanup = ""

    def tick(self, spec: JobSpec, now: Seconds) -> Tick:
        """One round.

        1. Load the record; if it is lost, rebuild it from the store.
        2. Observe. Nothing is changed by that.
        3. Decide.
        4. Store the record, if it changed or something is to be done: from here on a crash loses nothing, and nobody
           else has gone on since step 1.
        5. Act, on what was seen in step 2. What is refused is seen by the next round.
        """
        # Step 1
        before = self._backend.load()
        job = before or rebuild(self._backend.objects, self._backend.paths, spec, now)
        # Step 2
        seen = self.observe(job)
        # Step 3
        tick = Tick(before=before, seen=seen, step=decide(spec, job, seen, now))
        # Step 4
        permit = self._backend.write_ahead(tick)
        self._refused_start = None
        if tick.step.job.checkpoints.cleanup.started is None:
            self._refused_cleanup = ""
        # Step 5
        if permit is not None:
            self._act(permit, tick.step)
        return tick

    # --- observe ------------------------------------------------------------------------------------------------------

    def observe(self, job: JobRecord) -> Seen:
        found = _as_recorded(self._backend.driver(), job)
        self._client = found.client if isinstance(found, DriverAlive) else None
        cleanup = self._cleanup()
        flight = job.checkpoints.in_flight
        match found:
            case DriverAlive(client=None):
                return Seen(driver=_silent(found, found.silence), fate=DriverSilent(), cleanup=cleanup)
            case DriverAlive(client=client):
                assert client is not None
                try:
                    status = client.status()
                    report = client.get_checkpoint(flight.epoch) if flight else None
                except (DriverUnreachable, DriverError) as error:
                    logger.debug("Driver of generation %d: %s", found.generation, error)
                    # To replace one that cannot be asked by another of the same image would go on for ever.
                    waits = error.why if isinstance(error, DriverWithoutTls) and not job.restored else ""
                    return Seen(driver=_silent(found, error.why, waits), fate=DriverSilent(), cleanup=cleanup)
                fate = self._fate(flight, report) if flight else EpochUnknown()
                return Seen(driver=_up(found, status), fate=fate, cleanup=cleanup, report=report)
            case DriverAbsent() | DriverEnded():
                return Seen(
                    driver=found,
                    fate=self._fate_in_store(flight) if flight else DriverLost(),
                    cleanup=cleanup,
                    newest_generation=self._newest_generation(found),
                    output=self._output(job),
                    refused=self._refused_start,
                )
            case _:
                assert_never(found)

    def _cleanup(self) -> CleanupState:
        cleanup = self._backend.cleanup()
        refused = isinstance(cleanup, NoCleanup) and self._refused_cleanup
        return CleanupRefused(self._refused_cleanup) if refused else cleanup

    def _fate(self, flight: InFlight, report: CheckpointReport | None) -> Fate:
        if report is None:
            if self._refused_epoch and self._refused_epoch[0] == flight.epoch:
                return EpochFailed(f"the driver refused it: {self._refused_epoch[1]}")
            return EpochUnknown()
        match report.state:
            case CheckpointState.READY:
                return EpochPublished(bytes=report.bytes)
            case CheckpointState.FAILED:
                return EpochFailed(report.message or "the driver does not say why")
            case CheckpointState.IN_PROGRESS | CheckpointState.COMMITTING:
                # Committing is not the end: a commit that hangs runs into the deadline like any other.
                return InProgress(operators_done=report.operators_done, operators_total=len(report.operators))
            case _:
                assert_never(report.state)

    def _fate_in_store(self, flight: InFlight) -> Fate:
        """With the driver gone only the store knows. Nobody is left who could publish the epoch later."""
        try:
            document = read_epoch(self._backend.objects, self._backend.paths, flight.epoch)
        except (ObjectMissingError, DocumentError):
            return DriverLost()
        except NewerDocumentError as error:
            # The driver's release is newer than this one; the number was given to its generation only.
            return EpochPublished() if error.kind == Manifest.__name__ else DriverLost()
        except StoreError as error:
            logger.warning("Cannot see what became of epoch %d: %s", flight.epoch, error)
            return DriverSilent()
        if isinstance(document, Manifest) and document.generation == flight.generation:
            return EpochPublished(bytes=bytes_written(document))
        return DriverLost()

    def _output(self, job: JobRecord) -> Output:
        """Whether the sinks have all that is published. An error of the store is raised: a job whose store cannot be
        read cannot be said to have stopped."""
        if not about_to_rest(job):
            return OutputUnseen()
        record = job.checkpoints
        if not record.generation:
            return OutputCommitted()  # no driver has ever begun
        epoch = uncommitted_epoch(
            self._backend.objects,
            self._backend.paths,
            known=record.newest_completed,
            min_epoch=record.min_epoch,
            near=record.generation,
        )
        return OutputCommitted() if epoch is None else OutputPending(epoch)

    def _newest_generation(self, driver: DriverAbsent | DriverEnded) -> Generation | None:
        if not isinstance(driver, DriverEnded) or driver.code != EXIT_FENCED:
            return None
        try:
            return newest_number(self._backend.objects, self._backend.paths, near=driver.generation) or None
        except StoreError as error:
            logger.warning("Cannot see which generation is the newest: %s", error)
            return None

    # --- act ----------------------------------------------------------------------------------------------------------

    def _act(self, permit: Permit, step: Step) -> None:
        match step.action:
            case StartDriver(generation, restore):
                try:
                    self._backend.start_driver(permit, generation, self._with_epoch(restore))
                except ResourceRefusedError as error:
                    logger.warning("Generation %d cannot be started: %s", generation, error)
                    self._refused_start = error.refused
            case EndDriver():
                self._backend.end_driver(permit)
            case SendBarrier() as send:
                self._send(send)
            case AbortEpoch(epoch):
                self._abort(epoch)
            case StartCleanup(min_epoch):
                try:
                    self._backend.start_cleanup(permit, min_epoch)
                except ResourceRefusedError as error:
                    logger.warning("No cleanup can be started: %s", error)
                    self._refused_cleanup = str(error)
            case EndCleanup():
                self._backend.end_cleanup(permit)
            case Complete() | Fail() | Recover() | Stop() | Nothing():
                pass
            case _:
                assert_never(step.action)

    def told(self, spec: JobSpec, job: JobRecord) -> RestoreConfig | None:
        """As the present generation was told; None if that is not known."""
        restore = told(spec, job) if spec.revision == job.revision else None
        return self._with_epoch(restore) if restore else None

    def _with_epoch(self, restore: RestoreConfig) -> RestoreConfig:
        """A savepoint is known by name; a generation that goes back must also say to which epoch."""
        if restore.savepoint is None or restore.back_to is not None:
            return restore
        try:
            manifest = read_savepoint(self._backend.objects, self._backend.paths, restore.savepoint)
        except (StoreError, DocumentError, NewerDocumentError) as error:
            # The driver finds the same, and says so.
            logger.warning("Savepoint %s cannot be read: %s", restore.savepoint, error)
            return restore
        return msgspec.structs.replace(restore, back_to=manifest.epoch)

    def _send(self, send: SendBarrier) -> None:
        """What becomes of it shows in the next round; a barrier that did not arrive is sent again then."""
        if self._client is None:
            return
        try:
            self._client.post_barrier(send.generation, send.barrier)
        except DriverRefused as error:
            logger.warning("Driver refused epoch %d: %s", send.barrier.epoch, error)
            if error.refusal.reason in (RefusalReason.STALE_EPOCH, RefusalReason.STALE_GENERATION):
                # No second try can help: these only get staler.
                self._refused_epoch = (send.barrier.epoch, error.refusal.message)
        except (DriverUnreachable, DriverError) as error:
            logger.warning("Barrier of epoch %d was not taken: %s", send.barrier.epoch, error)

    def _abort(self, epoch: Epoch) -> None:
        if self._client is None:
            return
        try:
            self._client.abort(epoch)
        except (DriverUnreachable, DriverError) as error:
            logger.warning("Epoch %d was not aborted: %s", epoch, error)


def _as_recorded(
    found: DriverAbsent | DriverEnded | DriverAlive, job: JobRecord
) -> DriverAbsent | DriverEnded | DriverAlive:
    """A process is found by the generation that it began with, and may have gone on to the record's by itself."""
    if isinstance(found, DriverAbsent):
        return found
    return replace(found, generation=job.generation_now(found.generation))


def _up(found: DriverAlive, status: DriverStatus) -> Driver:
    asked = "its process was asked to end" if status.ending else ""
    return DriverUp(
        generation=found.generation,
        status=status,
        waiting=found.waiting,
        since=found.since,
        leaving=found.leaving or asked,
    )


def _silent(found: DriverAlive, silence: str, waiting: str = "") -> Driver:
    return DriverUp(
        generation=found.generation,
        status=None,
        waiting=found.waiting or waiting,
        since=found.since,
        leaving=found.leaving,
        silence=silence,
    )


def bytes_written(manifest: Manifest) -> int:
    """What this epoch wrote itself; runs of older epochs that it goes on using are not counted."""
    paths = JobPaths(manifest.namespace, manifest.job)
    own = f"/{manifest.epoch:010d}-"
    return sum(
        part.bytes
        for operator in manifest.operators.values()
        for table in operator.tables.values()
        for run in table.runs
        for part in run.parts
        if part.object.startswith(paths.state) and own in part.object
    )


def rebuild(store: StoreReader, paths: JobPaths, spec: JobSpec, now: Seconds) -> JobRecord:
    """The record of a job that has none: new, or its record was lost. The store knows all numbers that were used."""
    newest = newest_number(store, paths)
    record = Record(
        generation=newest,
        generation_started=now,
        uid=spec.uid,
        issued=newest_epoch_number(store, paths),
    )
    return JobRecord(checkpoints=record, went_back=_went_back(Generations(store, paths, newest)))


def _went_back(generations: Generations) -> str | None:
    """The last wish to go back that was carried out: a lost record must not go back a second time."""
    for record in generations.turns():
        if isinstance(record, Unreadable) or record.unasked:
            continue
        if record.savepoint:
            return f"savepoint:{record.savepoint}"
        if record.back_to:
            return f"epoch:{record.back_to}"
    return None
