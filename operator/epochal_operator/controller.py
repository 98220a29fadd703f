"""One round of one job, from the StreamingJob as it was seen to the events that are worth telling. Blocking: the
handlers call it in threads, one round of a job at a time."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from epochal.control.events import Event, EventReason, events_of
from epochal.control.foreign import clean
from epochal.control.job import DesiredState, JobSpec, parse_job
from epochal.control.lifecycle import (
    AT_REST,
    HALTED,
    DriverUp,
    JobPhase,
    outdated,
)
from epochal.control.reconcile import Reconciler, Tick
from epochal.control.refusal import RefusedTries, ResourceRefusedError, refused_again
from epochal.control.schema import ManifestError
from epochal.protocol.decision import NoCleanup, Nothing, Seconds
from epochal.protocol.errors import DocumentError, MissingBucketError, NewerDocumentError, StoreError
from epochal.protocol.progress import next_checkpoint
from epochal_operator.api import ApiError, ConflictError, JsonObject, NotFoundError
from epochal_operator.backoff import Pauses
from epochal_operator.kubernetes import pod_state
from epochal_operator.kubernetes.backend import Cluster, KubernetesBackend, StaleView
from epochal_operator.kubernetes.spec_reader import SpecReader, revision_in_use
from epochal_operator.kubernetes.watch_cache import version_of
from epochal_operator.names import PLURAL, Role, labels
from epochal_operator.reporting.metrics import JobKey, OperatorMetrics
from epochal_operator.reporting.status import with_blocked
from epochal_operator.reporting.timestamps import parse_timestamp
from epochal_operator.stores.s3_reader import LargeReadsBusyError
from epochal_operator.stores.store_access import StoreBusyError

logger = logging.getLogger(__name__)

LONGEST_QUIET: Seconds = 10.0
"""A round in full comes at least this often, whatever is thought to be known."""


class Result(StrEnum):
    OK = "ok"
    QUIET = "quiet"
    CONFLICT = "conflict"
    STALE = "stale"
    STORE_ERROR = "store_error"
    API_ERROR = "api_error"
    ERROR = "error"


@dataclass(slots=True)
class _Job:
    """What is remembered of a job between rounds. All of it can be lost."""

    reader: SpecReader
    lock: threading.Lock = field(default_factory=threading.Lock)
    backend: KubernetesBackend | None = None
    reconciler: Reconciler | None = None
    waiting: str = ""
    store_down: bool = False
    bucket_missing: bool = False
    repairs: RefusedTries | None = None
    pauses: Pauses = field(default_factory=Pauses)
    """After an answer of the API server that was an error."""
    quiet_until: Seconds = 0.0
    quiet_mark: tuple[object, ...] = ()


class Controller:
    def __init__(
        self,
        cluster: Cluster,
        metrics: OperatorMetrics,
        *,
        default_image: str | None = None,
        own_namespace: str = "",
        deletion_timeout: Seconds = 600.0,
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._default_image = default_image
        self._own_namespace = own_namespace
        self._deletion_timeout = deletion_timeout
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()

    # --- a round ------------------------------------------------------------------------------------------------------

    def tick(self, body: JsonObject) -> list[Event]:
        """One round of a job that is not being deleted. Never raises: what goes wrong is counted, told, and tried
        again by the next round."""
        job = self._job(body)
        self._metrics.begin(_key(body))
        with job.lock:
            body = _newer(body, job)
            if "deletionTimestamp" in body["metadata"]:
                return []
            return self._guarded(job, body)[1]

    def quiet(self, body: JsonObject) -> bool:
        """Whether a round now would see and decide the same as the last one: nothing has changed, and nothing is due.
        So it is, too, while the API server is to be left alone. Looks at memory only, so that it needs no thread: of
        hundreds of jobs most are quiet at any moment."""
        job = self._jobs.get(body["metadata"]["uid"])
        if job is not None and job.pauses.lasts(self._cluster.clock()):
            return True
        if job is None or not 0 <= job.quiet_until - self._cluster.clock() <= LONGEST_QUIET:
            return False
        if job.quiet_mark != self._mark(body):
            return False
        self._metrics.on_quiet(_key(body))
        self._metrics.ticks.labels(Result.QUIET).inc()
        return True

    def _mark(self, body: JsonObject) -> tuple[object, ...]:
        return body["metadata"]["resourceVersion"], *self._seen(*_key(body))

    def _seen(self, namespace: str, name: str) -> tuple[int, ...]:
        return self._cluster.nodes.changes, *self._cluster.watched.mark(namespace, name)

    def delete_step(self, body: JsonObject) -> tuple[bool, list[Event]]:
        """One round of a job that is being deleted. True: nothing of it runs any more, or its time is over."""
        job = self._job(body)
        namespace, name = _key(body)
        with job.lock:
            if job.pauses.lasts(self._cluster.clock()):
                return False, []
            try:
                fresh = self._cluster.api.get(PLURAL, namespace, name)
                if revision_in_use(fresh) is None and not self._has_driver(namespace, name):
                    return True, []
            except NotFoundError:
                return True, []
            except ApiError as error:
                logger.warning("Job %s/%s cannot be read: %s", namespace, name, error)
                job.pauses.begin(error, self._cluster.clock())
                return False, []
            since = parse_timestamp(fresh["metadata"]["deletionTimestamp"])
            if self._cluster.clock() - since > self._deletion_timeout:
                return self._force_deletion(job, fresh)
            tick, events = self._guarded(job, fresh, _suspended)
            return self._is_gone(job, tick), events

    def forget(self, body: JsonObject) -> None:
        """A job is gone: so is all that is known of it."""
        with self._lock:
            self._jobs.pop(body["metadata"]["uid"], None)
        self._metrics.forget(_key(body))

    def _guarded(
        self, job: _Job, body: JsonObject, adapt: Callable[[JobSpec], JobSpec] = lambda spec: spec
    ) -> tuple[Tick | None, list[Event]]:
        begun = time.monotonic()
        key = _key(body)
        job.quiet_until = 0.0
        mark = self._seen(*key)
        events: list[Event] = []
        tick: Tick | None = None
        result = Result.OK
        try:
            spec = adapt(job.reader.read(body, events))
            backend = self._backend(job, body, spec)
            if spec.problem and backend.load() is None:
                self._tell_blocked(job, EventReason.SPEC_NOT_ACCEPTED, spec.problem)
            else:
                tick = self._round(job, backend, spec, events)
                self._metrics.on_tick(key, tick)
                if not events:
                    job.quiet_until = self._quiet_until(spec, tick)
                    job.quiet_mark = (backend.body["metadata"]["resourceVersion"], *mark)
        except ConflictError as error:
            logger.debug("Job %s/%s has changed meanwhile: %s", *key, error)
            self._refresh(job, key)
            result = Result.CONFLICT
        except (StaleView, StoreBusyError, LargeReadsBusyError) as error:
            logger.info("Job %s/%s: %s", *key, error)
            result = Result.STALE
        except (StoreError, DocumentError, NewerDocumentError) as error:
            message = clean(str(error))
            if not job.store_down:
                events.append(Event(EventReason.STORE_UNAVAILABLE, message))
                logger.warning("Job %s/%s: %s", *key, message)
            job.store_down, job.bucket_missing = True, isinstance(error, MissingBucketError)
            self._tell_blocked(job, EventReason.STORE_UNAVAILABLE, message)
            result = Result.STORE_ERROR
        except ManifestError as error:
            logger.error("Job %s/%s is not one: %s", *key, error)
            result = Result.ERROR
        except ApiError as error:
            job.pauses.begin(error, self._cluster.clock())
            logger.warning("Job %s/%s: %s", *key, error)
            result = Result.API_ERROR
        except Exception:
            logger.exception("Job %s/%s: failed to reconcile", *key)
            result = Result.ERROR
        finally:
            if job.backend is not None:
                job.backend.end_round()
        self._metrics.ticks.labels(result).inc()
        self._metrics.tick_seconds.observe(time.monotonic() - begun)
        return tick, events

    def _backend(self, job: _Job, body: JsonObject, spec: JobSpec) -> KubernetesBackend:
        if job.backend is None:
            job.backend = self._cluster.backend(body, spec)
            job.reconciler = Reconciler(job.backend)
        job.backend.renew(body, spec)
        return job.backend

    def _round(self, job: _Job, backend: KubernetesBackend, spec: JobSpec, events: list[Event]) -> Tick:
        assert job.reconciler is not None
        tick = job.reconciler.tick(spec, self._cluster.clock())
        job.store_down = False
        job.pauses.reset()
        events.extend(events_of(tick))
        events.extend(self._waiting_event(job, tick))
        if tick.before and outdated(spec, tick.before) and _asked_to_stop(tick):
            message = "the spec has changed: stopping the driver to start one with the new spec"
            events.append(Event(EventReason.SPEC_CHANGED, message))
        events.extend(self._repair(job, backend, spec, tick))
        namespace, name = _key(backend.body)
        for event in events:
            level = logging.INFO if event.type == "Normal" else logging.WARNING
            fields = {"reason": event.reason, "namespace": namespace, "job": name}
            logger.log(level, "Job %s/%s: %s", namespace, name, event.message, extra=fields)
        backend.end_leftovers(tick.step.job)
        return tick

    def _quiet_until(self, spec: JobSpec, tick: Tick) -> Seconds:
        """Until when the next rounds would decide the same, as long as nothing changes."""
        now, record = self._cluster.clock(), tick.step.job
        settled = record.phase in (*AT_REST, *HALTED, JobPhase.RUNNING)
        busy = record.checkpoints.in_flight or record.checkpoints.stop or record.silent_since is not None
        acts = not isinstance(tick.step.action, Nothing) or not isinstance(tick.seen.cleanup, NoCleanup)
        if tick.changed or acts or busy or not settled or spec.problem:
            return 0.0
        due = next_checkpoint(spec.checkpoint, record.checkpoints)
        return min(now + min(self._cluster.heartbeat, LONGEST_QUIET), due)

    # --- what was not decided but must be done ------------------------------------------------------------------------

    def _repair(self, job: _Job, backend: KubernetesBackend, spec: JobSpec, tick: Tick) -> list[Event]:
        """Make again what somebody has deleted while a driver needs it. If that is refused, it is tried again after
        pauses that grow; the driver goes on meanwhile."""
        record, found = tick.step.job, tick.seen.driver
        if not isinstance(found, DriverUp) or found.generation != record.checkpoints.generation:
            return []
        if outdated(spec, record):
            return []  # it is about to be replaced
        now, before, reconciler = self._cluster.clock(), job.repairs, job.reconciler
        assert reconciler is not None
        if before is not None and before.waits(spec, now):
            return []
        try:
            made = backend.repaired(record.process_generation, lambda: reconciler.told(spec, record))
        except ResourceRefusedError as error:
            self._metrics.on_refused(_key(backend.body), error.refused.resource)
            job.repairs = refused_again(before, error.refused, spec, now, seed=spec.uid)
            return [] if before else [Event(EventReason.FAILED_CREATE, str(error))]
        job.repairs = None
        return [Event(EventReason.REPAIRED, f"{what} was gone and is there again") for what in made]

    def _waiting_event(self, job: _Job, tick: Tick) -> list[Event]:
        driver = tick.seen.driver
        waiting = driver.waiting if isinstance(driver, DriverUp) else ""
        # Only the first word counts: the rest may tell a time.
        word = waiting.split(":")[0]
        changed, job.waiting = word != job.waiting, word
        if not changed or not word:
            return []
        return [Event(EventReason.DRIVER_NOT_STARTING, f"the driver does not start: {waiting}")]

    def _tell_blocked(self, job: _Job, reason: EventReason, message: str) -> None:
        """Show in the status why no round can be planned."""
        backend = job.backend
        if backend is None:
            return
        before = backend.body.get("status") or {}
        version = int(backend.body["metadata"].get("generation", 0))
        status = with_blocked(before, reason=reason, message=message, version=version, now=self._cluster.clock())
        if status == before:
            return
        try:
            backend.write_status(status)
        except ApiError as problem:
            logger.debug("Job %s/%s: %s", *_key(backend.body), problem)

    def _refresh(self, job: _Job, key: JobKey) -> None:
        """After a conflict: the next round begins with what is there now."""
        try:
            fresh = self._cluster.api.get(PLURAL, *key)
        except ApiError as error:
            logger.debug("Job %s/%s cannot be read: %s", *key, error)
            return
        if job.backend is not None:
            job.backend.body = fresh

    # --- deletion -----------------------------------------------------------------------------------------------------

    def _is_gone(self, job: _Job, tick: Tick | None) -> bool:
        backend = job.backend
        if backend is None or backend.has_driver():
            return False
        if tick is None:
            # Only the store can tell whether the newest epoch's output is committed.
            return job.bucket_missing
        record = tick.step.job
        if record.refusal is not None and record.refusal.for_good:
            return True  # no driver can be started here any more, whatever is left to be committed
        if record.phase not in AT_REST and (record.phase not in HALTED or record.committing):
            return False
        try:
            backend.end_cleanup(backend.unchanged())
        except ApiError as error:
            logger.warning("Job %s/%s: %s", *_key(backend.body), error)
            return False
        return True

    def _force_deletion(self, job: _Job, body: JsonObject) -> tuple[bool, list[Event]]:
        if job.backend is None:
            try:
                job.backend = self._cluster.backend(body, parse_job(body))
            except ManifestError:
                return True, []
        record = job.backend.load()
        why = f"; {record.message}" if record and record.message else ""
        message = f"deleted without a last checkpoint: it did not stop within {self._deletion_timeout:.0f} s{why}"
        try:
            permit = job.backend.unchanged()
            job.backend.kill_driver(permit)
            job.backend.end_cleanup(permit)
        except ApiError as error:
            logger.warning("Job %s/%s: %s", *_key(body), error)
            return False, []
        return True, [Event(EventReason.STOP_FORCED, message)]

    def _job(self, body: JsonObject) -> _Job:
        with self._lock:
            uid = body["metadata"]["uid"]
            if uid not in self._jobs:
                cluster = self._cluster
                reader = SpecReader(
                    cluster.api, cluster.clock, self._default_image, cluster.stores.rules, self._own_namespace
                )
                self._jobs[uid] = _Job(reader)
            return self._jobs[uid]

    def _has_driver(self, namespace: str, name: str) -> bool:
        """Asked of the API server: without a driver, nothing would be left of the job."""
        selector = ",".join(f"{key}={value}" for key, value in labels(name, Role.DRIVER).items())
        pods = self._cluster.api.list("pods", namespace, selector=selector).get("items") or []
        return any(pod_state.is_driver(pod) and pod_state.ended(pod) is None for pod in pods)


def _key(body: JsonObject) -> JobKey:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _suspended(spec: JobSpec) -> JobSpec:
    """What a job that is being deleted is asked to do."""
    return replace(spec, state=DesiredState.SUSPENDED)


def _asked_to_stop(tick: Tick) -> bool:
    return tick.step.job.checkpoints.stop and tick.before is not None and not tick.before.checkpoints.stop


def _newer(body: JsonObject, job: _Job) -> JsonObject:
    """What the watch shows may be older than our own last write."""
    if job.backend is not None and version_of(job.backend.body) > version_of(body):
        return job.backend.body
    return body
