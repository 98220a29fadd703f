"""One job in a world where everything goes wrong: a controller, drivers of several generations, cleanups, the owner of
savepoints, a network and a clock. All of them run the real protocol; only Spark and Kubernetes are played."""

from dataclasses import dataclass, replace

import obstore

from epochal.protocol import resolve
from epochal.protocol.cleanup import Cleaned, clean
from epochal.protocol.decision import (
    AbortEpoch,
    Action,
    CheckpointSpec,
    CleanupExists,
    CleanupFailed,
    CleanupState,
    CleanupSucceeded,
    DriverLost,
    DriverSilent,
    EndCleanup,
    EpochFailed,
    EpochPublished,
    EpochUnknown,
    Fate,
    NoCleanup,
    Observation,
    Record,
    Recover,
    SendBarrier,
    StartCleanup,
    Stop,
)
from epochal.protocol.documents import GenerationRecord
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation, next_generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.progress import begin_generation, progress, request_stop, restored
from epochal.protocol.savepoints import Pinned, pin, unpin
from epochal.protocol.start import StartRequest
from tests.protocol.driver import Delivered, Driver
from tests.protocol.oracle import Oracle
from tests.protocol.stepping import Actor, SteppedStore

SPEC = CheckpointSpec(
    interval=10.0, timeout=30.0, min_pause=0.0, tolerable_failures=2, keep=2, every=1, cleanup_timeout=60.0
)


@dataclass(frozen=True, slots=True)
class BackTo:
    """The wish that a new generation goes back."""

    epoch: Epoch
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What survives the controller: the record, and which driver's answer is in it."""

    record: Record
    restored: Generation
    requests: dict[Generation, StartRequest]
    committing: bool = False
    """The present generation commits the newest epoch and ends; then the job rests."""


