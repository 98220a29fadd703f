"""The operator's metrics. Labels are bounded: a job's own series go when the job goes."""

import math
import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from epochal.control.events import completed
from epochal.control.flow import Flow, flow_of
from epochal.control.lifecycle import DriverUp, JobPhase, LifeReason, needs_person
from epochal.control.reconcile import Tick
from epochal.protocol.decision import EndCleanup, Reason, Seconds, Stop

JobKey = tuple[str, str]

FAILURES = (
    Reason.CHECKPOINT_FAILED,
    Reason.CHECKPOINT_ABORTED,
    Reason.CHECKPOINT_TIMED_OUT,
    Reason.TOO_MANY_FAILURES,
    Reason.DRIVER_GONE,
)
"""All values of the label ``reason`` of failed checkpoints."""

_DURATIONS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TICKS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(slots=True)
class _Job:
    phase: JobPhase = JobPhase.PENDING
    ticked: Seconds | None = None
    first_seen: Seconds = 0.0
    epoch: int = 0
    last_checkpoint: Seconds | None = None
    duration: Seconds = 0.0
    bytes: int = 0
    restarts: int = 0
    stalled: bool = False
    generation: int = 0
    late_rows: int = 0
    flow: Flow | None = None
    """While a driver tells."""


class OperatorMetrics:
    """Written by ticks, from several threads; read when Prometheus asks."""

    def __init__(self, clock: Callable[[], Seconds] = time.time) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[JobKey, _Job] = {}
        self._failures: Counts[tuple[str, str, str]] = Counts()
        self._cleanups: Counts[tuple[str, str, str]] = Counts()
        self._refused: Counts[tuple[str, str, str]] = Counts()
        self.ticks = Counter("epochal_ticks", "Reconciliations of all jobs", ["result"], registry=self.registry)
        self.tick_seconds = Histogram(
            "epochal_tick_duration_seconds", "Duration of a reconciliation", buckets=_TICKS, registry=self.registry
        )
        self.checkpoint_seconds = Histogram(
            "epochal_checkpoint_duration_seconds",
            "Duration of completed checkpoints of all jobs",
            buckets=_DURATIONS,
            registry=self.registry,
        )
        self.api_requests = Counter(
            "epochal_api_requests",
            "Requests to the API server",
            ["method", "resource", "code"],
            registry=self.registry,
        )
        self.registry.register(_JobCollector(self))

    # --- written ------------------------------------------------------------------------------------------------------

    def on_request(self, method: str, resource: str, code: str) -> None:
        self.api_requests.labels(method, resource, code).inc()

    def begin(self, key: JobKey) -> None:
        """A job exists, whether or not it can be reconciled."""
        with self._lock:
            self._jobs.setdefault(key, _Job(first_seen=self._clock()))

    def on_tick(self, key: JobKey, tick: Tick) -> None:
        step, record = tick.step, tick.step.job.checkpoints
        done = completed(tick)
        if done is not None:
            self.checkpoint_seconds.observe(done.duration)
        with self._lock:
            job = self._jobs.setdefault(key, _Job(first_seen=self._clock()))
            job.ticked = self._clock()
            job.phase = step.job.phase
            job.epoch = record.newest_completed
            job.last_checkpoint = record.last_checkpoint
            job.restarts = step.job.restarts.total
            job.stalled = needs_person(step.job) or step.job.refusal is not None
            job.generation, job.late_rows = record.generation, step.job.late.total
            job.flow = _flow(tick)
            if done is not None:
                job.duration, job.bytes = done.duration, done.bytes
            if (reason := failure(tick)) is not None:
                self._failures[(*key, reason)] += 1
            if isinstance(step.action, EndCleanup) and tick.changed:
                self._cleanups[(*key, "succeeded" if step.action.succeeded else "failed")] += 1
            if tick.seen.refused is not None:
                self._refused[(*key, tick.seen.refused.resource)] += 1
            if step.reason is Reason.CLEANUP_REFUSED:
                self._refused[(*key, "jobs")] += 1

    def on_refused(self, key: JobKey, resource: str) -> None:
        """The API server did not take something that a running driver needs."""
        with self._lock:
            self._refused[(*key, resource)] += 1

    def on_quiet(self, key: JobKey) -> None:
        """A reconciliation that had nothing to look at."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None:
                job.ticked = self._clock()

    def forget(self, key: JobKey) -> None:
        with self._lock:
            self._jobs.pop(key, None)
            for counts in (self._failures, self._cleanups, self._refused):
                for labels in [labels for labels in counts if labels[:2] == key]:
                    del counts[labels]

    # --- read ---------------------------------------------------------------------------------------------------------

    def tick_ages(self) -> list[Seconds]:
        """Seconds since each job was last reconciled successfully."""
        now = self._clock()
        with self._lock:
            return [max(0.0, now - (job.ticked or job.first_seen)) for job in self._jobs.values()]

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        now = self._clock()
        with self._lock:
            jobs = {key: (job, job.ticked or job.first_seen) for key, job in self._jobs.items()}
            failures, cleanups, refused = dict(self._failures), dict(self._cleanups), dict(self._refused)
        phases = Counts(job.phase for job, _ in jobs.values())
        yield _family("epochal_jobs", "Jobs by phase", ["phase"], *(((phase,), phases[phase]) for phase in JobPhase))
        yield _family(
            "epochal_tick_age_seconds",
            "Time since the last successful reconciliation of the job",
            ["namespace", "job"],
            *((key, max(0.0, now - ticked)) for key, (_, ticked) in jobs.items()),
        )
        yield _family(
            "epochal_checkpoint_age_seconds",
            "Time since the latest checkpoint of the job completed",
            ["namespace", "job"],
            *(
                (key, max(0.0, now - _number(job.last_checkpoint)))
                for key, (job, _) in jobs.items()
                if job.last_checkpoint is not None and job.phase not in (JobPhase.STOPPED, JobPhase.FINISHED)
            ),
        )
        for name, text, field in (
            ("epochal_epoch", "Latest completed epoch of the job", "epoch"),
            ("epochal_job_generation", "Generation of the driver of the job", "generation"),
            ("epochal_last_checkpoint_duration_seconds", "Duration of the latest completed checkpoint", "duration"),
            ("epochal_last_checkpoint_bytes", "Bytes written by the latest completed checkpoint", "bytes"),
            ("epochal_job_stalled", "1 if the job keeps failing until somebody fixes the cause", "stalled"),
        ):
            values = ((key, _number(getattr(job, field))) for key, (job, _) in jobs.items())
            yield _family(name, text, ["namespace", "job"], *values)
        # One series a job: what it is now.
        phase_now = (((*key, job.phase), 1.0) for key, (job, _) in jobs.items())
        yield _family("epochal_job_phase", "1 for a job's current phase", ["namespace", "job", "phase"], *phase_now)
        yield from _flows({key: job for key, (job, _) in jobs.items()})
        restarts = CounterMetricFamily("epochal_restarts", "Driver restarts", labels=["namespace", "job"])
        for key, (job, _) in jobs.items():
            restarts.add_metric(key, _number(job.restarts))
        yield restarts
        yield _counts("epochal_checkpoint_failures", "Failed checkpoints", ["namespace", "job", "reason"], failures)
        yield _counts("epochal_cleanups", "Finished cleanups", ["namespace", "job", "result"], cleanups)
        yield _counts(
            "epochal_refused", "Objects that the API server refused", ["namespace", "job", "resource"], refused
        )


class _JobCollector(Collector):
    def __init__(self, metrics: OperatorMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        return self._metrics.collect()


def failure(tick: Tick) -> Reason | LifeReason | None:
    """Why a checkpoint failed in this tick; None if none did."""
    flight = tick.before.checkpoints.in_flight if tick.before else None
    after = tick.step.job.checkpoints
    if flight is None or flight.epoch in after.completed:
        return None
    if after.in_flight is not None and after.in_flight.epoch == flight.epoch:
        return None
    if isinstance(tick.step.action, Stop) and not tick.step.action.forced:
        return None
    return tick.step.reason if tick.step.reason in FAILURES else Reason.DRIVER_GONE


def _flow(tick: Tick) -> Flow | None:
    """What the driver says of a job that runs; numbers of one that is gone would be old news."""
    driver = tick.seen.driver
    if tick.step.job.phase is not JobPhase.RUNNING or not isinstance(driver, DriverUp) or driver.status is None:
        return None
    return flow_of(driver.status)


def _flows(jobs: Mapping[JobKey, _Job]) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """How rows flow, a series for each job: what each operator does is told by the job's own driver."""
    labels = ["namespace", "job"]
    told = {key: job.flow for key, job in jobs.items() if job.flow is not None}
    lags = ((key, flow.lag) for key, flow in told.items() if flow.lag is not None)
    yield _family("epochal_job_lag_seconds", "How far a job's event time is behind the clock", labels, *lags)
    rates = ((key, flow.rows_per_second) for key, flow in told.items())
    yield _family("epochal_job_rows_per_second", "Rows that a job's sources read per second", labels, *rates)
    state = ((key, _number(flow.state_bytes)) for key, flow in told.items())
    yield _family("epochal_job_state_bytes", "State of a job's newest epoch", labels, *state)
    rows = CounterMetricFamily("epochal_job_rows", "Rows read since the driver started", labels=labels)
    for key, flow in told.items():
        rows.add_metric(key, _number(flow.rows))
    yield rows
    late = CounterMetricFamily("epochal_job_late_rows", "Rows dropped because they were late", labels=labels)
    for key, job in jobs.items():
        late.add_metric(key, _number(job.late_rows))
    yield late


def _family(name: str, text: str, labels: list[str], *values: tuple[Iterable[str], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label_values, value in values:
        family.add_metric([str(label) for label in label_values], value)
    return family


def _number(value: float | None) -> float:
    """What a job's record says, as a number that Prometheus takes. One that it does not take would leave everybody
    without metrics."""
    try:
        return float(value or 0)
    except OverflowError:
        return math.inf


def _counts(name: str, text: str, labels: list[str], counts: dict[tuple[str, str, str], int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for label_values, value in counts.items():
        family.add_metric(label_values, value)
    return family
