"""What a job's driver needs beside its pod: Service, token and configuration. Made when they are missing, at first or
because somebody has deleted them."""

import base64
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from epochal.control.job import JobSpec
from epochal.control.refusal import Refused, ResourceRefusedError
from epochal.protocol.control import RestoreConfig
from epochal.protocol.decision import Seconds
from epochal.protocol.epochs import Generation
from epochal_operator.api import Api, ApiError, ConflictError, JsonObject, NamespaceEndsError, NotFoundError
from epochal_operator.kubernetes.manifests import resources
from epochal_operator.kubernetes.pod_state import label
from epochal_operator.kubernetes.watch_cache import Watched
from epochal_operator.names import JOB_LABEL, driver_name, service_name, token_name

logger = logging.getLogger(__name__)

TOKEN_CHECK_EVERY: Seconds = 60.0
"""Secrets are not watched (nobody should see all of them), so the token's is asked for now and then."""


ALREADY_EXISTS = "AlreadyExists"


def refused_by(kind: str, error: ApiError) -> ResourceRefusedError:
    return ResourceRefusedError(Refused(kind, error.said, for_good=isinstance(error, NamespaceEndsError)))


class BadTokenError(Exception):
    """The Secret is there, and holds no token."""


@dataclass(slots=True)
class Belongings:
    api: Api
    watched: Watched
    clock: Callable[[], Seconds]
    _token: str | None = None
    token_checked: Seconds = 0.0

    def token(self, spec: JobSpec) -> str | None:
        """The token of the job's drivers; None if its Secret is gone and nobody remembers."""
        if self._token is None:
            try:
                self._token = self._read_token(spec)
            except NotFoundError:
                return None
        return self._token

    def ensure_token(self, spec: JobSpec, owner: JsonObject) -> bool:
        """See to it that the Secret is there, with the token that is in use. Says whether it had to be made."""
        self.token_checked = self.clock()
        try:
            self._token = self._read_token(spec)
        except NotFoundError:
            token = self._token or secrets.token_urlsafe(32)
            self.create("secrets", spec.namespace, resources.token_secret(spec, owner, token))
            self._token = token
            return True
        return False

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

    def _read_token(self, spec: JobSpec) -> str:
        secret = self.api.get("secrets", spec.namespace, token_name(spec.name))
        try:
            return base64.b64decode(secret["data"][resources.TOKEN_KEY]).decode()
        except (KeyError, TypeError, ValueError) as error:
            raise BadTokenError(f"Secret {token_name(spec.name)} holds no token: delete it") from error

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

    def ensure_config(self, spec: JobSpec, owner: JsonObject, generation: Generation, restore: RestoreConfig) -> bool:
        """A driver whose pod waits needs its configuration; one that runs has read it."""
        name = driver_name(spec.name, generation)
        return self._ensure(
            "configmaps",
            spec,
            name,
            lambda: resources.config_map(spec, owner, resources.driver_config(spec, generation, restore)),
        )

    def _ensure(self, kind: str, spec: JobSpec, name: str, build: Callable[[], JsonObject]) -> bool:
        watched = self.watched.kind(kind, spec.namespace)
        if watched.get(spec.namespace, name):
            return False
        try:
            watched.note(self.create(kind, spec.namespace, build()))
        except ConflictError:
            return False  # it is there, and the watch will say so
        return True

    def put_config(self, spec: JobSpec, owner: JsonObject, generation: Generation, restore: RestoreConfig) -> None:
        """The configuration of a generation that is about to start. One that an earlier try has left may be another's
        whose record was lost: what counts is what it is told now."""
        body = resources.config_map(spec, owner, resources.driver_config(spec, generation, restore))
        watched, name = self.watched.kind("configmaps", spec.namespace), body["metadata"]["name"]
        try:
            watched.note(self.create("configmaps", spec.namespace, body))
        except ConflictError:
            there = self.api.get("configmaps", spec.namespace, name)
            if there.get("data") == body["data"]:
                return
            # It is immutable.
            self.api.delete("configmaps", spec.namespace, name, uid=there["metadata"]["uid"])
            watched.note_gone(there)
            watched.note(self.create("configmaps", spec.namespace, body))

    def repaired(self, spec: JobSpec, owner: JsonObject, generation: Generation, restore: RestoreConfig) -> list[str]:
        """Make again what a living driver needs and somebody has deleted; says what."""
        made = []
        if self.ensure_service(spec, owner):
            made.append(f"Service {service_name(spec.name)}")
        if self.ensure_config(spec, owner, generation, restore):
            made.append(f"ConfigMap {driver_name(spec.name, generation)}")
        if not 0 <= self.clock() - self.token_checked < TOKEN_CHECK_EVERY and self.ensure_token(spec, owner):
            made.append(f"Secret {token_name(spec.name)}")
        return made
