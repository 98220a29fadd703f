"""Checkpoints in the driver: take a barrier, let it through the graph, persist, publish, commit.

One at a time. Operators' state is written by Spark jobs in a pool of their own while the next batches run; the manifest
is published when all of it is in the store.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import SparkSession

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    CheckpointReport,
    CheckpointRequest,
    Refusal,
    RefusalReason,
)
from epochal.protocol.documents import COMMITTED_TABLES, Manifest, OperatorState, StoredTable
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH, Epoch, Generation
from epochal.protocol.errors import StoreError
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import EpochTaken, Fenced, GivenUp, Published, give_up, publish
from epochal.protocol.store import Store
from epochal.runtime.checkpoint.committer import Committer
from epochal.runtime.dataflow.checkpoint_attempt import EpochRun
from epochal.runtime.dataflow.end_of_input import End
from epochal.runtime.dataflow.seen_files import SeenFiles, last_seen, table_name
from epochal.runtime.dataflow.source import SourceTask
from epochal.runtime.dataflow.task import Task
from epochal.runtime.errors import summarize_error
from epochal.runtime.state.persistence import Persistence, stored
from epochal.runtime.state.table_manager import TableSnapshot
from epochal.runtime.state.tables import MERGE_AT, Run, tier

POOL = "checkpoint"
"""Name of the scheduler pool that state is written in, beside the batches'."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    paths: JobPaths
    generation: Generation
    claim: str