class World:
    def __init__(self) -> None:
        self.store = SteppedStore()
        self.paths = JobPaths("default", "orders")
        self.oracle = Oracle(self.store, self.paths)
        self.now = 1_000_000.0
        self.drivers: list[Driver] = []
        self.network: list[SendBarrier | AbortEpoch] = []
        self.cleanup: Actor | None = None
        self.old_cleanups: list[Actor] = []
        self.cleanups_fail = False
        self.pins: list[Actor] = []
        self.in_use: dict[str, Generation] = {}
        first = Record(generation=Generation(0), generation_started=self.now, uid="orders")
        self.stored = Stored(first, Generation(0), {})
        self.new_generation()

    @property
    def record(self) -> Record:
        return self.stored.record

    @property
    def driver(self) -> Driver | None:
        """The newest driver of the controller's generation that is not known to have ended."""
        mine = [driver for driver in self.drivers if driver.generation == self.record.generation]
        return mine[0] if mine else None

    def actors(self) -> list[Actor]:
        others = [self.cleanup, *self.old_cleanups, *self.pins]
        return [driver.actor for driver in self.drivers if driver.alive and not driver.idle] + [
            actor for actor in others if actor is not None and actor.alive
        ]

    # --- the controller

    def tick(self, *, crash: str = "", stale: bool = False) -> None:
        """Observe, decide, store, act. ``crash`` says before which of the last two the controller dies."""
        driver, record = self.driver, self.record
        if driver is None:
            self._start_driver(record.generation)
            return
        if record.stopped or self.stored.committing:
            self._come_to_rest(driver, crash=crash)
            return
        if driver.ready and not driver.silent and self.stored.restored != record.generation:
            if crash != "store":
                self.stored = replace(
                    self.stored, record=restored(record, *driver.restored), restored=record.generation
                )
            return
        if not driver.alive and record.in_flight is None and not record.stop:
            self.new_generation(act=crash != "act")
            return
        observed = Observation(
            driver_ready=driver.alive and driver.ready and not driver.silent,
            fate=self._fate(driver, stale=stale),
            cleanup=self._cleanup_state(),
        )
        decision = progress(SPEC, record, observed, self.now)
        if crash == "store":
            return
        self.oracle.saw_decision(record, decision.record, decision.action, cleanup_exists=self.cleanup is not None)
        self._check_finished(decision.action)
        self.stored = replace(self.stored, record=decision.record)
        if crash != "act":
            self._act(decision.action)

    def _come_to_rest(self, driver: Driver, *, crash: str = "") -> None:
        if driver.alive:
            if not self.stored.committing:
                driver.actor.kill()
            return
        record = self.record
        epoch = resolve.uncommitted_epoch(
            self.store, self.paths, known=record.newest_completed, min_epoch=record.min_epoch
        )
        if crash == "store":
            return
        if epoch is None:
            self.stored = replace(self.stored, record=replace(record, stopped=True), committing=False)
        else:
            self.stored = replace(self.stored, record=restored(record, epoch, epoch))
            self.new_generation(act=crash != "act", commit_only=True)

    @property
    def at_rest(self) -> bool:
        """What the controller takes for it."""
        if not self.record.stopped or self.driver is None or self.driver.alive:
            return False
        known, min_epoch = self.record.newest_completed, self.record.min_epoch
        return resolve.uncommitted_epoch(self.store, self.paths, known=known, min_epoch=min_epoch) is None

    def _fate(self, driver: Driver, *, stale: bool) -> Fate:
        flight = self.record.in_flight
        if not driver.alive:
            # A driver that has stopped after its last epoch has ended, too: the store knows.
            if flight is not None and flight.epoch in self.oracle.published:
                return EpochPublished()
            return DriverLost()
        if driver.silent or stale or not driver.ready:
            return DriverSilent()
        return driver.fate(flight.epoch) if flight else EpochUnknown()

    def _cleanup_state(self) -> CleanupState:
        job = self.cleanup
        if job is None:
            return NoCleanup()
        if job.alive:
            return CleanupExists()
        return CleanupSucceeded() if isinstance(job.result, Cleaned) else CleanupFailed(str(job.result or job.error))

    def _check_finished(self, action: Action) -> None:
        if not isinstance(action, SendBarrier):
            return
        for driver in self.drivers:
            if driver.generation == action.generation and driver.alive and driver.ready:
                for epoch, (generation, _) in self.oracle.barriers.items():
                    if generation == driver.generation and epoch < action.barrier.epoch:
                        assert isinstance(driver.fate(epoch), EpochPublished | EpochFailed), (
                            f"epoch {action.barrier.epoch} begins, and the driver may still begin or end {epoch}"
                        )

    def _act(self, action: Action) -> None:
        match action:
            case SendBarrier() | AbortEpoch():
                self.network.append(action)
            case Recover():
                self.new_generation()
            case Stop():
                if self.driver:
                    self.driver.actor.kill()
            case StartCleanup(min_epoch):
                assert self.cleanup is None, "two cleanups"
                self.cleanup = Actor(f"cleanup {min_epoch}", lambda: clean(self.store, self.paths, min_epoch))
                if self.cleanups_fail:
                    self.cleanup.kill()
            case EndCleanup():
                if self.cleanup is not None and self.cleanup.alive:
                    self.old_cleanups.append(self.cleanup)
                self.cleanup = None
            case _:
                pass

    def new_generation(self, back: BackTo | None = None, *, act: bool = True, commit_only: bool = False) -> None:
        """A new generation, whatever the old driver does: it may well live on."""
        generation = next_generation(self.record.generation)
        begun = begin_generation(self.record, generation, self.now)
        request = StartRequest(
            record=GenerationRecord(
                generation=generation,
                claim=f"claim-{generation}",
                created=0,
                writer="model",
                back_to=back.epoch if back else None,
                savepoint=back.savepoint if back else None,
            ),
            known=begun.newest_completed,
            issued=begun.issued,
            min_epoch=begun.min_epoch,
        )
        requests = {**self.stored.requests, generation: request}
        self.stored = replace(self.stored, record=begun, requests=requests, committing=commit_only)
        if back and back.savepoint:
            self.in_use[back.savepoint] = generation
        if act:
            self._start_driver(generation)

    def _start_driver(self, generation: Generation, claim: str | None = None) -> None:
        request = self.stored.requests[generation]
        commit_only = self.stored.committing and generation == self.record.generation
        self.drivers.append(Driver(generation, request, self.oracle, self.paths, commit_only=commit_only))

    def stop(self) -> None:
        if not self.record.stopped:
            self.oracle.stop_wished = True
        self.stored = replace(self.stored, record=request_stop(self.record))

    # --- the network

    def deliver(self, message: SendBarrier | AbortEpoch, *, merge: bool = False, skip: bool = False) -> None:
        for driver in self.drivers:
            match message:
                case SendBarrier(barrier, generation):
                    driver.receive(generation, Delivered(barrier, merge, skip))
                case AbortEpoch(epoch):
                    driver.abort(epoch)

    # --- savepoints

    def pin(self, name: str, epoch: Epoch) -> None:
        def work() -> None:
            if isinstance(pin(self.store, self.paths, name, epoch), Pinned):
                self.oracle.savepoints[name] = self.oracle.published[epoch]

        self.pins.append(Actor(f"pin {name}", work))

    def unpin(self, name: str) -> None:
        del self.oracle.savepoints[name]
        unpin(self.store, self.paths, name)

    def free_savepoints(self) -> list[str]:
        """A savepoint that a generation has gone back to is needed until that generation's first epoch."""
        newest = max((manifest.generation for manifest in self.oracle.published.values()), default=Generation(0))
        return [name for name in self.oracle.savepoints if self.in_use.get(name, Generation(0)) <= newest]

    # --- what can be gone back to

    def restorable(self) -> list[Epoch]:
        oracle = self.oracle
        return [epoch for epoch in oracle.published if epoch >= self.record.min_epoch and epoch not in oracle.corrupted]

    def damage_newest(self) -> None:
        """Bytes rot, though not in all that is kept: an older epoch can be used."""
        oracle, epoch = self.oracle, self.oracle.tip
        wished = {request.record.back_to for request in self.stored.requests.values()}
        others = [older for older in oracle.ancestry(epoch) if older != epoch and older in self.restorable()]
        if epoch and epoch not in wished and others and epoch >= self.record.min_epoch:
            oracle.corrupted.add(epoch)
            obstore.put(self.store._backend, self.paths.manifest(epoch), b'{"kind": "Mani')

    # --- calm

    def calm_round(self) -> None:
        """Everybody does what they do when nothing goes wrong, but for those who are paused."""
        for actor in self.actors():
            if not actor.paused:
                actor.step()
                actor.step_up_to("nothing but its end")
        messages, self.network = self.network, []
        for message in messages:
            self.deliver(message)
        for driver in self.drivers:
            driver.rows += 1
        self.now += 6.0
        self.tick()

    def settle(self) -> None:
        """End all faults, and stop: the job must come to rest with everything in its place."""
        self.store.trouble = None
        while self.store.late:
            self.store.late.pop(0)()
        for driver in self.drivers:
            driver.silent = False
        for actor in self.actors():
            actor.paused = False
        self._check_checkpoints_go_on()
        self.stop()
        for _ in range(40):
            if self.at_rest:
                break
            self.calm_round()
        assert self.at_rest, "a stop was wished for, and the job goes on"
        # Drivers that nobody counts on any more may be at an end of their own.
        self.calm_round()
        self.oracle.check_kept(self.record.min_epoch)

    def go_on(self) -> None:
        """Resume the job that has come to rest, and let it make an epoch. It may have rested before an epoch that was
        damaged, or with output that is yet to be taken back: the next generation must put that right."""
        before = self.record.completed_count
        self.new_generation()
        for _ in range(80):
            self.calm_round()
            if self.record.completed_count > before:
                return
        raise AssertionError(f"the job was resumed, and makes no epoch: {self.record}")

    def _check_checkpoints_go_on(self) -> None:
        """A cleanup that fails for ever does not stop checkpoints; nor does anything else, once all faults are over."""
        if not self.cleanups_fail or self.record.stop or self.record.stopped or self.oracle.corrupted:
            return
        before = self.record.completed_count
        for _ in range(80):
            self.calm_round()
            if self.record.completed_count >= before + 3:
                return
        raise AssertionError(f"cleanups fail, and checkpoints end: {self.record}")

    def check_garbage_gone(self) -> None:
        min_epoch = self.record.min_epoch
        kept = [manifest for epoch, manifest in self.oracle.published.items() if epoch >= min_epoch]
        if not kept or self.oracle.corrupted:
            return
        result = clean(self.store, self.paths, min_epoch)
        assert isinstance(result, Cleaned), result
        needed = {name for manifest in kept for name in manifest.objects()}
        for name in list(self.store.list_names(self.paths.savepoints)):
            stem = name.rsplit("/", 1)[-1].removesuffix(".json")
            if stem in self.oracle.savepoints:
                needed |= self.oracle.savepoints[stem].objects()
            else:
                return  # left by an owner who died: it keeps what it names until it is deleted
        left = set(self.store.list_names(self.paths.state))
        garbage = {name for name in left - needed if self.paths.parse(name).epoch < min_epoch}  # type: ignore[union-attr]
        assert not garbage, f"left after cleanup: {garbage}"


__all__ = ["NO_EPOCH", "BackTo", "World"]
