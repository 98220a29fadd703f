"""The driver's engine: builds the tasks of a graph, restores them, runs them, and answers the control server."""

import functools
import logging
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession

from epochal.protocol.control import (
    EXIT_DRAINED,
    EXIT_FAILED,
    EXIT_FENCED,
    EXIT_MISCONFIGURED,
    EXIT_NOTHING_TO_RESTORE,
    EXIT_STOPPED,
    EXIT_WOULD_REPEAT,
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverConfig,
    DriverPhase,
    DriverStatus,
    Refusal,
    RefusalReason,
    RestoreConfig,
    SinkReport,
)
from epochal.protocol.documents import (
    COMMITTED_TABLES,
    DamageRecord,
    GenerationRecord,
    Manifest,
    OperatorState,
    StoredTable,
)
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation
from epochal.protocol.faults import exit_code
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import Fenced, record_damage
from epochal.protocol.resolve import Found, NothingToRestore, Resolution, StartEmpty, newest_epoch_number
from epochal.protocol.start import StartRequest, WouldRepeat, start_generation
from epochal.protocol.store import Store
from epochal.runtime.checkpoint.checkpointer import Checkpointer, JobIdentity
from epochal.runtime.checkpoint.committer import Committer
from epochal.runtime.checkpoint.patience import Patience
from epochal.runtime.checkpoint.taking_back import abilities, take_back
from epochal.runtime.dataflow.arrow_batches import LIMIT, bound_batches
from epochal.runtime.dataflow.checkpoint_attempt import now_micros
from epochal.runtime.dataflow.definitions import definition_of, refusal, without_changed
from epochal.runtime.dataflow.end_of_input import stored_end
from epochal.runtime.dataflow.graph import Graph
from epochal.runtime.dataflow.operator import BoundOperator, JobRef, OperatorContext
from epochal.runtime.dataflow.seen_files import SeenFiles
from epochal.runtime.dataflow.source import LONGEST_STOP, BoundSource, SourceTask
from epochal.runtime.dataflow.task import Task, known_watermark
from epochal.runtime.dataflow.two_phase_sink import BoundSink
from epochal.runtime.errors import (
    DamagedStateError,
    FencedError,
    OperatorError,
    PipelineError,
    WouldRepeatError,
    failed_by_lost_state,
)
from epochal.runtime.http.prometheus import DriverMetrics, Scrape
from epochal.runtime.http.reports import Reports
from epochal.runtime.spark.background import Background
from epochal.runtime.spark.executors import SHARE, await_executors
from epochal.runtime.spark.progress_fs import list_by_name
from epochal.runtime.state.homes import StateLostError
from epochal.runtime.state.latest_files import Place
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.persistence import Persistence, store_of
from epochal.runtime.state.tables import check_replicas

logger = logging.getLogger(__name__)

RECOVER = "spark.epochal.recoverInPlace"
"""Setting: whether the driver goes on when it loses an executor, if its controller can follow (the default). With
``false`` it ends, and the controller starts another."""

SOURCES = "sources"
"""Directory of the progress logs."""

TAKEN_OVER = ("spark.sql.shuffle.partitions",)
"""Settings that a restart may change although Spark has them in its progress log."""


def recovers_in_place(config: DriverConfig) -> bool:
    given = config.spark_conf.get(RECOVER, "true")
    if given not in ("true", "false"):
        raise PipelineError(f"{RECOVER} is {given!r}: give true or false")
    return config.in_place and given == "true"


def goes_on(generation: Generation) -> str:
    return f"an executor was lost: generation {generation} goes on in the same driver"


