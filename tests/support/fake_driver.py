"""A driver without Spark that can be told to be slow, silent, wrong or dead.

It is started like the real one, serves the real control server and publishes by the real protocol; only its rows are
made up: it counts. The count is its state, and its sink writes each epoch's stretch of the count to a file, so that a
test can see whether anything was lost or doubled.

``pipeline.parameters`` is its script:

=================  ===================================================================================================
``rows``           the source ends after so many rows (0: never)
``rate``           rows a second
``checkpoint``     seconds that a checkpoint takes
``starting``       seconds until it is ready
``output``         directory of the sink
``die``            ``POINT`` or ``POINT@EPOCH``: kills itself there; points are ``start``, ``barrier``, ``published``,
                   ``committed``
``hang``           ``POINT@EPOCH``: stays there for ever
``lose``           ``POINT@EPOCH``: loses an executor there, and goes on in place if its controller follows
``recovering``     seconds that it takes to go on in place
``fail``           an epoch that fails
``sink``           from this epoch on the sink fails, unless there is a file ``mended`` beside ``output``
``silent``         an epoch from whose barrier on nothing is answered
``late``           how many of the first rows come too late
``exit``           exit code, at once
``generation``     only this generation misbehaves; 0: each one
=================  ===================================================================================================
"""

import os
import signal
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

import msgspec
import pyarrow
from pyarrow import parquet

from epochal.protocol.control import (
    EXIT_FAILED,
    EXIT_FENCED,
    EXIT_NOTHING_TO_RESTORE,
    EXIT_STOPPED,
    TOKEN_VARIABLE,
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverConfig,
    DriverPhase,
    DriverStatus,
    OperatorEvent,
    OperatorReport,
    Refusal,
    RefusalReason,
    RestoreConfig,
    SinkReport,
    SourceReport,
)
from epochal.protocol.documents import (
    CommitRecord,
    GenerationRecord,
    Manifest,
    OperatorState,
    RunPart,
    SourcePosition,
    StoredRun,
    StoredTable,
)
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation
from epochal.protocol.paths import JobPaths, StateName
from epochal.protocol.publish import Fenced, Published, publish, record_commit
from epochal.protocol.resolve import Found, NothingToRestore, newest_epoch_number, read_savepoint
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import Store, StoreOptions, open_store
from epochal.runtime.http.control_server import ControlServer

OPERATORS = (("numbers", "source"), ("total", "aggregate"), ("files", "sink"))


def micros() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class Script:
    rows: int = 0
    rate: float = 100.0
    checkpoint: float = 0.0
    starting: float = 0.0
    output: str = ""
    die: str = ""
    hang: str = ""
    lose: str = ""
    recovering: float = 0.0
    fail: int = 0
    sink: int = 0
    silent: int = 0
    late: int = 0
    exit: int = -1
    generation: int = 0

    @classmethod
    def of(cls, config: DriverConfig) -> "Script":
        script = msgspec.convert(config.pipeline.parameters, cls, strict=False)
        if script.generation and script.generation != config.generation:
            script = replace(script, die="", hang="", lose="", fail=0, silent=0, exit=-1)
        return script

    def at(self, point: str, epoch: int = 0) -> None:
        here = {point, f"{point}@{epoch}"}
        if self.die in here:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.hang in here:
            threading.Event().wait()


@dataclass(slots=True)
class Job:
    """Where the count stands: ``base`` at ``since``, growing by the rate."""

    base: int = 0
    since: float = field(default_factory=time.monotonic)
    stopped: bool = False

    def count(self, script: Script) -> int:
        if self.stopped:
            return self.base
        count = self.base + int((time.monotonic() - self.since) * script.rate)
        return min(count, script.rows) if script.rows else count


class SinkFailedError(Exception):
    pass


class LostStateError(Exception):
    """An executor is gone; what was at work has ended."""


