"""A job on this machine: drivers and cleanups are processes, the record is a file.

::

    STATE_DIR/{namespace}/{job}/
      record.json            what the controller has written down
      checkpoints.jsonl      the report of every checkpoint that ended
      lock                   held by the one runner of this job; has its process number
      drivers/{generation}/  config.json, token, address, pid, exit, cause, driver.log
      cleanup/               pid, exit, cleanup.log
"""

import fcntl
import os
import secrets
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from epochal.cli.errors import UserError
from epochal.cli.files import last_lines, write_atomically
from epochal.cli.processes import Alive, DetachedProcess, Gone, NotStarted
from epochal.control.driver_client import DriverClient
from epochal.control.endings import how_it_ended
from epochal.control.job import JobSpec
from epochal.control.lifecycle import DriverAbsent, DriverEnded, JobRecord
from epochal.control.permit import Permit
from epochal.control.reconcile import DriverAlive, Tick
from epochal.protocol.control import (
    CAUSE_VARIABLE,
    IN_PLACE_VARIABLE,
    TOKEN_VARIABLE,
    CheckpointReport,
    DriverConfig,
    PipelineConfig,
    RestoreConfig,
    StorageConfig,
)
from epochal.protocol.decision import CleanupExists, CleanupFailed, CleanupState, CleanupSucceeded, NoCleanup
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import Store, StoreOptions, open_store

CAUSE = "cause"
"""The file in which a driver says why it ended."""

CAUSE_LINES = 60
"""Of the log of one that was killed before it could."""

DRIVER_GRACE = 5.0
KEPT_DRIVERS = 5
DRIVER_MODULE_VARIABLE = "EPOCHAL_DRIVER_MODULE"
"""Another driver than ours, by module name: for trying things out, and for tests."""


