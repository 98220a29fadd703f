"""A driver as far as the protocol sees it: rows come in, runs are kept, epochs are published, output is committed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.decision import EpochFailed, EpochPublished, EpochUnknown, Fate, InProgress
from epochal.protocol.documents import (
    CommitRecord,
    Manifest,
    OperatorState,
    RunPart,
    SourcePosition,
    StoredRun,
    StoredTable,
)
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation
from epochal.protocol.errors import StoreError
from epochal.protocol.paths import JobPaths, StateName
from epochal.protocol.publish import EpochTaken, Fenced, GivenUp, Published, give_up, publish, record_commit
from epochal.protocol.resolve import Found, NothingToRestore, StartEmpty, newest_epoch_number
from epochal.protocol.start import StartRequest, WouldRepeat, start_generation
from tests.protocol.oracle import Oracle, payload
from tests.protocol.stepping import Actor, wait_for_message

TABLES = {"aggregate": "sums", "join": "sides"}
"""One table for each operator with state. The join skips checkpoints now and then."""


@dataclass(slots=True)
class HeldRun:
    """A run in memory: rows ``first`` to ``end`` of the source; ``object`` once it is persisted, by epoch
    ``written``."""

    first: int
    end: int
    object: str | None = None
    written: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Delivered:
    """A barrier, and what the operators do when it comes."""

    barrier: CheckpointBarrier
    merge: bool = False
    skip: bool = False


@dataclass(slots=True, eq=False)
class Driver:
    generation: Generation
    request: StartRequest
    oracle: Oracle
    paths: JobPaths
    commit_only: bool = False
    dies_in_last_commit: bool = False
    silent: bool = False
    ready: bool = False
    restored: tuple[Epoch, Epoch] = (NO_EPOCH, NO_EPOCH)
    rows: int = 0
    base: Epoch = NO_EPOCH
    cut: int = 0
    tables: dict[str, list[HeldRun]] = field(default_factory=lambda: {name: [] for name in TABLES})
    last: Manifest | None = None
    inbox: list[Delivered] = field(default_factory=list)
    refused: set[Epoch] = field(default_factory=set)
    fates: dict[Epoch, Fate] = field(default_factory=dict)
    run: int = 0
    actor: Actor = field(init=False)

    def __post_init__(self) -> None:
        self.actor = Actor(f"driver {self.generation} ({self.request.record.claim})", self._main)

    @property
    def alive(self) -> bool:
        return self.actor.alive

    def fate(self, epoch: Epoch) -> Fate:
        return self.fates.get(epoch, EpochUnknown())

    # --- messages

    def receive(self, generation: Generation, delivered: Delivered) -> None:
        epoch = delivered.barrier.epoch
        if not (self.alive and self.ready and generation == self.generation):
            return
        if epoch in self.refused or epoch <= max(self.fates, default=NO_EPOCH) or self._busy:
            return
        self.fates[epoch] = InProgress()
        self.inbox.append(delivered)

    def abort(self, epoch: Epoch) -> None:
        if self.alive and self.ready and epoch not in self.fates:
            self.fates[epoch] = EpochFailed("given up before it began")
        self.refused.add(epoch)

    @property
    def _busy(self) -> bool:
        return any(isinstance(fate, InProgress) for fate in self.fates.values())

    # --- what runs

    @property
    def idle(self) -> bool:
        return self.actor.waiting_for == "a barrier" and not self.inbox

    def _main(self) -> None:
        store = self.oracle.store
        answer = start_generation(store, self.paths, self.request)
        self.oracle.saw_start(self.generation, answer)
        match answer:
            case Fenced() | NothingToRestore():
                return
            case WouldRepeat():
                raise AssertionError("the model's sink can take back")
            case Found() | StartEmpty():
                wait_for_message("the sink")
                self.oracle.saw_sink_open(self.generation)
                if answer.left is not None:
                    wait_for_message("the sink")
                    self.oracle.saw_take_back(self.generation, answer.left.restored)
        match answer:
            case Found(manifest=manifest, needs_commit=needs_commit):
                self._load(manifest)
                if needs_commit:
                    self._commit(manifest)
            case _:
                pass
        if self.commit_only:
            return
        self.restored = (self.base, newest_epoch_number(store, self.paths, known=self.base))
        self.ready = True
        while True:
            wait_for_message("a barrier")
            if self.inbox and not self._checkpoint(self.inbox.pop(0)):
                return

    def _load(self, manifest: Manifest) -> None:
        self.last, self.base = manifest, manifest.epoch
        self.cut = self.rows = payload(manifest)[1]
        for operator, table in TABLES.items():
            self.tables[operator] = [
                HeldRun(run.min_time or 0, run.max_time or 0, run.parts[0].object, manifest.epoch)
                for run in manifest.operators[operator].tables[table].runs
            ]

    def _checkpoint(self, delivered: Delivered) -> bool:
        """False if the driver has to end."""
        epoch = delivered.barrier.epoch
        try:
            manifest = self._persist(delivered)
        except StoreError as error:
            self.fates[epoch] = EpochFailed(str(error))
            return True
        if epoch in self.refused:
            self.fates[epoch] = EpochFailed("given up as asked")
            return True
        match self._publish(manifest):
            case Fenced():
                return False
            case GivenUp() | EpochTaken() as outcome:
                self.fates[epoch] = EpochFailed(str(outcome))
                return True
            case Published():
                self.fates[epoch] = EpochPublished()
        self.last, self.base, self.cut = manifest, epoch, payload(manifest)[1]
        self._forget_unpublished(manifest)
        if delivered.barrier.then_stop and self.dies_in_last_commit:
            return False
        self._commit(manifest)
        return not delivered.barrier.then_stop

    def _publish(self, manifest: Manifest) -> Published | Fenced | EpochTaken | GivenUp:
        attempt: Callable[..., Published | Fenced | EpochTaken | GivenUp] = publish
        while True:
            try:
                return attempt(self.oracle.store, self.paths, manifest)
            except StoreError:
                attempt = give_up

    def _commit(self, manifest: Manifest) -> None:
        wait_for_message("the sink")
        self.oracle.saw_commit(self.generation, manifest.epoch, payload(manifest))
        record = CommitRecord(epoch=manifest.epoch, generation=self.generation)
        with suppress(StoreError):  # committed again after a restore: harmless
            record_commit(self.oracle.store, self.paths, record)

    # --- state

    def _persist(self, delivered: Delivered) -> Manifest:
        barrier, rows = delivered.barrier, self.rows
        operators = {
            "source": OperatorState(position=SourcePosition(batch=rows, log={})),
            "sink": OperatorState(transaction={"from": str(self.cut), "to": str(rows)}),
        }
        for operator, table in TABLES.items():
            held = self.tables[operator]
            end = held[-1].end if held else 0
            if rows > end:
                held.append(HeldRun(end, rows))
            if operator == "join" and delivered.skip and self.last is not None:
                carried = self.last.operators[operator]
                since = carried.carried_from or self.last.epoch
                operators[operator] = OperatorState(tables=carried.tables, carried_from=since)
                continue
            if delivered.merge and held:
                held[:] = [HeldRun(held[0].first, held[-1].end)]
            for run in held:
                if run.object is None:
                    self._write(run, operator, table, barrier.epoch)
            operators[operator] = OperatorState(tables={table: _described(held)})
        return Manifest(
            namespace=self.paths.namespace,
            job=self.paths.job,
            epoch=barrier.epoch,
            generation=self.generation,
            claim=self.request.record.claim,
            parent=self.base,
            min_epoch=barrier.min_epoch,
            timestamp=barrier.timestamp,
            then_stop=barrier.then_stop,
            operators=operators,
        )

    def _write(self, run: HeldRun, operator: str, table: str, epoch: Epoch) -> None:
        self.run += 1
        name = self.paths.state_object(
            StateName(operator=operator, table=table, epoch=epoch, generation=self.generation, run=self.run, part=0)
        )
        self.oracle.store.create(name, f"{run.first} to {run.end}".encode())
        run.object, run.written = name, epoch

    def _forget_unpublished(self, published: Manifest) -> None:
        """The rule at the head of :mod:`epochal.protocol.cleanup`."""
        kept = published.objects()
        for held in self.tables.values():
            for run in held:
                if run.object not in kept and run.written < published.epoch:
                    run.object = None


def _described(runs: list[HeldRun]) -> StoredTable:
    return StoredTable(
        kind="KeyedTime",
        runs=tuple(
            StoredRun(parts=(RunPart(object=run.object or "", rows=1, bytes=1),), min_time=run.first, max_time=run.end)
            for run in runs
        ),
    )
