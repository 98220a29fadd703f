"""A source: one Structured Streaming query whose batches enter the graph, and where barriers are injected.

Spark sees a stateless query. A batch holds the source's lock from begin to end, so a barrier that takes the lock falls
exactly between two batches, also when the source is idle.
"""

import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import SourceReport
from epochal.protocol.documents import SourcePosition
from epochal.runtime.dataflow import source_log
from epochal.runtime.dataflow.checkpoint_attempt import EpochRun
from epochal.runtime.dataflow.operator import MAIN, BindContext, BoundOperator, Operator, OperatorContext
from epochal.runtime.dataflow.partitions import (
    NUMBER,
    TOPIC,
    Partition,
    Partitions,
    ends_of_batch,
    offsets,
    with_partition,
)
from epochal.runtime.dataflow.seen_files import COMPACT_INTERVAL, longest_age, read_log, write_log
from epochal.runtime.dataflow.task import MAX_WATERMARK, BatchScope, Task
from epochal.runtime.durations import to_micros
from epochal.runtime.errors import JobStoppingError, OperatorError, PipelineError
from epochal.runtime.spark.background import Background
from epochal.runtime.spark.held import tasks_of
from epochal.runtime.spark.plan_metrics import Observed, PlanMetrics, micros
from epochal.runtime.spark.progress_fs import local_uri
from epochal.runtime.state.tables import SMALL_BATCH, Run

logger = logging.getLogger(__name__)

LONGEST_STOP = 10.0
"""Seconds that a query may take to stop."""

MOST_TASKS = 4
"""Of a small batch. More would be read one after the other, and a broker makes each of them wait for a moment."""