class Engine:
    """One generation of one job. The control server calls it from its own threads."""

    def __init__(self, config: DriverConfig, before: "Engine | None" = None) -> None:
        """``before``: the engine of the generation that lost its state, if this one goes on in the same process. It
        has ended when this one runs."""
        self.config = config
        self.metrics: DriverMetrics = DriverMetrics(self.snapshot) if before is None else before.metrics
        self.exit_code: int | None = None
        self.lost_at: float | None = None
        """When it has ended because an executor was lost, such that the next generation may go on in this process."""
        self._lost_before = self._recovering = None if before is None else before.lost_at
        self.base_dir: str | None = config.work_dir if before is None else before.base_dir
        self._paths = JobPaths(config.namespace, config.job)
        self._phase = DriverPhase.STARTING
        self._message = "" if before is None else goes_on(config.generation)
        self._waiting = ""
        self._started = now_micros()
        self._restored: Epoch | None = None
        self._newest_number: Epoch | None = None
        self._skipped: dict[str, str] = {}
        self._report_problems: set[str] = set()
        self._tasks: dict[str, Task] = {}
        self._edges: list[tuple[str, str]] = []
        self._checkpointer: Checkpointer | None = None
        self._background = Background()
        self._warming: threading.Thread | None = None
        self._ticking = threading.Thread(target=self._tick, name="tick", daemon=True)
        self._end_lock = threading.Lock()
        self._ended = threading.Event()
        self._ending = False
        self.last_report_read = threading.Event()
        self._claim = uuid.uuid4().hex
        self._work_dir = Path(config.work_dir or tempfile.mkdtemp(prefix="epochal-"))

    # --- a generation's life ---

    def run(self, spark: SparkSession, graph: Graph, warming: threading.Thread | None = None) -> int:
        """Start, run until stopped, failed or fenced, and say how it ended: one of the exit codes. Sources wait for
        ``warming``."""
        self._warming = warming
        try:
            self._start(spark, graph)
            # Not by this thread: a tick may have to wait for an epoch's alignment, and an end must not wait for it.
            self._ticking.start()
            self._ended.wait()
        except WouldRepeatError as error:
            self._end(EXIT_WOULD_REPEAT, DriverPhase.FAILED, str(error))
        except Exception as error:
            self.fail(error)
        finally:
            self._shut_down()
        assert self.exit_code is not None
        return self.exit_code

    def _tick(self) -> None:
        try:
            while not self._ended.wait(timeout=1.0):
                self._check_state()
                for source in self._sources():
                    source.check_idle()
                    source.tick()
        except Exception as error:
            if not self._ended.is_set():
                logger.exception("A tick failed")
                self._on_error(error)

    def _check_state(self) -> None:
        """A batch would find it, too, when each of its tasks has failed four times."""
        for name, task in self._tasks.items():
            for table in task.operator.tables:
                if isinstance(table, LatestTable) and (lost := table.lost()):
                    self._on_error(OperatorError(name, StateLostError(lost)))
                    return

    def fail(self, error: BaseException) -> None:
        """End with the exit code that the table of faults has for this error."""
        code = _exit_code(error)
        if code != EXIT_MISCONFIGURED:  # then the message says it all
            logger.error("Driver of generation %s failed", self.config.generation, exc_info=error)
        self._end(code, DriverPhase.FAILED, str(error))

    def stop(self, message: str) -> None:
        """End without a checkpoint: the newest epoch is what counts."""
        self._end(EXIT_FAILED, DriverPhase.STOPPED, message)

    def drain(self, message: str, seconds: float) -> None:
        """Somebody else than the controller wants this driver to end. Only the controller begins epochs: tell it, and
        stay for the last checkpoint that it asks for, ``seconds`` at most. Asked again, or where there is nothing to
        lose, end now."""
        working = self._phase is DriverPhase.RUNNING or self._only_commits
        if self._ending or not working:
            self._end(EXIT_DRAINED, DriverPhase.STOPPED, message)
            return
        self._ending = True
        logger.info("Asked to end: waiting at most %.0f s for a last checkpoint", seconds)
        if not self._ended.wait(timeout=seconds):
            why = f"{message}: no last checkpoint was made within {seconds:.0f} s"
            self._end(EXIT_DRAINED, DriverPhase.STOPPED, why)

    def _start(self, spark: SparkSession, graph: Graph) -> None:
        """Begin the generation.

        1. Check the graph and the settings.
        2. Claim the generation, seal, resolve.
        3. Build the tasks, with the state of the restored epoch. Sinks take over from older generations.
        4. If newer epochs are left behind, sinks take back what they have of them.
        5. Commit the restored epoch's sinks, if that is not known to be done. If that is all there is to do, end.
           Otherwise take back what came only because the job had come to its end.
        6. Start the sources.

        A driver that dies anywhere leaves the rest to the next one, which finds the same and does all of it again. If
        stored bytes turn out to be damaged in step 3 or 5, that is noted in the store and the driver ends: the next
        generation does not try this epoch again. Any other failure ends the driver as well, and the next generation
        tries the same epoch.
        """
        config = self.config
        # Step 1
        operators = graph.bind(spark)
        check_replicas(spark)
        recovers_in_place(config)
        if LIMIT not in config.spark_conf:
            bound_batches(spark, (schema for one in operators.values() for schema in one.outputs.values()))
        self._edges = graph.edges()
        # Step 2
        store = store_of(config.storage)
        sinks = abilities(graph)
        resolved = self._usable(start_generation(store, self._paths, self._start_request(sinks)))
        if resolved is None:
            return
        known = resolved.manifest.epoch if isinstance(resolved, Found) else NO_EPOCH
        if self._only_commits and known < config.restore.known:
            message = f"epoch {config.restore.known} was to be committed and cannot be read: resume the job to go back"
            self._end(EXIT_NOTHING_TO_RESTORE, DriverPhase.FAILED, f"{message}. {self._skipped}")
            return
        newest = newest_epoch_number(store, self._paths, known=known)
        given_out = max(newest, config.restore.issued)
        name = f"{config.namespace}/{config.job}"
        job = JobRef(name=name, generation=config.generation, newest_epoch=given_out)
        # Step 3
        await_executors(spark, share=SHARE if self._lost_before is None else 0)  # those that are left are enough
        persistence = Persistence(spark, config.storage, self._paths, config.generation)
        manifest = self._understood(operators, resolved.manifest) if isinstance(resolved, Found) else None
        try:
            self._restore(spark, graph, operators, job, persistence, manifest)
            committer = Committer(
                store=store,
                paths=self._paths,
                generation=config.generation,
                persistence=persistence,
                tasks=self._tasks,
                patience=Patience(self._ended, self._wait_for),
            )
            # Step 4
            if resolved.left is not None:
                take_back(resolved.left, self._tasks, sinks, self._say, repeat=config.restore.repeat)
            # Step 5
            if isinstance(resolved, Found) and resolved.needs_commit:
                committer.commit(resolved.manifest)
            if manifest is not None and not self._only_commits:
                committer.take_back_end(manifest)
        except DamagedStateError as error:
            assert manifest is not None
            self._end_damaged(store, manifest.epoch, error)
            return
        if self._only_commits:
            self.last_report_read.set()  # there is none to wait for
            epoch = manifest.epoch if manifest else NO_EPOCH
            self._end(EXIT_STOPPED, DriverPhase.STOPPED, f"stopped: the output of epoch {epoch} is committed")
            return
        self._checkpointer = Checkpointer(
            identity=JobIdentity(paths=self._paths, generation=config.generation, claim=self._claim),
            spark=spark,
            store=store,
            persistence=persistence,
            tasks=self._tasks,
            last=manifest,
            newest_number=given_out,
            committer=committer,
            on_fenced=lambda fenced: self._end(EXIT_FENCED, DriverPhase.FAILED, fenced.message),
            on_error=self._on_error,
            on_stopped=lambda: self._end(EXIT_STOPPED, DriverPhase.STOPPED, "stopped after its last checkpoint"),
            on_ended=self.metrics.checkpoint,
        )
        # Step 6
        if self._warming is not None:
            self._warming.join()
        list_by_name(spark)
        for source in self._sources():
            source.start()
        self._newest_number, self._restored = newest, manifest.epoch if manifest else NO_EPOCH
        self._checkpointer.running = True
        if not self._ended.is_set():
            self._phase = DriverPhase.RUNNING
            logger.info("Running: its sources have started")

    def _usable(self, resolved: Resolution | WouldRepeat | Fenced) -> Found | StartEmpty | None:
        """What to start from; None if there is nothing, and the job has ended with the reason."""
        match resolved:
            case Fenced(message=message):
                self._end(EXIT_FENCED, DriverPhase.FAILED, message)
                return None
            case NothingToRestore(message=message):
                self._end(EXIT_NOTHING_TO_RESTORE, DriverPhase.FAILED, message)
                return None
            case WouldRepeat(message=message):
                self._end(EXIT_WOULD_REPEAT, DriverPhase.FAILED, message)
                return None
            case StartEmpty():
                logger.info("Starting empty: %s", resolved.why)
            case Found():
                logger.info("Restoring epoch %s", resolved.manifest.epoch)
        self._skipped |= {str(skip.epoch): skip.why for skip in resolved.skipped}
        return resolved

    def _restore(
        self,
        spark: SparkSession,
        graph: Graph,
        operators: Mapping[str, BoundOperator],
        job: JobRef,
        persistence: Persistence,
        manifest: Manifest | None,
    ) -> None:
        """Build the tasks and give them their state."""
        self._build(spark, graph, operators, job, manifest)
        self._check_stored_operators(manifest)
        epoch = manifest.epoch if manifest else NO_EPOCH
        restore_run, load_run = persistence.restore_run(epoch), persistence.load_run(epoch)
        started = self._started_tasks()
        stored = {task.name: _tables(manifest, task.name) for task in started}
        for task in started:
            task.run_start(stored[task.name], restore_run=restore_run, load_run=load_run)
        if not self.config.restore.allow_empty:
            for task in started:
                _check_unclaimed(task, stored[task.name], epoch)

    def _say(self, message: str) -> None:
        self._message = message

    def _wait_for(self, message: str) -> None:
        self._waiting = message

    def _end_damaged(self, store: Store, epoch: Epoch, error: DamagedStateError) -> None:
        """Somebody who asked for just this epoch has to look; otherwise the next generation takes an older one."""
        record_damage(
            store,
            self._paths,
            DamageRecord(epoch=epoch, generation=self.config.generation, object=error.object, problem=error.problem),
        )
        message = f"epoch {epoch} cannot be restored: {error.object} {error.problem}"
        asked = self.config.restore.back_to is not None or self.config.restore.savepoint is not None
        self._end(EXIT_NOTHING_TO_RESTORE if asked else EXIT_FAILED, DriverPhase.FAILED, message)

    def _start_request(self, sinks: dict[str, str | None]) -> StartRequest:
        config, restore = self.config, self.config.restore
        return StartRequest(
            record=GenerationRecord(
                generation=config.generation,
                claim=self._claim,
                created=now_micros(),
                writer=str(self._work_dir.name),
                back_to=restore.back_to,
                savepoint=restore.savepoint,
            ),
            known=restore.known,
            issued=restore.issued,
            min_epoch=restore.min_epoch,
            allow_empty=restore.allow_empty,
            sinks=sinks,
            repeat=restore.repeat,
        )

    def _build(
        self,
        spark: SparkSession,
        graph: Graph,
        operators: Mapping[str, BoundOperator],
        job: JobRef,
        manifest: Manifest | None,
    ) -> None:
        tasks: dict[str, Task] = {}
        seen_files = SeenFiles(store_of(self.config.storage), self._paths, self.config.generation)
        unbounded = any(node.source is not None and not node.source.bounded for node in graph.nodes.values())
        for node in graph.nodes.values():
            state = OperatorState() if manifest is None else manifest.operators.get(node.name, OperatorState())
            operator, watermark = operators[node.name], known_watermark(state.watermark)
            context = OperatorContext(name=node.name, job=job, spark=spark)
            ahead = graph.max_ahead(node.name)
            task: Task
            if isinstance(operator, BoundSource):
                task = SourceTask(
                    node.name, operator, context, self._work_dir / SOURCES / node.name, self._background,
                    watermark=watermark, max_ahead=ahead, others_go_on=unbounded,
                    on_error=self._on_error, on_batch_end=self._on_batch_end,
                )  # fmt: skip
                if state.position is not None:
                    conf = {key: spark.conf.get(key) or "" for key in TAKEN_OVER}
                    task.restore(state.position, conf, seen_files.restored(state))
            else:
                inputs = [tasks[source.node].output_watermark() for source in node.inputs]
                task = Task(node.name, node.kind, operator, context, inputs, watermark=watermark, max_ahead=ahead)
            for number, source in enumerate(node.inputs):
                tasks[source.node].connect(source.port, task, number)
            tasks[node.name] = task
        # In one go: the control server asks at any time, and must not see half of them.
        self._tasks = tasks

    def _understood(self, operators: Mapping[str, BoundOperator], manifest: Manifest) -> Manifest:
        """The manifest, if its state means to the operators what it meant when it was written."""
        if self._only_commits:
            return manifest
        definitions = {name: definition_of(operator) for name, operator in operators.items()}
        if self.config.restore.allow_empty:
            return without_changed(manifest, definitions)
        if why := refusal(manifest, definitions) or stored_end(manifest, operators):
            raise PipelineError(why)
        return manifest

    @property
    def _only_commits(self) -> bool:
        return self.config.restore.commit_only

    def _started_tasks(self) -> list[Task]:
        """Whoever only commits needs no state but that of its sinks."""
        tasks = self._tasks.values()
        return [task for task in tasks if not self._only_commits or task.is_sink]

    def _check_stored_operators(self, manifest: Manifest | None) -> None:
        """State that nobody would restore is state lost: renaming an operator must not do that by accident."""
        if manifest is None or self.config.restore.allow_empty:
            return
        kept = {
            name
            for name, state in manifest.operators.items()
            if state.position is None
            and any(
                stored.runs
                for table, stored in state.tables.items()
                if table in COMMITTED_TABLES or not self._only_commits
            )
        }
        lost = ", ".join(repr(name) for name in sorted(kept - set(self._tasks)))
        if lost:
            raise PipelineError(
                f"epoch {manifest.epoch} has state of {lost}, which the pipeline does not have any more: "
                "keep the operators' names, or set allowEmptyStart to drop that state"
            )

    def _on_batch_end(self, source: str, seconds: float) -> None:
        self.metrics.batch(source, seconds)
        lost, self._recovering = self._recovering, None
        if lost is not None:
            took = time.monotonic() - lost
            self.metrics.recovered(took)
            logger.info("First batch %.1f s after the loss of an executor was seen", took)

    def _on_error(self, error: BaseException) -> None:
        self._end(_exit_code(error), DriverPhase.FAILED, str(error), lost=self._goes_on_after(error))

    def _end(self, code: int, phase: DriverPhase, message: str, *, lost: bool = False) -> None:
        with self._end_lock:
            first = self.exit_code is None
            if first:
                if self._lost_before is not None and phase is DriverPhase.FAILED and self._restored is None:
                    # Whatever hinders a generation in place, a new process is tried before anybody else is blamed.
                    code = code if code == EXIT_FENCED else EXIT_FAILED
                self.lost_at = time.monotonic() if lost else None
                self.exit_code, self._phase, self._message = code, phase, message
        if first:
            log = logger.info if code == EXIT_STOPPED else logger.error
            log("Job %s/%s ended: %s", self.config.namespace, self.config.job, message)
        self._ended.set()

    def _goes_on_after(self, error: BaseException) -> bool:
        """Whether the next generation may go on in this process: an executor was lost, and an epoch was made since the
        last time. Otherwise the controller counts the restart, and waits before it."""
        made = self._checkpointer
        return (
            recovers_in_place(self.config)
            and failed_by_lost_state(error)
            and made is not None
            and made.has_completed
            and not made.end_has_come
            and not self._ending
            and self._phase_now() is DriverPhase.RUNNING
        )

    def following(self) -> DriverConfig:
        """What the next generation in this process is told: what the controller would tell it, had it heard of all that
        this one did. Only when nothing of this one is at work any more."""
        config, made = self.config, self._checkpointer
        assert made is not None
        generation = Generation(config.generation + 1)
        restore = RestoreConfig(
            known=made.last.epoch if made.last else NO_EPOCH,
            issued=made.newest_number,
            min_epoch=max(made.min_epoch, config.restore.min_epoch),
            allow_empty=config.restore.allow_empty,
            repeat=config.restore.repeat,
        )
        work_dir = None if self.base_dir is None else str(Path(self.base_dir) / f"generation-{generation}")
        return replace(config, generation=generation, restore=restore, work_dir=work_dir)

    def ends_process(self) -> None:
        """No engine follows this one in this process after all: it has failed as any other."""
        self.lost_at = None

    def at_work(self) -> dict[str, Callable[[], None]]:
        """What may still be at work after the end: each call returns when that has ended."""
        found = {f"source {source.name!r}": source.wait_for_end for source in self._sources()}
        found["a batch's end"] = self._background.wait_for_end
        found["the clock"] = self._ticking.join
        if self._checkpointer is not None:
            found["a checkpoint"] = self._checkpointer.wait_for_end
        return found

    def places(self) -> list[Place]:
        """Where executors have files of its tables."""
        tables = (table for task in self._tasks.values() for table in task.operator.tables)
        return [table.place for table in tables if isinstance(table, LatestTable)]

    def forget(self) -> None:
        """After the end: let go of what it holds, as the next engine is to have the memory and the disk."""
        self._tasks, self._checkpointer = {}, None
        shutil.rmtree(self._work_dir / SOURCES, ignore_errors=True)

    def _shut_down(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        stopping = [source.begin_stop() for source in self._sources()]
        deadline = time.monotonic() + LONGEST_STOP
        for thread in stopping:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self._background.close()
        if self.config.work_dir is None:
            shutil.rmtree(self._work_dir, ignore_errors=True)

    def _sources(self) -> list[SourceTask]:
        return [task for task in self._tasks.values() if isinstance(task, SourceTask)]

    # --- what the control server asks ---

    def start_checkpoint(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        if self._checkpointer is None:
            return Refusal(reason=RefusalReason.NOT_RUNNING, message="the job is still starting")
        return self._checkpointer.start(request)

    def checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        report = None if self._checkpointer is None else self._checkpointer.report(epoch)
        if report is not None and report.then_stop and report.finished is not None:
            self.last_report_read.set()
        return report

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        return None if self._checkpointer is None else self._checkpointer.abort(epoch)

    def _phase_now(self) -> DriverPhase:
        """A driver is stopping while its last checkpoint is under way. One that failed was not the last: the job runs
        on, and can be asked again."""
        report = None if self._checkpointer is None else self._checkpointer.newest_report()
        stopping = report is not None and report.then_stop and report.state is not CheckpointState.FAILED
        return DriverPhase.STOPPING if self._phase is DriverPhase.RUNNING and stopping else self._phase

    def _message_now(self) -> str:
        return self._message if self._ended.is_set() else self._waiting or self._message

    def status(self) -> DriverStatus:
        if self.lost_at is not None:
            return self._goes_on()
        sources, reports = self._sources(), Reports(self._report_problems)
        sinks = {task.name: task.operator for task in self._tasks.values() if isinstance(task.operator, BoundSink)}
        return DriverStatus(
            namespace=self.config.namespace,
            job=self.config.job,
            generation=self.config.generation,
            phase=self._phase_now(),
            started=self._started,
            restored_epoch=self._restored,
            newest_number=self._newest_number,
            skipped_epochs=self._skipped,
            finished=bool(sources) and all(source.finished for source in sources),
            ending=self._ending,
            sources=reports.each({source.name: source.report for source in sources}),
            sinks=reports.each({name: functools.partial(_sink_report, name, sink) for name, sink in sinks.items()}),
            late_rows=reports.of("late rows", lambda: sum(self._late_rows().values()), 0),
            state_bytes=reports.of("state", lambda: sum(self._state_bytes().values()), 0),
            checkpoint=None if self._checkpointer is None else self._checkpointer.newest_report(),
            edges=tuple(self._edges),
            message=self._message_now() or reports.message,
        )

    def _goes_on(self) -> DriverStatus:
        """The next generation's, which begins when this one has let go."""
        generation = Generation(self.config.generation + 1)
        return DriverStatus(
            namespace=self.config.namespace,
            job=self.config.job,
            generation=generation,
            phase=DriverPhase.STARTING,
            started=self._started,
            message=goes_on(generation),
        )

    def snapshot(self) -> Scrape:
        last = None if self._checkpointer is None else self._checkpointer.last
        reports = Reports(self._report_problems)
        return Scrape(
            status=self.status(),
            epoch=NO_EPOCH if last is None else last.epoch,
            state_bytes=reports.of("state", self._state_bytes, {}),
            late_rows=reports.of("late rows", self._late_rows, {}),
        )

    def _state_bytes(self) -> dict[str, int]:
        """In the newest published epoch, by operator."""
        last = None if self._checkpointer is None else self._checkpointer.last
        return {} if last is None else {name: state.bytes() for name, state in last.operators.items() if state.tables}

    def _late_rows(self) -> dict[str, int]:
        return {name: task.late_rows for name, task in self._tasks.items() if task.inputs}


def _sink_report(name: str, sink: BoundSink) -> SinkReport:
    return SinkReport(name=name, rows_committed=sink.pending.rows_committed)


def _tables(manifest: Manifest | None, operator: str) -> Mapping[str, StoredTable]:
    """An operator's tables in a manifest. A source's are not Spark's."""
    state = None if manifest is None else manifest.operators.get(operator)
    return {} if state is None or state.position is not None else state.tables


def _exit_code(error: BaseException) -> int:
    return EXIT_FENCED if isinstance(error, FencedError) else exit_code(error)


def _check_unclaimed(task: Task, stored: Mapping[str, StoredTable], epoch: Epoch) -> None:
    """An operator that became another one has other state."""
    if unclaimed := task.tables.unclaimed(stored):
        tables = ", ".join(map(repr, unclaimed))
        raise PipelineError(
            f"epoch {epoch} has state of operator {task.name!r} in table {tables}, which it does not use any more: "
            "give the changed operator another name, or set allowEmptyStart to drop that state"
        )
