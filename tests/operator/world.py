"""A place to run jobs that exists in memory only: drivers publish by the real protocol, time is a number, and anything
can crash between any two steps."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from epochal.control.driver_client import DriverClient, DriverRefused, DriverUnreachable
from epochal.control.job import JobSpec
from epochal.control.lifecycle import TRANSITIONS, DriverAbsent, DriverEnded, JobPhase, JobRecord
from epochal.control.permit import Permit
from epochal.control.reconcile import DriverAlive, Reconciler, Tick
from epochal.control.refusal import Refused, ResourceRefusedError
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    EXIT_FAILED,
    EXIT_FENCED,
    EXIT_NOTHING_TO_RESTORE,
    EXIT_STOPPED,
    CheckpointReport,
    CheckpointState,
    DriverPhase,
    DriverStatus,
    Refusal,
    RefusalReason,
    RestoreConfig,
)
from epochal.protocol.decision import CleanupExists, CleanupState, CleanupSucceeded, NoCleanup
from epochal.protocol.documents import CommitRecord, GenerationRecord, Manifest, OperatorState, SourcePosition
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import Fenced, Published, publish, record_commit
from epochal.protocol.resolve import Found, NothingToRestore, newest_epoch_number, resolve
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import Store, open_store


class Crash(BaseException):
    """The controller is gone. No `except Exception` may stop it."""


class SimDriver(DriverClient):
    """Counts; each question asked of it lets it get on by one stage."""

    def __init__(self, world: "World", generation: Generation, restore: RestoreConfig) -> None:
        self.world, self.generation, self.restore = world, generation, restore
        self.began = generation
        self.claim = uuid.uuid4().hex
        self.code: int | None = None
        self.alive = True
        self.silent = False
        self.unreachable: DriverUnreachable | None = None
        self.finished = False
        self.leaving = self.waiting = self.message = ""
        self.waits_for = ""
        """What its status says that it waits for; it does not begin meanwhile."""
        self.late_rows = 0
        self.ending = False
        self.since: float | None = None
        self.count = 0
        self.restored: Epoch | None = None
        self.restoring: Epoch | None = None
        self.last: Manifest | None = None
        self.reports: dict[Epoch, CheckpointReport] = {}
        self.barriers: dict[Epoch, CheckpointBarrier] = {}

    def status(self) -> DriverStatus:
        self._answer()
        if self.restoring is not None:
            seen, self.restored, self.restoring = None, self.restoring, None
        elif self.restored is None:
            if not self.waits_for:
                self._begin()
            seen = self.restored
        else:
            self.count += 10
            seen = self.restored
        return DriverStatus(
            namespace="default",
            job="job",
            generation=self.generation,
            phase=DriverPhase.STARTING if seen is None else DriverPhase.RUNNING,
            started=1,
            restored_epoch=seen,
            newest_number=newest_epoch_number(self.world.objects, self.world.paths),
            finished=self.finished,
            ending=self.ending,
            message=self.message or self.waits_for,
            late_rows=self.late_rows,
        )

    def post_barrier(self, generation: Generation, barrier: CheckpointBarrier) -> CheckpointReport:
        self.world.step("barrier is sent")
        self._answer()
        if generation != self.generation:
            raise DriverRefused(Refusal(reason=RefusalReason.STALE_GENERATION, message="not mine"))
        if barrier.epoch not in self.reports:
            self.world.posted.append((barrier.epoch, generation))
            self.barriers[barrier.epoch] = barrier
            self._set(barrier, CheckpointState.IN_PROGRESS)
        report = self.reports[barrier.epoch]
        self.world.step("barrier was sent")
        return report

    def get_checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        self._answer()
        barrier = self.barriers.get(epoch)
        if barrier and self.reports[epoch].state is CheckpointState.IN_PROGRESS and epoch not in self.world.hanging:
            self._publish(barrier)
            self.world.crash_if_due()
        return self.reports.get(epoch)

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        self._answer()
        if epoch in self.barriers and self.reports[epoch].state is CheckpointState.IN_PROGRESS:
            self._set(self.barriers[epoch], CheckpointState.FAILED, "aborted")
        return self.reports.get(epoch)

    def lose_state(self, *, publish_first: bool = False) -> None:
        """An executor is gone. Its driver goes on in place if it may, and ends if not. ``publish_first``: a checkpoint
        in flight is published meanwhile, and nobody hears of it."""
        self.world.lost += 1
        published = self.last.epoch if self.last else NO_EPOCH
        flights = [
            epoch
            for epoch, report in self.reports.items()
            if report.state is CheckpointState.IN_PROGRESS and epoch != published
        ]
        then_stop = any(self.barriers[epoch].then_stop for epoch, report in self.reports.items() if _is_open(report))
        done = self.last is not None and self.last.generation == self.generation
        if not done or then_stop or self.ending or self.restored is None or self.restore.commit_only:
            self.end(EXIT_FAILED)
            return
        late = [self._manifest(self.barriers[epoch]) for epoch in flights]
        if publish_first and late:
            assert isinstance(publish(self.world.objects, self.world.paths, late.pop()), Published)
        assert self.last is not None
        self.restore = RestoreConfig(
            known=self.last.epoch,
            issued=Epoch(max(self.barriers, default=self.last.epoch)),
            min_epoch=max((barrier.min_epoch for barrier in self.barriers.values()), default=self.last.min_epoch),
        )
        self.generation, self.claim = Generation(self.generation + 1), uuid.uuid4().hex
        self.restored, self.reports, self.barriers = None, {}, {}
        self.world.went_on += 1
        with suppress(DriverUnreachable):
            self._begin()
        self.restored, self.restoring = None, self.restored
        for manifest in late:
            # What is left of the engine before publishes late.
            assert not isinstance(publish(self.world.objects, self.world.paths, manifest), Published)

    def _answer(self) -> None:
        if self.unreachable is not None:
            raise self.unreachable
        if not self.alive or self.silent:
            raise DriverUnreachable("nothing answers")

    def _begin(self) -> None:
        record = GenerationRecord(
            generation=self.generation,
            claim=self.claim,
            created=1,
            writer="sim",
            back_to=self.restore.back_to,
            savepoint=self.restore.savepoint,
        )
        request = StartRequest(
            record=record,
            known=self.restore.known,
            issued=self.restore.issued,
            allow_empty=self.restore.allow_empty,
        )
        match start_generation(self.world.objects, self.world.paths, request):
            case Fenced():
                self.end(EXIT_FENCED)
                raise DriverUnreachable("it was fenced")
            case NothingToRestore():
                self.end(EXIT_NOTHING_TO_RESTORE)
                raise DriverUnreachable("there is nothing to restore")
            case Found(manifest=manifest):
                self.last, self.restored = manifest, manifest.epoch
                position = manifest.operators["source"].position
                assert position is not None
                self.count = position.batch
                self._commit(manifest)
            case _:
                self.restored = NO_EPOCH
        if self.restore.commit_only:
            self.end(EXIT_STOPPED)

    def _manifest(self, barrier: CheckpointBarrier) -> Manifest:
        begin = 0
        if self.last and (position := self.last.operators["source"].position):
            begin = position.batch
        return Manifest(
            namespace="default",
            job="job",
            epoch=barrier.epoch,
            generation=self.generation,
            claim=self.claim,
            parent=self.last.epoch if self.last else NO_EPOCH,
            min_epoch=barrier.min_epoch,
            timestamp=barrier.timestamp,
            then_stop=barrier.then_stop,
            operators={
                "source": OperatorState(
                    position=SourcePosition(batch=self.count, log={}), transaction={"begin": str(begin)}
                )
            },
        )

    def _publish(self, barrier: CheckpointBarrier) -> None:
        manifest = self._manifest(barrier)
        self._own_step("epoch is published")
        outcome = publish(self.world.objects, self.world.paths, manifest)
        if not isinstance(outcome, Published):
            self.end(EXIT_FENCED)
            raise DriverUnreachable("it was fenced")
        self.last = manifest
        self._own_step("epoch was published")
        self._set(barrier, CheckpointState.COMMITTING)
        if barrier.epoch in self.world.stuck:
            return
        self._commit(manifest)
        self._set(barrier, CheckpointState.READY)
        if barrier.then_stop:
            self.end(EXIT_STOPPED)

    def _own_step(self, name: str) -> None:
        """A step of the driver's: a controller that dies at this moment does not hold it up."""
        engine = self.generation
        try:
            self.world.step(name)
        except Crash:
            self.world.crash_due = True
        self._answer()
        if self.generation != engine:
            raise DriverUnreachable("the engine that did this is gone")

    def _commit(self, manifest: Manifest) -> None:
        if self.world.sink_fails:
            self.end(EXIT_FAILED)
            raise DriverUnreachable("its sink failed")
        state = manifest.operators["source"]
        assert state.transaction is not None
        assert state.position is not None
        self.world.output.add((int(state.transaction["begin"]), state.position.batch))
        self._own_step("sink has committed")
        record = CommitRecord(epoch=manifest.epoch, generation=self.generation)
        record_commit(self.world.objects, self.world.paths, record)
        self._own_step("commit is recorded")

    def _set(self, barrier: CheckpointBarrier, state: CheckpointState, message: str = "") -> None:
        self.reports[barrier.epoch] = CheckpointReport(
            epoch=barrier.epoch,
            generation=self.generation,
            then_stop=barrier.then_stop,
            state=state,
            started=1,
            message=message,
        )

    def end(self, code: int | None) -> None:
        self.alive, self.code = False, code