class JobDirectory:
    """The files of one job below the state directory."""

    def __init__(self, state_dir: Path, namespace: str, job: str) -> None:
        self.root = state_dir.resolve() / namespace / job
        self.record = self.root / "record.json"
        self.checkpoints = self.root / "checkpoints.jsonl"
        self.drivers = self.root / "drivers"
        self.cleanup = self.root / "cleanup"

    def driver(self, generation: Generation) -> Path:
        return self.drivers / f"{generation:06d}"

    def generations(self) -> list[Generation]:
        if not self.drivers.is_dir():
            return []
        return sorted(Generation(int(path.name)) for path in self.drivers.iterdir() if path.name.isdigit())

    def newest_log(self) -> Path | None:
        generations = self.generations()
        return self.driver(generations[-1]) / "driver.log" if generations else None

    def load_record(self) -> JobRecord | None:
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=JobRecord)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise UserError(
                f"{self.record} cannot be read ({error}): delete it, and it is rebuilt from the checkpoints"
            ) from error

    def runner(self) -> int | None:
        """The process of the `epochal run` that runs this job, if one does: the one that holds the lock."""
        try:
            lock = os.open(self.root / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.read(lock, 32).decode("ascii", "replace").strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(lock)
        return None

    def append_report(self, report: CheckpointReport) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        with self.checkpoints.open("ab") as file:
            file.write(msgspec.json.encode(report) + b"\n")

    def reports(self) -> list[CheckpointReport]:
        """All checkpoints that ended, oldest first. A line that was cut off by a crash is passed over."""
        reports: dict[Epoch, CheckpointReport] = {}
        with suppress(FileNotFoundError):
            for line in self.checkpoints.read_bytes().splitlines():
                with suppress(msgspec.DecodeError):
                    report = msgspec.json.decode(line, type=CheckpointReport)
                    reports[report.epoch] = report
        return [reports[epoch] for epoch in sorted(reports)]


class LocalBackend:
    """:class:`epochal.control.reconcile.Backend` on processes. Holds the job's lock until :meth:`close`."""

    def __init__(
        self, spec: JobSpec, *, directory: JobDirectory, storage: StorageConfig, pipeline: PipelineConfig
    ) -> None:
        self._spec = spec
        self._storage = storage
        self._pipeline = pipeline
        self.directory = directory
        self._processes: dict[Generation, DetachedProcess] = {}
        self._cleanup = DetachedProcess(directory.cleanup)
        self._objects = open_store(storage.uri, StoreOptions(endpoint=storage.endpoint, region=storage.region))
        self._paths = JobPaths(spec.namespace, spec.name)
        directory.root.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(directory.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UserError(
                f"job {spec.name} is being run by another `epochal run` already: stop that one first"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def close(self) -> None:
        os.close(self._lock)

    @property
    def objects(self) -> Store:
        return self._objects

    @property
    def paths(self) -> JobPaths:
        return self._paths

    # --- record -------------------------------------------------------------------------------------------------------

    def load(self) -> JobRecord | None:
        return self.directory.load_record()

    def write_ahead(self, tick: Tick) -> Permit | None:
        if not tick.changed and not tick.step.acts:
            return None
        self.store(tick.step.job)
        return Permit()  # there is no other runner: this one has the directory's lock

    def store(self, job: JobRecord) -> None:
        write_atomically(self.directory.record, msgspec.json.encode(job))

    # --- driver -------------------------------------------------------------------------------------------------------

    def driver(self) -> DriverAbsent | DriverEnded | DriverAlive:
        newest: DriverAbsent | DriverEnded = DriverAbsent()
        for generation in reversed(self.directory.generations()):
            process = self._process(generation)
            match process.state():
                case Alive():
                    return DriverAlive(generation=generation, client=self._client(process.directory))
                case Gone(code) if isinstance(newest, DriverAbsent):
                    newest = DriverEnded(generation=generation, code=code, message=_cause(process.directory, code))
                case Gone() | NotStarted():
                    pass
        job = self.load()
        if isinstance(newest, DriverEnded) and job and newest.generation < job.process_generation:
            return DriverAbsent()
        return newest

    def _process(self, generation: Generation) -> DetachedProcess:
        if generation not in self._processes:
            self._processes[generation] = DetachedProcess(self.directory.driver(generation))
        return self._processes[generation]

    def _client(self, directory: Path) -> DriverClient | None:
        try:
            address = (directory / "address").read_text().strip()
            token = (directory / "token").read_text().strip()
            return DriverClient(address, token)
        except (FileNotFoundError, ValueError):
            return None

    def start_driver(self, permit: Permit, generation: Generation, restore: RestoreConfig) -> None:  # noqa: ARG002
        self._forget_old(generation)
        directory = self.directory.driver(generation)
        (directory / "work").mkdir(parents=True, exist_ok=True)
        token = secrets.token_urlsafe(32)
        config = DriverConfig(
            namespace=self._spec.namespace,
            job=self._spec.name,
            generation=generation,
            storage=self._storage,
            pipeline=self._pipeline,
            restore=restore,
            spark_conf=local_spark_conf(self._spec),
            ready_file=str(directory / "address"),
            work_dir=str(directory / "work"),
        )
        write_atomically(directory / "token", token.encode(), mode=0o600)
        write_atomically(directory / "config.json", msgspec.json.format(msgspec.json.encode(config)))
        module = os.environ.get(DRIVER_MODULE_VARIABLE, "epochal.driver")
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        given = {str(item["name"]): str(item.get("value", "")) for item in self._spec.env}
        self._process(generation).start(
            [sys.executable, "-m", module, str(directory / "config.json")],
            env=environment
            | given
            | {TOKEN_VARIABLE: token, CAUSE_VARIABLE: str(directory / CAUSE), IN_PLACE_VARIABLE: "true"},
            log=directory / "driver.log",
        )

    def end_driver(self, permit: Permit) -> None:  # noqa: ARG002
        self._end_driver(DRIVER_GRACE)

    def end(self, *, grace: float = DRIVER_GRACE) -> None:
        """End whatever runs."""
        self._end_driver(grace)
        self._end_cleanup()

    def _end_driver(self, grace: float) -> None:
        for generation in self.directory.generations():
            process = self._process(generation)
            if isinstance(process.state(), Alive):
                process.end(grace=grace)

    def _forget_old(self, generation: Generation) -> None:
        """Children of a driver that was killed may live a little longer; and logs are not kept for ever."""
        known = self.directory.generations()
        for old in known[-2:]:
            self._process(old).end(grace=0)
            shutil.rmtree(self.directory.driver(old) / "work", ignore_errors=True)
        for old in known[: -(KEPT_DRIVERS - 1)]:
            if old < generation:
                self._processes.pop(old, None)
                shutil.rmtree(self.directory.driver(old), ignore_errors=True)

    # --- cleanup ------------------------------------------------------------------------------------------------------

    def cleanup(self) -> CleanupState:
        match self._cleanup.state():
            case NotStarted():
                return NoCleanup()
            case Alive():
                return CleanupExists()
            case Gone(0):
                return CleanupSucceeded()
            case Gone(code):
                said = last_lines(self.directory.root / "cleanup.log", CAUSE_LINES)
                return CleanupFailed(how_it_ended(code, said="\n".join(said)) or f"it ended with code {code}")

    def start_cleanup(self, permit: Permit, min_epoch: Epoch) -> None:  # noqa: ARG002
        self._end_cleanup()
        storage = self._storage
        options = [f"--endpoint={storage.endpoint}"] if storage.endpoint else []
        options += [f"--region={storage.region}"] if storage.region else []
        self._cleanup.start(
            [
                *(sys.executable, "-m", "epochal.cli", "cleanup", storage.uri, *options),
                *("--namespace", self._spec.namespace, "--job", self._spec.name, "--min-epoch", str(min_epoch)),
            ],
            env=os.environ,
            log=self.directory.root / "cleanup.log",
        )

    def end_cleanup(self, permit: Permit) -> None:  # noqa: ARG002
        self._end_cleanup()

    def _end_cleanup(self) -> None:
        if isinstance(self._cleanup.state(), Alive):
            self._cleanup.end(grace=0)
        shutil.rmtree(self.directory.cleanup, ignore_errors=True)
        self._cleanup = DetachedProcess(self.directory.cleanup)


def _cause(directory: Path, code: int | None) -> str:
    said = last_lines(directory / CAUSE, 1) or last_lines(directory / "driver.log", CAUSE_LINES)
    return how_it_ended(code, said="\n".join(said))


def local_spark_conf(spec: JobSpec) -> dict[str, str]:
    """The spec's settings, on this machine's cores unless it says otherwise."""
    return {"spark.master": "local[*]", "spark.driver.memory": spec.driver.memory, **spec.spark_conf}