class Checkpointer:
    """Makes the epochs of one driver."""

    def __init__(
        self,
        *,
        identity: JobIdentity,
        spark: SparkSession,
        store: Store,
        persistence: Persistence,
        tasks: dict[str, Task],
        last: Manifest | None,
        newest_number: Epoch,
        committer: Committer,
        on_fenced: Callable[[Fenced], None],
        on_error: Callable[[BaseException], None],
        on_stopped: Callable[[], None],
        on_ended: Callable[[CheckpointReport], None],
    ) -> None:
        self._identity = identity
        self._spark = spark
        self._store = store
        self._persistence = persistence
        self._seen_files = SeenFiles(store, identity.paths, identity.generation)
        self._tasks = tasks
        self.last = last
        """The newest published epoch."""
        self.newest_number = newest_number
        """The highest number that it was given, by a barrier or an abort."""
        self.min_epoch = FIRST_EPOCH
        """That of the last barrier."""
        self.has_completed = False
        """Whether it has made an epoch."""
        self._committer = committer
        self._on_fenced = on_fenced
        self._on_error = on_error
        self._on_stopped = on_stopped
        self._on_ended = on_ended
        self._runs: dict[Epoch, EpochRun] = {}
        self._current: EpochRun | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="persist")
        self._run_numbers = 0
        self._end = End(tasks)
        self.running = False

    # --- what the controller asks for ---

    def start(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        """Take a barrier, unless it is not for this driver or comes too late. The same barrier again is the same
        epoch."""
        barrier, mine = request.barrier, self._identity.generation
        with self._lock:
            if request.generation != mine:
                return Refusal(
                    reason=RefusalReason.STALE_GENERATION,
                    message=f"the barrier is for generation {request.generation}, this is generation {mine}",
                )
            known = self._runs.get(barrier.epoch)
            if known is not None:
                return known.report()
            if barrier.epoch <= self.newest_number:
                return Refusal(
                    reason=RefusalReason.STALE_EPOCH,
                    message=f"epoch {barrier.epoch} is not newer than epoch {self.newest_number}",
                )
            if not self.running:
                return Refusal(reason=RefusalReason.NOT_RUNNING, message="the job is not running")
            if self._current is not None and self._in_flight():
                return Refusal(
                    reason=RefusalReason.CHECKPOINT_IN_FLIGHT,
                    message=f"epoch {self._current.barrier.epoch} is in flight",
                )
            kinds = {name: task.kind for name, task in self._tasks.items()}
            ends = barrier.then_stop and all(source.finished for source in self._sources())
            run = EpochRun(barrier, mine, kinds, self._on_frozen, self._on_ended, ends=ends or self._end.has_come)
            self._remember(run, current=True)
            self.min_epoch = barrier.min_epoch
        if self._end.has_come:
            threading.Thread(target=self._make_end, args=(run,), name="end", daemon=True).start()
            return run.report()
        for source in self._sources():
            threading.Thread(
                target=self._inject, args=(source, run), name=f"barrier-{source.name}", daemon=True
            ).start()
        return run.report()

    def report(self, epoch: Epoch) -> CheckpointReport | None:
        run = self._runs.get(epoch)
        return None if run is None else run.report()

    def newest_report(self) -> CheckpointReport | None:
        return None if self._current is None else self._current.report()

    def abort(self, epoch: Epoch, message: str = "aborted by the controller") -> CheckpointReport | None:
        """Give an epoch up, unless its manifest is being published already. One whose barrier has not come yet is
        refused from now on: the barrier may still be on its way."""
        with self._lock:
            run = self._runs.get(epoch)
            if run is None and epoch > self.newest_number:
                barrier = CheckpointBarrier(epoch=epoch, min_epoch=epoch, timestamp=0, then_stop=False)
                run = EpochRun(barrier, self._identity.generation, {}, self._on_frozen, self._on_ended)
                self._remember(run, current=not self._in_flight())
        if run is None:
            return None
        self._abort(run, message)
        return run.report()

    def close(self) -> None:
        """The driver is ending. Batches that wait for an epoch's alignment are let go: their sources must end."""
        with self._lock:  # a barrier that is being taken is taken before, and given up with the others
            self.running = False
            current = self._current
        if current is not None:
            self.abort(current.barrier.epoch, "the driver is ending")
        self._pool.shutdown(wait=False, cancel_futures=True)

    def wait_for_end(self) -> None:
        """After :meth:`close`: until nobody writes, publishes or commits any more."""
        self._pool.shutdown(wait=True)

    @property
    def end_has_come(self) -> bool:
        """Whether what was open at the end of all sources has come out."""
        return self._end.has_come

    def _in_flight(self) -> bool:
        return self._current is not None and not self._current.done.is_set()

    def _remember(self, run: EpochRun, *, current: bool) -> None:
        self.newest_number = run.barrier.epoch
        if current:
            self._current = run
        self._runs[run.barrier.epoch] = run
        while len(self._runs) > 32:
            del self._runs[min(self._runs)]

    def _sources(self) -> list[SourceTask]:
        return [task for task in self._tasks.values() if isinstance(task, SourceTask)]

    def _inject(self, source: SourceTask, run: EpochRun) -> None:
        try:
            source.inject(run.barrier, run)
        except Exception as error:
            logger.exception("Barrier of epoch %s failed at source %s", run.barrier.epoch, source.name)
            self._abort(run, summarize_error(error))

    def _abort(self, run: EpochRun, message: str) -> None:
        """Give an epoch up that has not passed its commit point; nothing happens to one that has."""
        if run.abort(message):
            logger.warning("Epoch %s failed: %s", run.barrier.epoch, message)
            # Not by this thread: a task in the middle of a batch would make the controller's call wait for it.
            for task in self._tasks.values():
                threading.Thread(target=task.give_up, args=(run,), name=f"give-up-{task.name}", daemon=True).start()

    # --- persisting ---

    def _on_frozen(self, run: EpochRun, operator: str) -> None:
        self._pool.submit(self._persist, run, operator)
        if run.ends and not self._end.has_come and self._end.all_frozen(run):
            # Not by this thread: it holds the lock of the operator that was frozen last.
            threading.Thread(target=self._make_end, args=(run,), name="end", daemon=True).start()

    def _make_end(self, run: EpochRun) -> None:
        try:
            self._end.make(run)
        except Exception as error:
            # Some has come out and some has not: only a new driver can tell which.
            logger.exception("Closing what was open at the end of all sources failed")
            self._on_error(error)

    def _persist(self, run: EpochRun, operator: str) -> None:
        """Write one operator's new runs; the last operator to be done publishes the epoch."""
        try:
            if run.over:
                return
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
            state, rows, written = self._operator_state(run, operator)
            last = run.completed(operator, state, rows=rows, written=written)
        except Exception as error:
            if not run.over:  # what an aborted epoch had may be gone already
                logger.exception("Operator %s could not persist epoch %s", operator, run.barrier.epoch)
            self._abort(run, f"operator {operator!r}: {summarize_error(error)}")
            return
        if last and run.try_commit_point():
            self._publish(run)

    def _operator_state(self, run: EpochRun, operator: str) -> tuple[OperatorState, int, int]:
        part, task = run.parts[operator], self._tasks[operator]
        position = task.position if isinstance(task, SourceTask) else None
        snapshot = part.snapshot  # as it is now: an abort lets it go
        if snapshot is None:
            return self._carried(operator, part.watermark), 0, 0
        rows = written = 0
        tables: dict[str, StoredTable] = {}
        for name, table in snapshot.tables.items():
            for one in table.runs:
                one.arrive()
            written += self._write_table(run, operator, name, table)
            rows += sum(one.rows for one in table.runs)
            tables[name] = StoredTable(kind=table.kind, runs=stored(table.runs))
        if isinstance(task, SourceTask) and position is not None:
            for source, until in position.seen.items():
                name = table_name(source)
                tables[name], new = self._write_seen(run, task, source, until)
                rows, written = rows + tables[name].rows(), written + new
        definition = task.definition if tables else None
        state = OperatorState(tables=tables, position=position, watermark=part.watermark, definition=definition)
        return state, rows, written

    def _write_seen(self, run: EpochRun, task: SourceTask, source: str, until: int) -> tuple[StoredTable, int]:
        before = None if self.last is None else self.last.operators.get(task.name)
        return self._seen_files.write(
            before,
            task.files_read(source, after=last_seen(before, source), until=until),
            age=task.bound.longest_age,
            operator=task.name,
            source=source,
            epoch=run.barrier.epoch,
            number=self._run_number(),
        )

    def _write_table(self, run: EpochRun, operator: str, table: str, snapshot: TableSnapshot) -> int:
        new = [one for one in snapshot.runs if one.parts is None and one.rows]
        epoch, written = run.barrier.epoch, 0
        small = [] if snapshot.as_one else [one for one in new if tier(one.rows) == 0]
        while len(small) > 1 and not run.over:
            some, small = small[:MERGE_AT], small[MERGE_AT:]
            numbers = [self._run_number() for _ in some]
            parts = self._persistence.write_small(some, operator=operator, table=table, epoch=epoch, numbers=numbers)
            run.written([(one, (part,)) for one, part in zip(some, parts, strict=True)])
            written += sum(part.bytes for part in parts)
        new = [one for one in new if one.parts is None]
        for together in _as_one(new) if snapshot.as_one else [[one] for one in new]:
            if run.over:
                break
            whole = self._persistence.write(
                together, snapshot.latest, operator=operator, table=table, epoch=epoch, number=self._run_number()
            )
            run.written([(one, whole) for one in together])
            written += sum(part.bytes for part in whole)
        return written

    def _run_number(self) -> int:
        with self._lock:
            self._run_numbers += 1
            return self._run_numbers

    def _carried(self, operator: str, watermark: int | None) -> OperatorState:
        """An operator that skipped: its tables are those of the last epoch that had them."""
        before = None if self.last is None else self.last.operators.get(operator)
        if before is None or self.last is None:
            return OperatorState(watermark=watermark)
        return OperatorState(
            tables=before.tables,
            watermark=watermark,
            carried_from=before.carried_from or self.last.epoch,
            definition=self._tasks[operator].definition,
        )

    # --- publishing ---

    def _publish(self, run: EpochRun) -> None:
        """The epoch's end. An error in here says nothing of whether the epoch is real: a new generation finds that out,
        and commits what is.

        1. Publish the manifest.
        2. Commit the sinks, and record that they have committed.
        """
        try:
            manifest = self._manifest(run)
            # Step 1
            outcome = self._published(manifest)
            match outcome:
                case GivenUp():
                    self._reject(run, "the store failed while the manifest was being published")
                    return
                case Fenced():
                    self._reject(run, outcome.message)
                    self._on_fenced(outcome)
                    return
                case EpochTaken():
                    self._reject(run, outcome.message)
                    return
                case Published():
                    self.last = manifest
            published = manifest.objects()
            for task in self._tasks.values():
                task.tables.forget_unpublished(manifest.epoch, published)
            # Step 2
            self._committer.commit(manifest, held=_pending(run), on_sink=run.finished_commit, on_wait=run.waits)
        except Exception as error:
            self._on_error(error)
            return
        run.ready()
        self.has_completed = True
        logger.info("Epoch %s is ready", manifest.epoch)
        if manifest.then_stop:
            self._on_stopped()

    def _reject(self, run: EpochRun, message: str) -> None:
        logger.warning("Epoch %s failed: %s", run.barrier.epoch, message)
        run.reject(message)

    def _published(self, manifest: Manifest) -> Published | Fenced | EpochTaken | GivenUp:
        """Publish; after an error, find out what became of it. Until that is known the epoch is neither real nor
        failed."""
        paths = self._identity.paths
        try:
            return publish(self._store, paths, manifest)
        except StoreError as error:
            logger.warning("Publishing epoch %s failed, finding out what became of it: %s", manifest.epoch, error)
        while True:
            try:
                return give_up(self._store, paths, manifest)
            except StoreError as error:
                if not self.running:
                    raise
                logger.warning("Still not known what became of epoch %s: %s", manifest.epoch, error)
                time.sleep(1.0)

    def _manifest(self, run: EpochRun) -> Manifest:
        paths = self._identity.paths
        operators = {name: part.state for name, part in run.parts.items() if part.state is not None}
        return Manifest(
            namespace=paths.namespace,
            job=paths.job,
            epoch=run.barrier.epoch,
            generation=self._identity.generation,
            claim=self._identity.claim,
            parent=NO_EPOCH if self.last is None else self.last.epoch,
            min_epoch=run.barrier.min_epoch,
            timestamp=run.barrier.timestamp,
            then_stop=run.barrier.then_stop,
            operators=operators,
        )


def _pending(run: EpochRun) -> dict[str, list[Run]]:
    """By operator, the runs that are pending in the epoch."""
    snapshots = {name: part.snapshot for name, part in run.parts.items() if part.snapshot is not None}
    return {
        name: [run for table in COMMITTED_TABLES if table in one.tables for run in one.tables[table].runs]
        for name, one in snapshots.items()
    }


def _as_one(runs: list[Run]) -> list[list[Run]]:
    """Runs that can be written together: neighbours whose rows are there in the same way."""
    return [list(group) for _, group in itertools.groupby(runs, lambda run: run.packed is not None)]