SMOOTHING = 0.3
"""Weight of the newest batch in the rate that is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec(Operator):
    """What a source reads, and how its event time goes. Times are microseconds."""

    read: Callable[[], DataFrame]
    event_time: str | None = None
    delay: int = 0
    idle_after: float = 30.0
    max_ahead: int | None = None
    trigger: dict[str, Any]
    bounded: bool = False

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> "BoundSource":
        frame = self.read()
        if not frame.isStreaming:
            raise PipelineError("a source must read a stream: use spark.readStream")
        age, marked = longest_age(frame), None if self.event_time is None else with_partition(ctx.name, frame)
        if self.event_time is None or marked is None:
            return BoundSource(self, frame, frame.schema, longest_age=age)
        partitions = Partitions(self.event_time, idle_after=self.idle_after, bounded=self.bounded)
        return BoundSource(self, marked, frame.schema, longest_age=age, partitions=partitions)


class BoundSource(BoundOperator):
    """What Spark is to read."""

    def __init__(
        self,
        spec: SourceSpec,
        frame: DataFrame,
        schema: StructType,
        *,
        longest_age: int | None = None,
        partitions: Partitions | None = None,
    ) -> None:
        """``longest_age``: see :func:`epochal.runtime.dataflow.seen_files.longest_age`. ``partitions``: of a
        source that reads from Kafka; then ``frame`` has the partition of each row, beside ``schema``."""
        super().__init__({MAIN: schema})
        self.spec = spec
        self.frame = frame
        self.longest_age = longest_age
        self.partitions = partitions

    @functools.cached_property
    def metrics(self) -> PlanMetrics:
        """Of a batch."""
        metrics = {"rows": F.count(F.lit(1))}
        if self.spec.event_time is not None:
            metrics["newest"] = F.max(micros(F.col(self.spec.event_time)))
        return PlanMetrics(metrics)


class SourceTask(Task):
    """The runtime of one source."""

    def __init__(
        self,
        name: str,
        bound: BoundSource,
        context: OperatorContext,
        directory: Path,
        background: Background,
        *,
        watermark: int | None = None,
        max_ahead: int | None = None,
        others_go_on: bool = False,
        on_error: Callable[[BaseException], None] = lambda _: None,
        on_batch_end: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        """``others_go_on``: the job has sources that never end. ``on_batch_end`` is given this source's name and how
        many seconds the batch took."""
        super().__init__(name, "source", bound, context, watermark=watermark, max_ahead=max_ahead)
        self.bound = bound
        self.spec = bound.spec
        self.batch = -1
        self.position: SourcePosition | None = None
        self.query: StreamingQuery | None = None
        self.finished = False
        self.pauses: list[float] = []
        self._directory = directory
        self._background = background
        self._lock = threading.Lock()
        self._barrier_waits = threading.Event()
        self._barrier_passed = threading.Event()
        self._stopping = False
        self._last: EpochRun | None = None
        """The epoch after which the job stops."""
        self._closed = False
        self._others_go_on = others_go_on
        self._max_time: int | None = None
        self._partitions = bound.partitions
        self._looked = 0.0
        """When Spark saw what there is to read for this batch."""
        self._ends: dict[Partition, int] = {}
        """Where it ends."""
        self._last_rows: float | None = None
        """When the source brought rows, or else when Spark first looked and found none."""
        self._is_idle = False
        self._rows = 0
        self._last_batch: int | None = None
        self._rate = 0.0
        self._batch_seconds = 0.0
        self._on_error = on_error
        self._on_batch_end = on_batch_end

    # --- starting ---

    def restore(self, position: SourcePosition, conf: dict[str, str], seen: dict[str, pa.Table]) -> None:
        """``seen``: the files that each file source in it has read."""
        source_log.restore(self._directory, position, conf)
        interval = int(self.context.spark.conf.get(COMPACT_INTERVAL, "10") or 10)
        for source, files in seen.items():
            write_log(self._notes(source), files, until=position.seen[source], interval=interval)
        self.batch = position.batch
        self._max_time = None if self.watermark is None else self.watermark + self.spec.delay

    def start(self) -> None:
        frame = self.bound.frame
        query = (
            frame.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", local_uri(frame.sparkSession, self._directory))
            .queryName(self.name)
            .trigger(**self.spec.trigger)
            .start()
        )
        self.query = query
        threading.Thread(target=self._watch, args=(query,), name=f"watch-{self.name}", daemon=True).start()

    def _watch(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except Exception as error:
            if not self._stopping:
                self._on_error(error if isinstance(error, OperatorError) else OperatorError(self.name, error))
            return
        if not self._stopping:
            self._end()

    def _end(self) -> None:
        """The source has come to its end, as far as is known now: the job may be run again when there is more, so its
        watermark stays what it is. Beside sources that never end, nobody waits for it any more."""
        try:
            self._give_way_to_barrier()
            with self._lock, self.scope() as scope:
                self._check_going()
                if self._others_go_on:
                    self._is_idle = True
                    self.forward_watermark(scope, idle=True)
                self.finished = True
        except JobStoppingError:
            pass
        except Exception as error:
            self._on_error(error)

    def hold_for_end(self) -> None:
        """From here on nothing changes any more, also not by the clock."""
        with self._lock:
            self._closed = True

    def close_all(self) -> None:
        """Let everything come out that waits for a watermark. The source's own stays what it is."""
        with self._lock, self.scope() as scope:
            for edge in self.downstream:
                edge.task.receive_watermark(MAX_WATERMARK, edge.channel, scope)

    def begin_stop(self) -> threading.Thread:
        """Let the query end. No batch begins any more; the thread ends when the one in flight has."""
        self._stopping = True
        self._barrier_passed.set()
        stopping = threading.Thread(target=self._stop_query, name=f"stop-{self.name}", daemon=True)
        stopping.start()
        return stopping

    def stop(self) -> None:
        """End the query. A batch that does not end in time is left to the end of the process."""
        self.begin_stop().join(timeout=LONGEST_STOP)

    def wait_for_end(self) -> None:
        """After :meth:`stop`: until the query has ended, and nothing of this source goes through the graph."""
        if self.query is not None:
            with suppress(Exception):
                self.query.awaitTermination()
        with self._lock:
            pass

    def _stop_query(self) -> None:
        try:
            if self.query is not None and self.query.isActive:
                self.query.stop()
        except Exception:
            logger.debug("Source %s did not stop cleanly", self.name, exc_info=True)

    # --- batches ---

    def scope(self, *, small: bool = False) -> BatchScope:
        return BatchScope(self._background, self._on_error, abandoned=lambda: self._stopping, small=small)

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        looked = time.monotonic()
        try:
            self._give_way_to_barrier()
            with self._lock:
                self._check_going()
                if batch > self.batch:
                    if self._partitions is not None:
                        self._looked, self._ends = looked, ends_of_batch(self._directory, batch)
                        self._partitions.know(self._ends, looked)
                    self._process(frame)
                    self.batch = batch
        except JobStoppingError:
            raise
        except Exception as error:
            logger.exception("Batch %s of source %s failed", batch, self.name)
            self._on_error(error)
            # Spark looks through the text with a regular expression that overflows its stack on a long one.
            raise RuntimeError(f"batch {batch} failed: see the driver's log") from None

    def _give_way_to_barrier(self) -> None:
        """A barrier that waits for the lock goes before the next batch, however fast these come; after the barrier of a
        stop nothing goes."""
        began = time.perf_counter()
        while (self._barrier_waits.is_set() or self._held()) and not self._stopping:
            self._barrier_passed.wait(timeout=0.2)
        self._check_going()
        waited = time.perf_counter() - began
        if waited > 0.0005:
            self.pauses.append(waited)

    def _check_going(self) -> None:
        """A batch that has waited for the lock may find that the source has stopped meanwhile."""
        if self._stopping:
            raise JobStoppingError(f"source {self.name!r} has stopped")

    def _process(self, frame: DataFrame) -> None:
        began = time.perf_counter()
        with self.scope(small=self._is_small(frame)) as scope:
            partitions = self._partitions
            if partitions is None:
                seen = self._send_counted(scope, frame)
            else:
                seen = self._send_by_partition(scope, frame, partitions)
            self._note(seen, time.perf_counter() - began)
            if self.spec.event_time is not None:
                self._is_idle = False
                self._follow(scope)
        self._batch_seconds = time.perf_counter() - began
        self._on_batch_end(self.name, self._batch_seconds)

    def _send_counted(self, scope: BatchScope, frame: DataFrame) -> dict[str, Any]:
        """Send a batch. Returns how many rows it had, and their newest event time."""
        metrics = self.bound.metrics
        if self._counted_downstream:
            [told] = self.send(scope, frame, MAIN, counting=True)
            if told.rows is None:  # it can, and has not
                return self._believed(frame, metrics, metrics.computed(frame))
            return self._believed(frame, metrics, {"rows": told.rows, "newest": told.newest})
        observed = Observed(frame, metrics)
        self.send(scope, observed.frame, MAIN)
        return self._believed(frame, metrics, observed.get())

    def _send_by_partition(self, scope: BatchScope, frame: DataFrame, partitions: Partitions) -> dict[str, Any]:
        """The same; the newest time is the one that all partitions have come to."""
        if not partitions.several:
            return self._send_counted(scope, frame.drop(TOPIC, NUMBER))
        if partitions.many:
            held = Run.materialise(frame)
            scope.dropped.append(held)
            self.send(scope, held.frame.drop(TOPIC, NUMBER), MAIN)
            rows, times = held.rows, partitions.grouped(held.frame, self.latest_time())
        else:
            observed = Observed(frame, partitions.metrics)
            self.send(scope, observed.frame.drop(TOPIC, NUMBER), MAIN)
            seen = self._believed(frame, partitions.metrics, observed.get())
            rows, times = seen["rows"], partitions.times(seen)
        partitions.note(times, time.monotonic())
        return {"rows": rows, "newest": partitions.newest(self._looked, self._unread())}

    def _believed(self, frame: DataFrame, metrics: PlanMetrics, seen: dict[str, Any]) -> dict[str, Any]:
        """What a batch had, with the newest event times that count. A job of its own only if there are rows too far
        ahead of the clock."""
        latest, event_time = self.latest_time(), self.spec.event_time
        times = [value for name, value in seen.items() if name != "rows" and value is not None]
        if event_time is None or latest is None or not times or max(times) <= latest:
            return seen
        return metrics.computed(frame.where(micros(F.col(event_time)) <= latest)) | {"rows": seen["rows"]}

    def _follow(self, scope: BatchScope) -> None:
        """Let the watermark follow the newest time. Also without one, others wait for a source that brings rows."""
        if self._max_time is not None:
            self.watermark = max(self._max_time - self.spec.delay, self.watermark or -(2**62))
        self.forward_watermark(scope)

    def _unread(self) -> set[Partition] | None:
        """The partitions that have records beyond this batch, as far as Spark has told; None before it has."""
        progress = None if self.query is None else self.query.lastProgress
        latest = None if progress is None else progress["sources"][0]["latestOffset"]
        if not latest:
            return None
        return {one for one, offset in offsets(latest).items() if offset > self._ends.get(one, -1)}

    @functools.cached_property
    def _counted_downstream(self) -> bool:
        """Whether the only operator that reads from this source tells what a batch had."""
        readers = [edge.task for edge in self.downstream]
        return len(readers) == 1 and readers[0].operator.counts_input

    def _is_small(self, frame: DataFrame) -> bool:
        """Whether the batch is likely to be small: the last one was, and Spark reads it by a few tasks."""
        if self._last_batch is None or self._last_batch > SMALL_BATCH:
            return False
        tasks = tasks_of(frame)
        return tasks is None or tasks <= MOST_TASKS

    def _note(self, seen: dict[str, Any], seconds: float) -> None:
        rows = int(seen["rows"])
        newest = seen.get("newest")
        if newest is not None:
            self._max_time = newest if self._max_time is None else max(self._max_time, newest)
        if rows and not self._rows:
            logger.info("First rows of source %s: %s in %.1f s", self.name, rows, seconds)
        self._rows += rows
        self._last_batch = rows
        if rows:
            self._last_rows = time.monotonic()
        rate = rows / max(seconds, 1e-6)
        self._rate = rate if self._rate == 0.0 else (1 - SMOOTHING) * self._rate + SMOOTHING * rate

    def check_idle(self) -> None:
        """Called now and then: a source that brought no row for long does not hold back the others' watermark.

        A bounded one is never idle: it has rows until it ends, however long Spark takes to come to them. Nor is one
        that Spark has not looked at since the start, or that has rows which Spark has not come to: these would be
        late."""
        if self._is_idle or self.finished or self.spec.bounded or self.spec.event_time is None or self.query is None:
            return
        if self._last_rows is None:
            # Spark tells of its first look even if it has found nothing.
            self._last_rows = None if self.query.lastProgress is None else time.monotonic()
            return
        # Without a batch in flight, Spark has last looked at most a trigger's time ago.
        looked = time.monotonic() - to_micros(self.spec.trigger.get("processingTime", 0)) / 1e6
        is_idle = looked - self._last_rows >= self.spec.idle_after
        if not (is_idle or self._partitions) or self.query.status["isDataAvailable"]:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not (self._held() or self._closed or self._stopping):
                self._go_idle(looked, all_of_it=is_idle)
        finally:
            self._lock.release()

    def _go_idle(self, looked: float, *, all_of_it: bool) -> None:
        """Go on without partitions that are idle by now, or tell that the whole source is."""
        partitions = self._partitions
        newest = None if partitions is None else partitions.newest(math.inf if all_of_it else looked, ())
        with self.scope() as scope:
            if newest is not None and (self._max_time is None or newest > self._max_time):
                self._max_time = newest
                self._follow(scope)
            if all_of_it:
                self._is_idle = True
                self.forward_watermark(scope, idle=True)

    def tick(self) -> None:
        """Called now and then: what goes by the clock must not wait for rows. A batch in flight is enough of a tick."""
        if self._held() or self._closed or self._stopping or not self._lock.acquire(blocking=False):
            return
        try:
            with self.scope() as scope:
                self.forward_tick(scope)
        finally:
            self._lock.release()

    # --- barriers ---

    def inject(self, barrier: CheckpointBarrier, run: EpochRun) -> None:
        """Cut between two batches: note the position, then let the barrier go through the graph."""
        self._barrier_passed.clear()
        self._barrier_waits.set()
        try:
            with self._lock, self.scope() as scope:
                if run.over:
                    return
                self.position = source_log.capture(self._directory, self.batch)
                self.cut(barrier, run, scope)
                self._last = run if barrier.then_stop else None
        finally:
            self._barrier_waits.clear()
            self._barrier_passed.set()

    def _held(self) -> bool:
        """Nothing goes after the last barrier. A last checkpoint that failed was not the last: the job goes on until
        the stop is asked for again."""
        return self._last is not None and not self._last.over

    def files_read(self, source: str, *, after: int, until: int) -> pa.Table:
        """The files of a file source's notes above ``after`` up to ``until``. Batches may go on meanwhile."""
        return read_log(self._notes(source), after=after, until=until)

    def _notes(self, source: str) -> Path:
        return self._directory / "sources" / source

    # --- status ---

    def report(self) -> SourceReport:
        lag = None if self._max_time is None else max(0.0, time.time() - self._max_time / 1e6)
        return SourceReport(
            name=self.name,
            batch=self.batch,
            rows=self._rows,
            rows_per_second=round(self._rate, 1),
            batch_seconds=round(self._batch_seconds, 3),
            watermark=None if self.finished else self.watermark,
            lag=None if lag is None else round(lag, 1),
            idle=self._is_idle,
            finished=self.finished,
        )
