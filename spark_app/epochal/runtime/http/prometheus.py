"""The driver's metrics for Prometheus. Counts that exist anyway are read at scrape time, so that a batch pays for one
histogram only. ``docs/metrics.md`` lists all metrics."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, StateSetMetricFamily
from prometheus_client.registry import Collector

from epochal.protocol.control import SPANS, CheckpointReport, CheckpointState, DriverPhase, DriverStatus
from epochal.protocol.epochs import Epoch

_BATCH = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_CHECKPOINT = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SPAN = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """A driver at the moment of a scrape. ``epoch`` is the newest that is published (0: none), ``state_bytes`` what it
    refers to, by operator."""

    status: DriverStatus
    epoch: Epoch
    state_bytes: Mapping[str, int]
    late_rows: Mapping[str, int]


class DriverMetrics:
    """Everything that one driver measures, in ``registry``."""

    def __init__(self, snapshot: Callable[[], Scrape]) -> None:
        # Each histogram would come with one more series that nobody reads: when it was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._batches = Histogram(
            "epochal_source_batch_seconds",
            "Duration of a micro-batch through all operators",
            ["source"],
            buckets=_BATCH,
            registry=self.registry,
        )
        self._checkpoints = Histogram(
            "epochal_checkpoint_seconds",
            "Duration of a checkpoint, from the barrier to its end",
            ["result"],
            buckets=_CHECKPOINT,
            registry=self.registry,
        )
        self._bytes = Counter(
            "epochal_checkpoint_bytes", "Bytes of state written by checkpoints", ["result"], registry=self.registry
        )
        self._spans = Histogram(
            "epochal_checkpoint_span_seconds",
            "Time an operator spends in each phase of a checkpoint",
            ["operator", "span"],
            buckets=_SPAN,
            registry=self.registry,
        )
        self._recoveries = Histogram(
            "epochal_recovery_in_place_seconds",
            "Time from the loss of an executor to the first batch after it, in the same driver",
            buckets=_BATCH,
            registry=self.registry,
        )
        for result in (CheckpointState.READY, CheckpointState.FAILED):
            # Present from the start: a rate over a series that appears with its first failure misses that one.
            self._checkpoints.labels(result.lower())
            self._bytes.labels(result.lower())
        self._scraped = _Scraped(snapshot)
        self.registry.register(self._scraped)

    def follow(self, snapshot: Callable[[], Scrape]) -> None:
        """From now on another generation, of the same driver, tells how it stands."""
        self._scraped.snapshot = snapshot

    def recovered(self, seconds: float) -> None:
        """A generation in place has processed its first batch."""
        self._recoveries.observe(seconds)

    def batch(self, source: str, seconds: float) -> None:
        self._batches.labels(source).observe(seconds)

    def checkpoint(self, report: CheckpointReport) -> None:
        """An epoch has ended."""
        assert report.finished is not None
        result = report.state.lower()
        self._checkpoints.labels(result).observe(max(0, report.finished - report.started) / 1e6)
        self._bytes.labels(result).inc(report.bytes)
        for operator in report.operators:
            for span, (first, second) in SPANS.items():
                if first in operator.events and second in operator.events:
                    seconds = max(0, operator.events[second] - operator.events[first]) / 1e6
                    self._spans.labels(operator.name, span).observe(seconds)


class _Scraped(Collector):
    def __init__(self, snapshot: Callable[[], Scrape]) -> None:
        self.snapshot = snapshot

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not ask a driver that has not begun."""
        return []

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot()
        yield from _driver(snapshot)
        yield from _sources(snapshot.status, time.time())
        yield from _checkpoints(snapshot)
        yield _counter(
            "epochal_late_rows", "Rows dropped because they arrived too late", "operator", snapshot.late_rows
        )
        committed = {sink.name: sink.rows_committed for sink in snapshot.status.sinks}
        yield _counter("epochal_sink_rows_committed", "Rows committed by the sink", "sink", committed)


def _driver(snapshot: Scrape) -> Iterator[Metric]:
    status = snapshot.status
    # Not `job` and `namespace`: Prometheus has labels of these names, for other things.
    info = GaugeMetricFamily("epochal_driver_info", "Job of the driver; always 1", labels=["job_namespace", "job_name"])
    info.add_metric([status.namespace, status.job], 1)
    yield info
    yield GaugeMetricFamily("epochal_generation", "Generation of the driver", value=status.generation)
    yield GaugeMetricFamily(
        "epochal_restored_epoch",
        "Epoch that the driver restored; 0 if it started empty",
        value=status.restored_epoch or 0,
    )
    phase = StateSetMetricFamily("epochal_driver_phase", "Phase of the driver", labels=[])
    phase.add_metric([], {one.value: one is status.phase for one in DriverPhase})
    yield phase


def _sources(status: DriverStatus, now: float) -> Iterator[Metric]:
    rows = {source.name: source.rows for source in status.sources}
    yield _counter("epochal_source_rows", "Rows read", "source", rows)
    lag = {source.name: now - source.watermark / 1e6 for source in status.sources if source.watermark is not None}
    yield _gauge("epochal_source_watermark_lag_seconds", "Current time minus watermark", "source", lag)
    idle = {source.name: source.idle for source in status.sources}
    yield _gauge(
        "epochal_source_idle", "1 if the source has no new rows and does not hold back the watermark", "source", idle
    )


def _checkpoints(snapshot: Scrape) -> Iterator[Metric]:
    newest = snapshot.status.checkpoint
    in_flight = newest is not None and newest.finished is None
    yield GaugeMetricFamily("epochal_epoch", "Latest published epoch; 0 if there is none", value=snapshot.epoch)
    yield GaugeMetricFamily("epochal_checkpoint_in_flight", "1 while a checkpoint is in progress", value=in_flight)
    yield _gauge(
        "epochal_state_bytes", "Bytes of state in the latest published epoch", "operator", snapshot.state_bytes
    )


def _counter(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=[label]), values)


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=[label]), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> Metric:
    for key, value in values.items():
        family.add_metric([key], value)
    return family
