"""The end of a job whose sources have all ended: what is open comes out, and the state before that is stored.

The end of a source is the end of what was there. The job may be run again when there is more, and goes on as if it had
never ended: with open windows, with rows that wait for a partner, with the watermark that the rows gave. So the last
epoch is made in two parts:

1. All operators but the sinks freeze their state, as for any epoch.
2. The last watermark goes through the graph: windows close, rows without a partner come out, timers fire. Sinks keep
   these rows apart from those before them, and freeze.

Once begun, part 2 is done to its end, also if the epoch fails meanwhile. The next try has the same state again.
"""

import threading
from collections.abc import Mapping

from epochal.protocol.documents import Manifest
from epochal.runtime.dataflow.checkpoint_attempt import EpochRun
from epochal.runtime.dataflow.operator import BoundOperator
from epochal.runtime.dataflow.source import SourceTask
from epochal.runtime.dataflow.task import MAX_WATERMARK, Task
from epochal.runtime.dataflow.two_phase_sink import BoundSink
from epochal.runtime.state.table_manager import OperatorSnapshot


def stored_end(manifest: Manifest, operators: Mapping[str, BoundOperator]) -> str | None:
    """Why a job cannot go on after this epoch, if a release before 0.2 wrote it when the input had ended: that release
    closed what was open and stored the rest, so what came next would find no partner and no open window."""
    closed = [
        name
        for name, state in manifest.operators.items()
        if state.watermark is not None and state.watermark >= MAX_WATERMARK and _closes(operators.get(name))
    ]
    if not closed:
        return None
    return (
        f"epoch {manifest.epoch} was stored by an earlier release when the job's input had ended: operators "
        f"{', '.join(map(repr, sorted(closed)))} have dropped what was open then, so rows that come now would lack "
        "what belongs to them. Set restore.fromEpoch to an epoch before the end, or allowEmptyStart to go on without it"
    )


def _closes(operator: BoundOperator | None) -> bool:
    """Whether an operator lets state go when the watermark passes."""
    return operator is not None and type(operator).on_watermark is not BoundOperator.on_watermark


class End:
    """The end of one driver's job."""

    def __init__(self, tasks: dict[str, Task]) -> None:
        self._tasks = tasks
        self._before: dict[str, tuple[OperatorSnapshot | None, int | None]] = {}
        """Each operator's state and watermark before the end."""
        self._lock = threading.Lock()
        self.has_come = False

    def all_frozen(self, run: EpochRun) -> bool:
        """Whether part 1 is done: true once, for the operator that was the last."""
        return run.frozen_all({name for name, task in self._tasks.items() if not task.is_sink})

    def make(self, run: EpochRun) -> None:
        """Make part 2; of a later try also part 1, with the state that was kept."""
        with self._lock:
            if self.has_come:
                for name, (snapshot, watermark) in self._before.items():
                    run.started_checkpointing(name)
                    run.finished_sync(name, None if snapshot is None else snapshot.again(), watermark)
            elif run.over:
                return
            else:
                self._close_all(run)
            for task in self._tasks.values():
                if task.is_sink and not run.over:
                    task.cut_alone(run, self._sources()[0].scope())

    def _close_all(self, run: EpochRun) -> None:
        for source in self._sources():
            source.hold_for_end()
        for name, task in self._tasks.items():
            if isinstance(task.operator, BoundSink):
                task.operator.pending.end()
            else:
                frozen = None if run.parts[name].skipped else task.tables.checkpoint()
                self._before[name] = (frozen, task.watermark)
        self.has_come = True
        for source in self._sources():
            source.close_all()

    def _sources(self) -> list[SourceTask]:
        return [task for task in self._tasks.values() if isinstance(task, SourceTask)]
