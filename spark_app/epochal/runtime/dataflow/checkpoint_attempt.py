"""One checkpoint in the driver, from the barrier to the committed sinks: who has done what, when, and how it ended."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    CheckpointReport,
    CheckpointState,
    OperatorEvent,
    OperatorReport,
)
from epochal.protocol.documents import OperatorState, RunPart
from epochal.protocol.epochs import Generation
from epochal.runtime.state.table_manager import OperatorSnapshot
from epochal.runtime.state.tables import Run

logger = logging.getLogger(__name__)

_ENDED = (CheckpointState.READY, CheckpointState.FAILED)


def now_micros() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class OperatorPart:
    """One operator's part in the epoch."""

    kind: str
    events: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    rows: int = 0
    watermark: int | None = None
    skipped: bool = False
    snapshot: OperatorSnapshot | None = None
    state: OperatorState | None = None


class EpochRun:
    """The bookkeeping of one epoch. ``on_frozen`` is called when an operator's state is frozen and can be persisted,
    ``on_ended`` when the epoch is ready or has failed."""

    def __init__(
        self,
        barrier: CheckpointBarrier,
        generation: Generation,
        kinds: dict[str, str],
        on_frozen: Callable[["EpochRun", str], None],
        on_ended: Callable[[CheckpointReport], None],
        *,
        ends: bool = False,
    ) -> None:
        self.barrier = barrier
        self.generation = generation
        self.ends = ends
        """Whether all sources have ended: sinks then have their part after what comes out because of that."""
        self.parts = {name: OperatorPart(kind) for name, kind in kinds.items()}
        self.state = CheckpointState.IN_PROGRESS
        self.message = ""
        self.started = now_micros()
        self._began = time.monotonic_ns()
        self.finished: int | None = None
        self.done = threading.Event()
        self._told_frozen = False
        self._on_frozen = on_frozen
        self._on_ended = on_ended
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        return self.state is CheckpointState.FAILED

    # --- what operators report ---

    def started_alignment(self, operator: str) -> None:
        self._note(operator, OperatorEvent.STARTED_ALIGNMENT)

    def started_checkpointing(self, operator: str) -> None:
        self._note(operator, OperatorEvent.STARTED_CHECKPOINTING)

    def finished_setup(self, operator: str) -> None:
        self._note(operator, OperatorEvent.FINISHED_OPERATOR_SETUP)

    def finished_sync(self, operator: str, snapshot: OperatorSnapshot | None, watermark: int | None) -> None:
        with self._lock:
            part = self.parts[operator]
            part.watermark, part.skipped = watermark, snapshot is None
            late = self.finished is not None
            if not late:
                part.snapshot = snapshot
        self._note(operator, OperatorEvent.FINISHED_SYNC)
        if not late:
            self._on_frozen(self, operator)
        elif snapshot is not None:
            snapshot.release()  # aborted since the barrier came here: nobody else would

    def frozen_all(self, operators: set[str]) -> bool:
        """Whether all of these are frozen. True only once."""
        with self._lock:
            frozen = all(OperatorEvent.FINISHED_SYNC in self.parts[name].events for name in operators)
            first, self._told_frozen = frozen and not self._told_frozen, self._told_frozen or frozen
            return first

    def completed(self, operator: str, state: OperatorState, *, rows: int, written: int) -> bool:
        """The operator's state is in the store. True if it was the last one."""
        with self._lock:
            part = self.parts[operator]
            part.state, part.rows, part.bytes = state, rows, written
            part.events[OperatorEvent.COMPLETED] = self._now()
            return all(OperatorEvent.COMPLETED in one.events for one in self.parts.values())

    def finished_commit(self, operator: str) -> None:
        self._note(operator, OperatorEvent.FINISHED_COMMIT)

    # --- how it goes on ---

    def waits(self, message: str) -> None:
        """What a sink's commit waits for; empty once that is over."""
        with self._lock:
            if self.state is CheckpointState.COMMITTING:
                self.message = message

    def try_commit_point(self) -> bool:
        """From here on the epoch cannot be aborted: its manifest is being published. False if it has been."""
        return self._move(CheckpointState.IN_PROGRESS, CheckpointState.COMMITTING)

    def abort(self, message: str) -> bool:
        """Give the epoch up. False if it has passed its commit point, or has ended."""
        return self._move(CheckpointState.IN_PROGRESS, CheckpointState.FAILED, message)

    def reject(self, message: str) -> bool:
        """For who publishes only: it is certain that the manifest is not there, and never will be."""
        return self._move(CheckpointState.COMMITTING, CheckpointState.FAILED, message)

    def ready(self) -> bool:
        """For who publishes only: the sinks have committed."""
        return self._move(CheckpointState.COMMITTING, CheckpointState.READY)

    def _move(self, expected: CheckpointState, state: CheckpointState, message: str = "") -> bool:
        """Compare and set, in one step. The four methods above are all the ways that there are."""
        with self._lock:
            if self.state is not expected:
                return False
            self.state = state
            self.message = message or self.message
            if state in _ENDED:
                self.finished = self._now()
        if self.finished is not None:
            self._end()
        return True

    def _end(self) -> None:
        try:
            self._release()
            self._on_ended(self.report())
        except Exception:
            logger.exception("Failed to report the end of epoch %s completely", self.barrier.epoch)
        finally:
            self.done.set()

    def _release(self) -> None:
        for part in self.parts.values():
            # The epoch's report is kept for long; its frames must not be, in Python and in the JVM.
            snapshot, part.snapshot = part.snapshot, None
            if snapshot is not None:
                snapshot.release()

    def written(self, runs: Sequence[tuple[Run, tuple[RunPart, ...]]]) -> bool:
        """Note where runs are in the store. Not if the epoch has ended meanwhile: the next one shares these runs, and
        writes them itself."""
        with self._lock:
            if self.state is not CheckpointState.IN_PROGRESS:
                return False
            for run, parts in runs:
                run.parts, run.persisted = parts, self.barrier.epoch
            return True

    def _note(self, operator: str, event: OperatorEvent) -> None:
        with self._lock:
            self.parts[operator].events.setdefault(event, self._now())

    def _now(self) -> int:
        """The time by the clock as it was at the beginning: a clock that is set in between lengthens no span."""
        return self.started + (time.monotonic_ns() - self._began) // 1000

    def report(self) -> CheckpointReport:
        with self._lock:
            operators = tuple(
                OperatorReport(
                    name=name,
                    kind=part.kind,
                    events=dict(part.events),
                    bytes=part.bytes,
                    rows=part.rows,
                    watermark=part.watermark,
                    skipped=part.skipped,
                )
                for name, part in self.parts.items()
            )
            return CheckpointReport(
                epoch=self.barrier.epoch,
                generation=self.generation,
                then_stop=self.barrier.then_stop,
                state=self.state,
                started=self.started,
                finished=self.finished,
                message=self.message,
                bytes=sum(part.bytes for part in self.parts.values()),
                operators=operators,
            )
