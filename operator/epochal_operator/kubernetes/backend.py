"""A job on a cluster: its driver is a pod, its cleanup a Job, its record is in its status."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from epochal.control.driver_channel import NegotiatedDriver, SecuredDriver
from epochal.control.driver_client import DriverClient, RememberingDriver, Trust
from epochal.control.job import JobSpec
from epochal.control.lifecycle import DriverAbsent, DriverEnded, JobPhase, JobRecord
from epochal.control.permit import Permit
from epochal.control.reconcile import DriverAlive, Tick
from epochal.protocol.control import DriverConfig, RestoreConfig
from epochal.protocol.decision import CleanupRefused, CleanupState, Seconds
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import StoreReader
from epochal_operator.api import Api, ApiError, ConflictError, JsonObject
from epochal_operator.kubernetes import pod_state
from epochal_operator.kubernetes.dependents import Belongings, refused_by
from epochal_operator.kubernetes.driver_forward import ForwardedDriver
from epochal_operator.kubernetes.driver_keys import BadKeysError, DriverKeys
from epochal_operator.kubernetes.manifests import cleanup_job, resources
from epochal_operator.kubernetes.nodes import Nodes
from epochal_operator.kubernetes.watch_cache import Watched, WatchedKind
from epochal_operator.names import (
    CONTROL_PORT,
    GENERATION_LABEL,
    PLURAL,
    Role,
    driver_host,
    labels,
)
from epochal_operator.reporting.status import load_record, project, settled, without_progress
from epochal_operator.reporting.timestamps import parse_timestamp
from epochal_operator.stores.store_access import StoreLook, Stores

logger = logging.getLogger(__name__)

KEPT_DRIVERS = 2
"""Pods of ended drivers that stay, for their logs."""

END_GRACE = 2
"""Seconds for a driver that the operator itself ends: there is no last checkpoint that it could wait for."""

FORCE_AFTER: Seconds = 30.0
"""A pod that is still there so long after it should have ended is on a lost node: fencing makes it harmless."""

FOLLOWED = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)
"""In which it matters what becomes of the present generation's driver."""

PROGRESS_EVERY: Seconds = 5.0
"""How often the progress within a checkpoint is written."""


class DriverAccess(StrEnum):
    DIRECT = "direct"
    PROXY = "proxy"


class StaleView(Exception):  # noqa: N818 - named by what is seen
    """The cluster is not as it was when this round began: the next round looks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What all jobs share."""

    api: Api
    watched: Watched
    clock: Callable[[], Seconds]
    stores: Stores
    nodes: Nodes
    access: DriverAccess = DriverAccess.DIRECT
    driver_timeout: float = 3.0
    heartbeat: Seconds = 0.0
    """How old an answer of a driver may be that runs and has nothing to do."""
    require_tls: bool = False
    """Do not talk to drivers of releases before TLS."""

    def backend(self, body: JsonObject, spec: JobSpec) -> "KubernetesBackend":
        return KubernetesBackend(self, body, spec, Belongings(self.api, self.watched, self.clock))