def _is_open(report: CheckpointReport) -> bool:
    return report.state in (CheckpointState.IN_PROGRESS, CheckpointState.COMMITTING)


@dataclass
class World:
    """Backend and everything behind it. What a crash of the controller leaves is all in here."""

    objects: Store = field(default_factory=lambda: open_store("memory:///"))
    paths: JobPaths = field(default_factory=lambda: JobPaths("default", "job"))
    now: float = 1000.0
    disk: bytes | None = None
    drivers: dict[Generation, SimDriver] = field(default_factory=dict)
    cleanup_left: int | None = None
    output: set[tuple[int, int]] = field(default_factory=set)
    posted: list[tuple[Epoch, Generation]] = field(default_factory=list)
    hanging: set[Epoch] = field(default_factory=set)
    exit_at_start: int | None = None
    refuses: str = ""
    """What the place says to whoever wants to start something; empty if it takes everything."""
    tries: list[tuple[float, Generation]] = field(default_factory=list)
    """When a driver was refused, and of which generation."""
    sink_fails: bool = False
    stuck: set[Epoch] = field(default_factory=set)
    """Epochs whose commit never ends."""
    steps: list[str] = field(default_factory=list)
    crash_at: int | None = None
    kill_at: set[int] = field(default_factory=set)
    lose_at: set[int] = field(default_factory=set)
    """Steps at which an executor is lost."""
    publish_first: bool = False
    lost: int = 0
    went_on: int = 0
    crash_due: bool = False
    transitions: set[tuple[JobPhase, JobPhase]] = field(default_factory=set)

    def step(self, name: str) -> None:
        """A moment at which something may die."""
        number = len(self.steps)
        self.steps.append(name)
        if number in self.kill_at:
            for driver in self.drivers.values():
                if driver.alive:
                    driver.end(None)
        if number in self.lose_at:
            for driver in self.drivers.values():
                if driver.alive:
                    driver.lose_state(publish_first=self.publish_first)
        if number == self.crash_at:
            raise Crash(name)

    def crash_if_due(self) -> None:
        if self.crash_due:
            self.crash_due = False
            raise Crash("while the driver worked on")

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        self.step(f"before {name}")
        yield
        self.step(f"after {name}")

    # --- Backend

    def load(self) -> JobRecord | None:
        return msgspec.json.decode(self.disk, type=JobRecord) if self.disk else None

    def write_ahead(self, tick: Tick) -> Permit | None:
        if not tick.changed and not tick.step.acts:
            return None
        seen = tuple(driver for driver in self.drivers.values() if driver.alive)
        if tick.changed:
            self.store(tick.step.job)
        return Permit(drivers=seen)

    def store(self, job: JobRecord) -> None:
        before = self.load()
        if before is not None and before.phase is not job.phase:
            assert job.phase in TRANSITIONS[before.phase], f"{before.phase} leads to {job.phase}: {job}"
            self.transitions.add((before.phase, job.phase))
        with self.around("store"):
            self.disk = msgspec.json.encode(job)

    def driver(self) -> DriverAbsent | DriverEnded | DriverAlive:
        for generation in sorted(self.drivers, reverse=True):
            if self.drivers[generation].alive:
                driver = self.drivers[generation]
                client = None if driver.waiting else driver
                return DriverAlive(
                    generation=generation,
                    client=client,
                    waiting=driver.waiting,
                    since=driver.since,
                    leaving=driver.leaving,
                )
        job = self.load()
        if job is None or job.process_generation not in self.drivers:
            return DriverAbsent()
        generation = job.process_generation
        return DriverEnded(generation=generation, code=self.drivers[generation].code, message="said so")

    def start_driver(self, permit: Permit, generation: Generation, restore: RestoreConfig) -> None:
        if self.refuses:
            self.tries.append((self.now, generation))
            raise ResourceRefusedError(Refused("pods", self.refuses))
        with self.around("start"):
            assert not any(driver.alive for driver in self.drivers.values()), "two drivers at once"
            assert generation not in self.drivers, "a generation was used twice"
            self.drivers[generation] = SimDriver(self, generation, restore)
            if self.exit_at_start is not None:
                self.drivers[generation].end(self.exit_at_start)

    def end_driver(self, permit: Permit) -> None:
        with self.around("end"):
            for driver in permit.drivers:
                driver.end(None)

    def cleanup(self) -> CleanupState:
        if self.cleanup_left is None:
            return NoCleanup()
        self.cleanup_left -= 1
        return CleanupExists() if self.cleanup_left > 0 else CleanupSucceeded()

    def start_cleanup(self, permit: Permit, min_epoch: Epoch) -> None:
        if self.refuses:
            raise ResourceRefusedError(Refused("jobs", self.refuses))
        with self.around("cleanup"):
            self.cleanup_left = 3

    def end_cleanup(self, permit: Permit) -> None:
        with self.around("end of cleanup"):
            self.cleanup_left = None

    # --- for tests

    @property
    def newest(self) -> SimDriver:
        return self.drivers[max(self.drivers)]

    def ticks(self, reconciler: Reconciler, spec: JobSpec, count: int = 1, *, every: float = 1.0) -> Tick:
        assert count > 0
        tick = None
        for _ in range(count):
            self.now += every
            tick = reconciler.tick(spec, self.now)
        assert tick is not None
        return tick

    def stretches(self) -> list[tuple[int, int]]:
        return sorted(self.output)

    def position(self) -> int:
        """Where the source stands in the newest epoch: all rows before it must have come out once the job rests."""
        found = resolve(self.objects, self.paths)
        position = found.manifest.operators["source"].position if isinstance(found, Found) else None
        return position.batch if position else 0
