"""Running one job on this machine until it has stopped: the same loop as in a cluster, with signals for wishes."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from epochal.cli.errors import EXIT_FORCED, EXIT_JOB_FAILED, EXIT_OK, UserError
from epochal.cli.local import LocalBackend
from epochal.control.job import DesiredState, JobSpec
from epochal.control.lifecycle import JobPhase, JobRecord, needs_person, resumed
from epochal.control.reconcile import Reconciler, Tick
from epochal.protocol.control import CheckpointReport, CheckpointState
from epochal.protocol.decision import EpochPublished, Fail, InFlight
from epochal.protocol.errors import StoreError

TICK = 0.2


class View(Protocol):
    def show(self, tick: Tick, spec: JobSpec) -> None: ...

    def ended(self, report: CheckpointReport) -> None:
        """A checkpoint has ended, well or not."""

    def note(self, message: str) -> None: ...


@dataclass
class Wishes:
    """What the person at the keyboard wants. The first signal asks for a stop, the second for an end."""

    stop: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        self.changed = threading.Event()

    def signalled(self) -> None:
        self.force = self.stop
        self.stop = True
        self.changed.set()


@contextmanager
def listening(wishes: Wishes) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: wishes.signalled()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Runner:
    def __init__(
        self,
        *,
        backend: LocalBackend,
        load_spec: Callable[[], JobSpec],
        watched: Path,
        view: View,
        wishes: Wishes,
        until_epoch: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._backend = backend
        self._load_spec = load_spec
        self._watched = watched
        self._view = view
        self._wishes = wishes
        self._until_epoch = until_epoch
        self._clock = clock
        self._reconciler = Reconciler(backend)
        self._spec = load_spec()
        self._seen_change = self._stamp()
        self._last_report: CheckpointReport | None = None
        self._told_stop = False
        self._has_run = False

    def run(self) -> int:
        """Until the job has stopped, finished or failed; the exit code of the command."""
        if job := self._backend.load():
            self._backend.store(resumed(job))
        first = True
        while True:
            if self._wishes.force:
                return self._force()
            before = self._backend.load()
            try:
                tick = self._reconciler.tick(self._current_spec(), self._clock())
            except StoreError as error:
                if first:
                    raise UserError(str(error)) from error
                self._view.note(f"The store does not answer: {error}")
                self._wait(1.0)
                continue
            first = False
            self._journal(before, tick)
            self._view.show(tick, self._spec)
            if (code := self._outcome(tick)) is not None:
                return code
            self._wait(TICK)

    def _wait(self, seconds: float) -> None:
        self._wishes.changed.wait(seconds)
        self._wishes.changed.clear()

    def _current_spec(self) -> JobSpec:
        """The manifest as it is now: an edit applies at once, a mistake in it does not."""
        if (stamp := self._stamp()) != self._seen_change:
            self._seen_change = stamp
            try:
                self._spec = self._load_spec()
                self._view.note(f"{self._watched} was read again")
            except UserError as error:
                self._view.note(f"{self._watched} was changed and not taken: {error.message}")
        if self._wishes.stop:
            if not self._told_stop:
                self._view.note("Stopping after a last checkpoint (press Ctrl-C again to stop at once)")
                self._told_stop = True
            return replace(self._spec, state=DesiredState.SUSPENDED)
        return self._spec

    def _stamp(self) -> tuple[int, int]:
        try:
            found = self._watched.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)

    # --- how it ends --------------------------------------------------------------------------------------------------

    def _outcome(self, tick: Tick) -> int | None:
        job = tick.step.job
        if self._until_epoch is not None and job.checkpoints.newest_completed >= self._until_epoch:
            self._wishes.stop = True
        match job.phase:
            case JobPhase.STOPPED | JobPhase.FINISHED:
                self._backend.end()
                return EXIT_OK
            case JobPhase.FAILED | JobPhase.WAITING:
                return self._give_up()
            case JobPhase.RESTARTING if needs_person(job) and not self._has_run:
                # There is somebody at the keyboard, who has just made a mistake and wants to hear of it.
                return self._give_up()
            case _:
                self._has_run = self._has_run or job.phase is JobPhase.RUNNING
                return None

    def _give_up(self) -> int:
        self._backend.end()
        return EXIT_JOB_FAILED

    def _force(self) -> int:
        self._view.note("Ended at once: what came after the newest epoch is done again by the next run")
        self._backend.end(grace=0)
        return EXIT_FORCED

    # --- the reports of checkpoints -----------------------------------------------------------------------------------

    def _journal(self, before: JobRecord | None, tick: Tick) -> None:
        """Keep the report of a checkpoint that has ended in this round."""
        if tick.seen.report is not None:
            self._last_report = tick.seen.report
        flight = before.checkpoints.in_flight if before else None
        after = tick.step.job.checkpoints
        if flight is None or (after.in_flight is not None and after.in_flight.epoch == flight.epoch):
            return
        report = self._final_report(flight, tick, published=flight.epoch in after.completed)
        self._backend.directory.append_report(report)
        self._view.ended(report)

    def _final_report(self, flight: InFlight, tick: Tick, *, published: bool) -> CheckpointReport:
        report = self._last_report
        if report is None or report.epoch != flight.epoch:
            report = CheckpointReport(
                epoch=flight.epoch,
                generation=flight.generation,
                then_stop=flight.then_stop,
                state=CheckpointState.IN_PROGRESS,
                started=flight.barrier().timestamp,
            )
        if report.state in (CheckpointState.READY, CheckpointState.FAILED):
            return report
        # The driver went away before it could say how it ended; the record knows, and the store how much there is.
        fate = tick.seen.fate
        return msgspec.structs.replace(
            report,
            bytes=fate.bytes if isinstance(fate, EpochPublished) else report.bytes,
            state=CheckpointState.READY if published else CheckpointState.FAILED,
            finished=int(self._clock() * 1_000_000),
            message="" if published and not isinstance(tick.step.action, Fail) else tick.step.message,
        )