class FakeEngine:
    def __init__(self, config: DriverConfig, store: Store, script: Script) -> None:
        self.config, self.store, self.script = config, store, script
        self.paths = JobPaths(config.namespace, config.job)
        self.followed = False
        self.began, self.claim = config.generation, uuid.uuid4().hex
        self.job = Job()
        self.done = threading.Event()
        self.exit_code = EXIT_STOPPED
        self._lock = threading.RLock()
        self._reports: dict[Epoch, CheckpointReport] = {}
        self._last: Manifest | None = None
        self._committed = 0
        self._silent = False
        self._issued = NO_EPOCH
        self._status = DriverStatus(
            namespace=config.namespace,
            job=config.job,
            generation=config.generation,
            phase=DriverPhase.STARTING,
            started=micros(),
            edges=(("numbers", "total"), ("total", "files")),
        )

    # --- starting

    def begin(self) -> None:
        time.sleep(self.script.starting)
        restore, config = self.config.restore, self.config
        back_to = restore.back_to
        if restore.savepoint is not None:
            back_to = read_savepoint(self.store, self.paths, restore.savepoint).epoch
        record = GenerationRecord(
            generation=config.generation,
            claim=self.claim,
            created=micros(),
            writer="fake",
            back_to=back_to,
            savepoint=restore.savepoint,
        )
        request = StartRequest(
            record=record, known=restore.known, issued=restore.issued, allow_empty=restore.allow_empty
        )
        resolution = start_generation(self.store, self.paths, request)
        restored = NO_EPOCH
        self._status = msgspec.structs.replace(self._status, generation=config.generation)
        match resolution:
            case Fenced(message=message):
                return self.end(EXIT_FENCED, message)
            case NothingToRestore(message=message):
                return self.end(EXIT_NOTHING_TO_RESTORE, message)
            case Found(manifest=manifest):
                self._last, restored = manifest, manifest.epoch
                position = manifest.operators["numbers"].position
                assert position is not None
                self.job = Job(base=position.batch)
                try:
                    self._commit(manifest)
                except SinkFailedError as error:
                    return self.end(EXIT_FAILED, str(error))
            case _:
                self.job = Job()
        if config.generation != self.began:
            time.sleep(self.script.recovering)
        self.script.at("start")
        if restore.commit_only:
            return self.end(EXIT_STOPPED, f"stopped: the output of epoch {restored} is committed")
        self._status = msgspec.structs.replace(
            self._status,
            phase=DriverPhase.RUNNING,
            restored_epoch=restored,
            newest_number=newest_epoch_number(self.store, self.paths),
        )
        return None

    def lose_state(self) -> None:
        """Go on as the next generation, or end: as a driver that has lost an executor."""
        with self._lock:
            last = self._last
            done = last is not None and last.generation == self.config.generation
            stopping = self._status.phase is not DriverPhase.RUNNING
            if last is None or not done or stopping or not self.followed:
                return self.end(EXIT_FAILED, "an executor was lost")
            restore = RestoreConfig(known=last.epoch, issued=self._issued, min_epoch=last.min_epoch)
            generation = Generation(self.config.generation + 1)
            self._status = msgspec.structs.replace(
                self._status,
                phase=DriverPhase.STARTING,
                restored_epoch=None,
                newest_number=None,
                message=f"an executor was lost: generation {generation} goes on in the same driver",
            )
            self._reports, self.claim = {}, uuid.uuid4().hex
            self.config = msgspec.structs.replace(self.config, generation=generation, restore=restore)
        return self.begin()

    def _at(self, point: str, epoch: Epoch) -> None:
        self.script.at(point, epoch)
        if self.script.lose == f"{point}@{epoch}":
            self.lose_state()
            raise LostStateError

    def end(self, code: int, message: str) -> None:
        print(message, file=sys.stderr, flush=True)
        self.exit_code = code
        self.done.set()

    # --- what the control server asks

    def status(self) -> DriverStatus:
        self._pause()
        count = self.job.count(self.script)
        source = SourceReport(
            name="numbers", batch=count, rows=count, rows_per_second=self.script.rate, batch_seconds=0.01, lag=0.1
        )
        with self._lock:
            return msgspec.structs.replace(
                self._status,
                sources=(source,),
                sinks=(SinkReport(name="files", rows_committed=self._committed),),
                finished=bool(self.script.rows) and count >= self.script.rows,
                late_rows=min(count, self.script.late),
                checkpoint=self._reports[max(self._reports)] if self._reports else None,
            )

    def start_checkpoint(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        barrier = request.barrier
        if barrier.epoch == self.script.silent:
            self._silent = True
        self._pause()
        with self._lock:
            if request.generation != self.config.generation:
                return Refusal(reason=RefusalReason.STALE_GENERATION, message="another generation's barrier")
            if known := self._reports.get(barrier.epoch):
                return known
            if self._status.phase is not DriverPhase.RUNNING:
                return Refusal(reason=RefusalReason.NOT_RUNNING, message=f"the driver is {self._status.phase}")
            if any(report.state is CheckpointState.IN_PROGRESS for report in self._reports.values()):
                return Refusal(reason=RefusalReason.CHECKPOINT_IN_FLIGHT, message="one is in flight")
            if self._reports and barrier.epoch < max(self._reports):
                return Refusal(reason=RefusalReason.STALE_EPOCH, message="an older epoch")
            now = micros()
            report = CheckpointReport(
                epoch=barrier.epoch,
                generation=request.generation,
                then_stop=barrier.then_stop,
                state=CheckpointState.IN_PROGRESS,
                started=now,
                operators=tuple(OperatorReport(name=name, kind=kind) for name, kind in OPERATORS),
            )
            self._reports[barrier.epoch] = report
            self._issued = barrier.epoch
        threading.Thread(target=self._checkpoint, args=(request,), daemon=True).start()
        return report

    def checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        self._pause()
        return self._reports.get(epoch)

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        self._pause()
        with self._lock:
            report = self._reports.get(epoch)
            if report and report.state is CheckpointState.IN_PROGRESS:
                self._update(epoch, state=CheckpointState.FAILED, finished=micros(), message="aborted")
        return self._reports.get(epoch)

    def _pause(self) -> None:
        if self._silent:
            threading.Event().wait()

    # --- a checkpoint

    def _checkpoint(self, request: CheckpointRequest) -> None:
        with suppress(LostStateError):
            self._make_epoch(request)

    def _make_epoch(self, request: CheckpointRequest) -> None:
        barrier = request.barrier
        epoch = barrier.epoch
        self._at("barrier", epoch)
        if epoch == self.script.fail:
            self._update(epoch, state=CheckpointState.FAILED, finished=micros(), message="told to fail")
            return
        count = self.job.count(self.script)
        if barrier.then_stop:
            self.job = Job(base=count, stopped=True)
            self._status = msgspec.structs.replace(self._status, phase=DriverPhase.STOPPING)
        begun = micros()
        manifest = self._manifest(request, count)
        time.sleep(self.script.checkpoint)
        self._update(epoch, operators=_operators(begun, micros(), count, committed=False))
        with self._lock:
            if self._reports[epoch].state is CheckpointState.FAILED:
                return
            outcome = publish(self.store, self.paths, manifest)
        if not isinstance(outcome, Published):
            self.end(EXIT_FENCED if isinstance(outcome, Fenced) else EXIT_FAILED, outcome.message)
            return
        self._last = manifest
        self._at("published", epoch)
        self._update(epoch, state=CheckpointState.COMMITTING, bytes=_bytes(manifest))
        try:
            self._commit(manifest)
        except SinkFailedError as error:
            self.end(EXIT_FAILED, str(error))
            return
        self._at("committed", epoch)
        self._update(
            epoch,
            state=CheckpointState.READY,
            finished=micros(),
            operators=_operators(begun, micros(), count, committed=True),
        )
        if barrier.then_stop:
            time.sleep(0.5)  # so that the controller sees how it ended
            self.end(EXIT_STOPPED, f"stopped with epoch {epoch}")

    def _manifest(self, request: CheckpointRequest, count: int) -> Manifest:
        barrier = request.barrier
        name = self.paths.state_object(
            StateName(
                operator="total",
                table="sums",
                epoch=barrier.epoch,
                generation=self.config.generation,
                run=0,
                part=0,
            )
        )
        data = BytesIO()
        parquet.write_table(pyarrow.table({"key": ["count"], "value": [count]}), data)
        self.store.create(name, data.getvalue())
        run = StoredRun(parts=(RunPart(object=name, rows=1, bytes=len(data.getvalue())),))
        begin = 0
        if self._last and (position := self._last.operators["numbers"].position):
            begin = position.batch
        return Manifest(
            namespace=self.config.namespace,
            job=self.config.job,
            epoch=barrier.epoch,
            generation=self.config.generation,
            claim=self.claim,
            parent=self._last.epoch if self._last else NO_EPOCH,
            min_epoch=barrier.min_epoch,
            timestamp=barrier.timestamp,
            then_stop=barrier.then_stop,
            operators={
                "numbers": OperatorState(position=SourcePosition(batch=count, log={})),
                "total": OperatorState(tables={"sums": StoredTable(kind="Global", runs=(run,))}),
                "files": OperatorState(transaction={"begin": str(begin), "end": str(count)}),
            },
        )

    def _commit(self, manifest: Manifest) -> None:
        transaction = manifest.operators["files"].transaction
        assert transaction is not None
        if 0 < self.script.sink <= manifest.epoch and not Path(self.script.output).with_name("mended").exists():
            raise SinkFailedError("operator 'files' failed: told to fail")
        if self.script.output:
            directory = Path(self.script.output)
            directory.mkdir(parents=True, exist_ok=True)
            target = directory / f"{transaction['begin']}-{transaction['end']}"
            target.touch()
        self._committed = int(transaction["end"])
        record_commit(self.store, self.paths, CommitRecord(epoch=manifest.epoch, generation=self.config.generation))

    def _update(self, epoch: Epoch, **changes: object) -> None:
        with self._lock:
            self._reports[epoch] = msgspec.structs.replace(self._reports[epoch], **changes)


def _operators(begun: int, done: int, count: int, *, committed: bool) -> tuple[OperatorReport, ...]:
    reports = []
    for number, (name, kind) in enumerate(OPERATORS):
        step = (done - begun) // 10
        events: dict[str, int] = {
            OperatorEvent.STARTED_CHECKPOINTING: begun + number * step,
            OperatorEvent.FINISHED_OPERATOR_SETUP: begun + number * step,
            OperatorEvent.FINISHED_SYNC: begun + (number + 2) * step,
            OperatorEvent.COMPLETED: done,
        }
        if kind != "source":
            events[OperatorEvent.STARTED_ALIGNMENT] = begun
        if kind == "sink" and committed:
            events[OperatorEvent.FINISHED_COMMIT] = done
        reports.append(OperatorReport(name=name, kind=kind, events=events, rows=1, bytes=count))
    return tuple(reports)


def _bytes(manifest: Manifest) -> int:
    runs = manifest.operators["total"].tables["sums"].runs
    return sum(part.bytes for run in runs for part in run.parts)


def stretches(directory: Path) -> list[tuple[int, int]]:
    """What the sink has committed, in order."""
    return sorted((int(begin), int(end)) for begin, end in (path.name.split("-") for path in directory.iterdir()))


def main() -> int:
    config = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=DriverConfig)
    script = Script.of(config)
    if script.exit >= 0:
        print("told to exit", file=sys.stderr)
        return script.exit
    options = StoreOptions(endpoint=config.storage.endpoint, region=config.storage.region)
    engine = FakeEngine(config, open_store(config.storage.uri, options), script)
    with ControlServer(engine, token=os.environ[TOKEN_VARIABLE], host=config.host, port=config.port) as server:
        if config.ready_file:
            ready = Path(config.ready_file)
            ready.with_suffix(".tmp").write_text(server.address)
            ready.with_suffix(".tmp").rename(ready)
        engine.followed = bool(os.environ.get("EPOCHAL_IN_PLACE"))
        engine.begin()
        engine.done.wait()
    return engine.exit_code


if __name__ == "__main__":
    sys.exit(main())
