"""What a job's driver needs beside its pod: Service, configuration and secrets. Made when they are missing, at first or
because somebody has deleted them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from epochal.control.job import JobSpec
from epochal.control.refusal import Refused, ResourceRefusedError
from epochal.protocol.control import DriverConfig
from epochal.protocol.decision import Seconds
from epochal.protocol.epochs import Generation
from epochal_operator.api import Api, ApiError, ConflictError, JsonObject, NamespaceEndsError, NotFoundError
from epochal_operator.kubernetes.driver_keys import BadKeysError, DriverKeys, new_keys
from epochal_operator.kubernetes.manifests import resources
from epochal_operator.kubernetes.pod_state import label
from epochal_operator.kubernetes.watch_cache import Watched
from epochal_operator.names import JOB_LABEL, driver_host, driver_name, service_name

logger = logging.getLogger(__name__)

KEYS_CHECK_EVERY: Seconds = 60.0
"""Secrets are not watched (nobody should see all of them), so a driver's is asked for now and then."""


ALREADY_EXISTS = "AlreadyExists"


def refused_by(kind: str, error: ApiError) -> ResourceRefusedError:
    return ResourceRefusedError(Refused(kind, error.said, for_good=isinstance(error, NamespaceEndsError)))


@dataclass(slots=True)
class Belongings:
    api: Api
    watched: Watched
    clock: Callable[[], Seconds]
    _known: tuple[JsonObject, DriverKeys] | None = field(default=None, repr=False)
    """Of the driver that was asked for last: its Secret as the API server had it, and what is in there."""
    keys_checked: Seconds = 0.0

    def keys(self, spec: JobSpec, name: str) -> DriverKeys:
        """What a driver is asked with whose Secret has this name. :class:`BadKeysError` if it cannot be used, or is
        gone and nobody remembers: somebody may mend it, so it is looked at anew the next time."""
        known = self._remembered(name)
        if known is None:
            secret = self._secret(spec, name)
            if secret is None:
                raise BadKeysError(f"Secret {name} is gone")
            known = self._take(secret)
        return known[1]

    def _remembered(self, name: str) -> tuple[JsonObject, DriverKeys] | None:
        return self._known if self._known is not None and self._known[0]["metadata"]["name"] == name else None

    def _take(self, secret: JsonObject) -> tuple[JsonObject, DriverKeys]:
        """Remember it, if it can be used."""
        self._known = known = secret, DriverKeys.of(secret)
        return known

    def ensure_keys(self, spec: JobSpec, generation: Generation, config_map: JsonObject, name: str) -> None:
        """See to it that the Secret is there, with keys that can be used. :class:`ResourceRefusedError` if it cannot:
        whoever may delete one Secret may delete all of a namespace, so the operator may not."""
        there = self._secret(spec, name)
        if there is not None and _goes_with_another(there, config_map):
            said = f"Secret {name} belongs to a ConfigMap that is gone: Kubernetes deletes it soon, or you do"
            raise ResourceRefusedError(Refused("secrets", said))
        self._keep_or_make(spec, generation, config_map, name, there)

    def _keep_or_make(
        self, spec: JobSpec, generation: Generation, config_map: JsonObject, name: str, there: JsonObject | None
    ) -> None:
        if there is None:
            there = self.create("secrets", spec.namespace, self._lost_or_new(spec, generation, config_map, name))
        try:
            self._take(there)
        except BadKeysError as error:
            raise ResourceRefusedError(Refused("secrets", str(error))) from error
        self.keys_checked = self.clock()

    def _secret(self, spec: JobSpec, name: str) -> JsonObject | None:
        try:
            return self.api.get("secrets", spec.namespace, name)
        except NotFoundError:
            return None

    def _lost_or_new(self, spec: JobSpec, generation: Generation, config_map: JsonObject, name: str) -> JsonObject:
        known = self._remembered(name)
        if known is None:
            data = new_keys(driver_host(spec.namespace, spec.name, generation))
            return resources.keys_secret(spec, config_map, name, data)
        return resources.keys_secret(spec, config_map, name, {}) | {"data": known[0]["data"]}

    def create(self, kind: str, namespace: str, body: JsonObject) -> JsonObject:
        """:class:`RefusedError` if the API server does not take it, whyever: it may later.
        :class:`ConflictError` if the job has one of that name already."""
        try:
            return self.api.create(kind, namespace, body)
        except ApiError as error:
            if error.reason != ALREADY_EXISTS:
                raise refused_by(kind, error) from error
        name = body["metadata"]["name"]
        # Listed, because the operator has the right to list what it watches, and may get Secrets and ConfigMaps only.
        there = [] if kind == "secrets" else self.api.list(kind, namespace, name=name).get("items") or []
        if any(label(item, JOB_LABEL) != label(body, JOB_LABEL) for item in there):
            said = f"{kind} {name!r} exists and does not belong to this job: delete it, or give the job another name"
            raise ResourceRefusedError(Refused(kind, said))
        raise ConflictError(f"{kind} {name!r} exists already", 409, reason=ALREADY_EXISTS)

    def ensure_service(self, spec: JobSpec, owner: JsonObject) -> bool:
        return self._ensure("services", spec, service_name(spec.name), lambda: resources.service(spec, owner))

    def ensure_budget(self, spec: JobSpec, owner: JsonObject) -> None:
        """A job runs without it, too: it is not worth a driver that does not start."""
        try:
            self.api.create("poddisruptionbudgets", spec.namespace, resources.disruption_budget(spec, owner))
        except ConflictError:
            return
        except ApiError as error:
            logger.warning("Job %s/%s has no PodDisruptionBudget: %s", spec.namespace, spec.name, error)

    def _ensure(self, kind: str, spec: JobSpec, name: str, build: Callable[[], JsonObject]) -> bool:
        watched = self.watched.kind(kind, spec.namespace)
        if watched.get(spec.namespace, name):
            return False
        try:
            watched.note(self.create(kind, spec.namespace, build()))
        except ConflictError:
            return False  # it is there, and the watch will say so
        return True

    def put_config(self, spec: JobSpec, owner: JsonObject, config: DriverConfig, keys: str) -> JsonObject:
        """The configuration of a generation that is about to start. One that is there may be that of an earlier try
        whose record was lost, or of a job of the same name that was deleted, with which it goes: what counts is what it
        is told now, and by whom."""
        body = resources.config_map(spec, owner, config, keys)
        watched, name = self.watched.kind("configmaps", spec.namespace), body["metadata"]["name"]
        try:
            made = self.create("configmaps", spec.namespace, body)
        except ConflictError:
            there = self.api.get("configmaps", spec.namespace, name)
            owners = [one["uid"] for one in there["metadata"].get("ownerReferences") or []]
            if there.get("data") == body["data"] and owner["uid"] in owners:
                return there
            # It is immutable.
            self.api.delete("configmaps", spec.namespace, name, uid=there["metadata"]["uid"])
            watched.note_gone(there)
            made = self.create("configmaps", spec.namespace, body)
        watched.note(made)
        return made

    def repaired(
        self,
        spec: JobSpec,
        owner: JsonObject,
        generation: Generation,
        config: Callable[[], DriverConfig | None],
        keys: str,
    ) -> list[str]:
        """Make again what a living driver needs and somebody has deleted; says what. ``config`` is what it was started
        with, None if nobody knows; ``keys``: the Secret that its pod names."""
        made = []
        if self.ensure_service(spec, owner):
            made.append(f"Service {service_name(spec.name)}")
        name = driver_name(spec.name, generation)
        if keys and self._config_repaired(spec, owner, name, config, keys):
            made.append(f"ConfigMap {name}")
        config_map = self.watched.kind("configmaps", spec.namespace).get(spec.namespace, name)
        if keys and config_map and self._keys_repaired(spec, generation, config_map, keys):
            made.append(f"Secret {keys}")
        return made

    def _keys_repaired(self, spec: JobSpec, generation: Generation, config_map: JsonObject, name: str) -> bool:
        if 0 <= self.clock() - self.keys_checked < KEYS_CHECK_EVERY:
            return False
        there = self._secret(spec, name)
        if there is not None and _goes_with_another(there, config_map):
            return False  # it is gone soon: the next round looks again
        self._keep_or_make(spec, generation, config_map, name, there)
        return there is None

    def _config_repaired(
        self, spec: JobSpec, owner: JsonObject, name: str, config: Callable[[], DriverConfig | None], keys: str
    ) -> bool:
        """A driver whose pod waits needs its configuration. One that runs has read it, and its executors need the
        Secret that goes with it."""
        if self.watched.kind("configmaps", spec.namespace).get(spec.namespace, name):
            return False
        told = config()
        if told is None:
            return False
        # Its Secret goes with the one that was deleted.
        self.keys_checked = 0.0
        return self._ensure("configmaps", spec, name, lambda: resources.config_map(spec, owner, told, keys))


def _goes_with_another(secret: JsonObject, config_map: JsonObject) -> bool:
    """Whether its ConfigMap was another one of that name, so that Kubernetes deletes it at some time."""
    references = secret["metadata"].get("ownerReferences") or []
    owners = [one["uid"] for one in references if one["kind"] == "ConfigMap"]
    return bool(owners) and config_map["metadata"]["uid"] not in owners