@dataclass(slots=True)
class KubernetesBackend:
    """:class:`epochal.control.reconcile.Backend` of one job. ``body`` is the StreamingJob as it was last seen, or as
    our own last write left it; each round begins with :meth:`renew`."""

    cluster: Cluster
    body: JsonObject
    spec: JobSpec
    belongings: Belongings
    _progress_written: Seconds = 0.0
    _client: tuple[tuple[str, DriverKeys], RememberingDriver] | None = None
    _record: tuple[str, JobRecord | None] = ("", None)
    _look: StoreLook | None = None

    def renew(self, body: JsonObject, spec: JobSpec) -> None:
        self.body, self.spec = body, spec

    @property
    def objects(self) -> StoreReader:
        """The job's store, for the rest of this round."""
        if self._look is None:
            self._look = self.cluster.stores.look(self.spec)
        return self._look.reader

    def end_round(self) -> None:
        if self._look is not None:
            look, self._look = self._look, None
            look.close()

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self.spec.namespace, self.spec.name)

    # --- record -------------------------------------------------------------------------------------------------------

    def load(self) -> JobRecord | None:
        version = self.body["metadata"]["resourceVersion"]
        if self._record[0] != version:
            self._record = (version, self._loaded())
        return self._record[1]

    def _loaded(self) -> JobRecord | None:
        try:
            return load_record(self.body.get("status") or {})
        except ValueError as error:
            logger.warning("Record of %s/%s is rebuilt: %s", self.spec.namespace, self.spec.name, error)
            return None

    def write_ahead(self, tick: Tick) -> Permit | None:
        """The record and all that people see, in one write, which nobody else's may have come before."""
        now = self.cluster.clock()
        before = self.body.get("status") or {}
        status = project(
            self.spec,
            before,
            tick,
            version=int(self.body["metadata"].get("generation", 0)),
            executors=self._executors(),
            now=now,
        )
        if not tick.step.acts:
            quiet = settled(status, before)
            if quiet == before:
                return None
            if without_progress(quiet) == without_progress(before):
                if now - self._progress_written < PROGRESS_EVERY:
                    return None
                self._progress_written = now
        return self.write_status(status)

    def unchanged(self) -> Permit:
        """See that nobody else has written the record since this round read it. The API server compares, and stores
        nothing."""
        return self.write_status(self.body.get("status") or {})

    def write_status(self, status: Mapping[str, Any]) -> Permit:
        """:class:`ConflictError` if anybody has written the job since."""
        permit = Permit(drivers=tuple(self._drivers()), cleanups=tuple(self._jobs()))
        metadata = self.body["metadata"]
        body = {
            "apiVersion": self.body["apiVersion"],
            "kind": self.body["kind"],
            "metadata": {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")},
            "spec": self.body["spec"],
            "status": status,
        }
        self.body = self.cluster.api.replace_status(PLURAL, self.spec.namespace, self.spec.name, body)
        return permit

    # --- driver -------------------------------------------------------------------------------------------------------

    def _watched(self, kind: str) -> WatchedKind:
        return self.cluster.watched.kind(kind, self.spec.namespace)

    def _pods(self) -> list[JsonObject]:
        return self._watched("pods").of_job(self.spec.namespace, self.spec.name)

    def _drivers(self) -> list[JsonObject]:
        """Newest first."""
        drivers = [pod for pod in self._pods() if pod_state.is_driver(pod)]
        return sorted(drivers, key=pod_state.generation_of, reverse=True)

    def has_driver(self) -> bool:
        """Whether a driver lives, of any generation."""
        return any(pod_state.ended(pod) is None for pod in self._drivers())

    def _executors(self) -> int:
        return sum(pod_state.is_executor(pod) and pod["status"].get("phase") == "Running" for pod in self._pods())

    def driver(self) -> DriverAbsent | DriverEnded | DriverAlive:
        found, job = self._driver(), self.load()
        followed = job is not None and job.begun and job.phase in FOLLOWED
        if isinstance(found, DriverAbsent) and followed:
            # That it is lost has consequences: what is watched may lag behind.
            self._list_drivers()
            found = self._driver()
        return found

    def _driver(self) -> DriverAbsent | DriverEnded | DriverAlive:
        newest: DriverEnded | None = None
        for pod in self._drivers():
            ended = pod_state.ended(pod)
            if ended is None:
                return self._alive(pod)
            newest = newest or ended
        job = self.load()
        if newest is None or (job and newest.generation < job.process_generation):
            return DriverAbsent()
        return newest

    def _alive(self, pod: JsonObject) -> DriverAlive:
        client, silence = None, ""
        try:
            client = self._client_of(pod)
        except BadKeysError as error:
            silence = str(error)
        return DriverAlive(
            generation=pod_state.generation_of(pod),
            client=client,
            waiting=pod_state.waits_for(pod),
            since=pod_state.running_since(pod),
            leaving=self._leaving(pod),
            silence=silence,
        )

    def _leaving(self, driver: JsonObject) -> str:
        """Why the driver has to go, if it has to. With an executor goes the state that only this executor has."""
        nodes = self.cluster.nodes
        if why := pod_state.leaving(driver) or nodes.drains(driver):
            return why
        for pod in pod_state.executors_of(driver, self._pods()):
            if why := pod_state.disrupted(pod) or nodes.drains(pod):
                return f"executor {pod['metadata']['name']} has to go: {why}"
        return ""

    def _client_of(self, pod: JsonObject) -> DriverClient | None:
        address = pod["status"].get("podIP")
        if not address or pod["status"].get("phase") != "Running":
            return None
        name = pod_state.keys_of(pod)
        if not name:
            raise BadKeysError("its pod names no Secret")
        keys = self.belongings.keys(self.spec, name)
        if self.cluster.require_tls and not keys.authority:
            raise BadKeysError("it was started without TLS, by an operator of a release before it")
        key = (str(pod["metadata"]["uid"]), keys)
        if self._client is None or self._client[0] != key:
            driver = self._new_client(pod, keys)
            self._client = (key, RememberingDriver(driver, self.cluster.clock, self.cluster.heartbeat))
        return self._client[1]

    def _new_client(self, pod: JsonObject, keys: DriverKeys) -> DriverClient:
        """One that was given a certificate may be too old to use it, unless that is not to be put up with."""
        plain = self._reached(pod, keys.plain_token, None)
        if not keys.authority:
            return plain
        host = driver_host(self.spec.namespace, self.spec.name, pod_state.generation_of(pod))
        secured = self._reached(pod, keys.token, keys.trust(host))
        return SecuredDriver(secured, plain) if self.cluster.require_tls else NegotiatedDriver(secured, plain)

    def _reached(self, pod: JsonObject, token: str, trust: Trust | None) -> DriverClient:
        timeout = self.cluster.driver_timeout
        if self.cluster.access is DriverAccess.PROXY:
            name = pod["metadata"]["name"]
            return ForwardedDriver(
                self.cluster.api.configuration,
                namespace=self.spec.namespace,
                pod=name,
                token=token,
                timeout=timeout,
                trust=trust,
            )
        address = pod["status"]["podIP"]
        host = f"[{address}]" if ":" in address else address
        scheme = "https" if trust else "http"
        return DriverClient(f"{scheme}://{host}:{CONTROL_PORT}", token, timeout=timeout, trust=trust)

    def start_driver(self, permit: Permit, generation: Generation, restore: RestoreConfig) -> None:
        try:
            self._start_driver(permit, generation, restore)
        except ConflictError:
            raise
        except ApiError as error:
            raise refused_by("pods", error) from error

    def _start_driver(self, permit: Permit, generation: Generation, restore: RestoreConfig) -> None:  # noqa: ARG002
        """Start a generation's driver. Stopped anywhere, the same steps again lead to the same end.

        1. Look at the cluster itself that no driver lives: what is watched may lag behind.
        2. Remove what older generations left: a quota may have room for one only.
        3. See to it that Service and PodDisruptionBudget are there.
        4. Create the ConfigMap with the driver's configuration.
        5. Create the Secret, which goes with the ConfigMap.
        6. Create the pod: from here on the generation runs.
        """
        owner = resources.owner(self.body)
        # Step 1
        for pod in self._list_drivers():
            if pod_state.ended(pod) is None:
                raise StaleView(f"pod {pod['metadata']['name']} still lives")
        # Step 2
        self._forget_old(generation)
        # Step 3
        self.belongings.ensure_service(self.spec, owner)
        if self.cluster.nodes.known.is_set():
            self.belongings.ensure_budget(self.spec, owner)
        # Step 4
        config = resources.driver_config(self.spec, generation, restore)
        keys = resources.name_of_keys(self.spec, config)
        config_map = self.belongings.put_config(self.spec, owner, config, keys)
        # Step 5
        self.belongings.ensure_keys(self.spec, generation, config_map, keys)
        # Step 6
        self._create("pods", resources.driver_pod(self.spec, owner, generation, keys))

    def repaired(self, generation: Generation, told: Callable[[], RestoreConfig | None]) -> list[str]:
        """Make again what the living driver needs and somebody has deleted; says what. ``generation``: the one that its
        process began with, which is in its pod's name. ``told``: where it was told to begin; None if nobody knows."""
        pods = [pod for pod in self._drivers() if pod_state.generation_of(pod) == generation]
        keys = pod_state.keys_of(pods[0]) if pods else ""

        def config() -> DriverConfig | None:
            restore = told()
            return resources.driver_config(self.spec, generation, restore) if restore else None

        return self.belongings.repaired(self.spec, resources.owner(self.body), generation, config, keys)

    def _list_drivers(self) -> list[JsonObject]:
        """As the API server knows them, and from now on we do."""
        selector = ",".join(f"{name}={value}" for name, value in labels(self.spec.name, Role.DRIVER).items())
        pods = self.cluster.api.list("pods", self.spec.namespace, selector=selector).get("items") or []
        for pod in pods:
            self._watched("pods").note(pod)
        return [pod for pod in pods if pod_state.is_driver(pod)]

    def _create(self, kind: str, body: JsonObject) -> None:
        self._watched(kind).note(self.belongings.create(kind, self.spec.namespace, body))

    def end_driver(self, permit: Permit) -> None:
        self._end_drivers(permit, grace=END_GRACE)

    def kill_driver(self, permit: Permit) -> None:
        """End it without letting it finish anything."""
        self._end_drivers(permit, grace=0)

    def _end_drivers(self, permit: Permit, *, grace: int) -> None:
        for pod in permit.drivers:
            if pod_state.ended(pod) is not None:
                continue
            metadata = pod["metadata"]
            since = metadata.get("deletionTimestamp")
            lost = since is not None and self.cluster.clock() - parse_timestamp(since) > FORCE_AFTER
            # Also one that somebody else gave more time.
            if since is None or lost or metadata.get("deletionGracePeriodSeconds", grace) > grace:
                self.cluster.api.delete(
                    "pods",
                    self.spec.namespace,
                    metadata["name"],
                    grace=0 if lost else grace,
                    uid=metadata["uid"],
                )

    def end_leftovers(self, job: JobRecord) -> None:
        """Delete pods whose driver has ended and whose other containers run on, once it is written down how it
        ended."""
        followed = job.phase in FOLLOWED
        left = [
            pod
            for pod in self._drivers()
            if pod_state.runs_on(pod) and (not followed or pod_state.generation_of(pod) != job.process_generation)
        ]
        if left:
            self.unchanged()
        for pod in left:
            self._delete("pods", pod)

    def _delete(self, kind: str, item: JsonObject) -> None:
        metadata = item["metadata"]
        self.cluster.api.delete(kind, self.spec.namespace, metadata["name"], uid=metadata["uid"])

    def _forget_old(self, generation: Generation) -> None:
        old = [pod for pod in self._drivers() if pod_state.generation_of(pod) < generation]
        for pod in old[KEPT_DRIVERS:]:
            self._delete("pods", pod)
        for item in self._watched("configmaps").of_job(self.spec.namespace, self.spec.name):
            number = pod_state.label(item, GENERATION_LABEL)
            if number.isdigit() and int(number) < generation:
                self._delete("configmaps", item)

    # --- cleanup ------------------------------------------------------------------------------------------------------

    def _jobs(self) -> list[JsonObject]:
        return self._watched("jobs").of_job(self.spec.namespace, self.spec.name)

    def cleanup(self) -> CleanupState:
        found = cleanup_job.cleanup_state(self._jobs(), self._pods(), self.cluster.clock())
        return CleanupRefused(self._why_no_pod()) if isinstance(found, CleanupRefused) else found

    def _why_no_pod(self) -> str:
        """The Job's controller writes it into an event only. The API server says the same to us."""
        try:
            self.cluster.api.create_dry("pods", self.spec.namespace, cleanup_job.pod_of(self._jobs()[-1]))
        except ApiError as error:
            return error.said
        return "its Job gets no pod: see `kubectl describe job`"

    def start_cleanup(self, permit: Permit, min_epoch: Epoch) -> None:  # noqa: ARG002
        body = cleanup_job.cleanup_job(self.spec, resources.owner(self.body), min_epoch)
        try:
            self._create("jobs", body)
        except ConflictError:
            logger.info("Cleanup %s exists already", body["metadata"]["name"])

    def end_cleanup(self, permit: Permit) -> None:
        for job in permit.cleanups:
            self._delete("jobs", job)
            self._watched("jobs").note_gone(job)
