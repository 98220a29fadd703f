"""The jobs' stores as the operator reads them: with the job's own credentials, never for long, and never so many at a
time that one tenant's keep the others waiting."""

import base64
import binascii
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from epochal.control.job import JobSpec, StorageSpec
from epochal.protocol.errors import StoreConfigError
from epochal.protocol.store import RetryPolicy, StoreOptions, StoreReader, check_uri, open_store
from epochal_operator.api import Api, NotFoundError
from epochal_operator.stores.endpoint import find_endpoint
from epochal_operator.stores.s3_reader import LARGEST, LONGEST_REQUEST, Keys, Look, S3Reader

AT_ONCE = 128
OF_NAMESPACE = 32
"""Looks at stores at the same time: of jobs whose stores are quick, and as many of the others."""

SLOW = 1.0
SLOW_FOR = 60.0
REST = 2.0
"""After a slow look a job looks again after so many times as long."""

_LOCAL = ("file", "memory")
_RETRY = RetryPolicy(tries=4, deadline=LONGEST_REQUEST, request_timeout=LONGEST_REQUEST, connect_timeout=2.0)


class StoreBusyError(Exception):
    """It is not this job's turn to look at its store: a later round looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRules:
    """Which stores jobs may have. ``own_identity``: the URIs of stores that the operator may read as itself; below each
    a job has a place of its own, so nobody gets to see what belongs to another. ``local``: also directories, and
    servers on the operator's own machine, as tests have them."""

    own_identity: tuple[str, ...] = ()
    local: bool = False

    def problem(self, storage: StorageSpec) -> str | None:
        """Why this cannot be a job's store; None if it can."""
        uri, scheme = storage.config.uri, urlsplit(storage.config.uri).scheme
        if scheme in _LOCAL:
            if self.local:
                return None
            return (
                f"spec.checkpoint.storage.uri: {scheme}:// is inside one pod, and ends with it: "
                "use a store that all pods reach, s3://, gs:// or az://"
            )
        if self.as_operator(storage) or (scheme == "s3" and storage.credentials_secret):
            return None
        advice = f"ask the administrator to add {uri} to the chart's operator.ownIdentityStores"
        if scheme == "s3":
            advice = f"name a Secret with keys in spec.checkpoint.storage.credentialsSecret, or {advice}"
        return f"the operator has no credentials to read {uri}: {advice}"

    def as_operator(self, storage: StorageSpec) -> bool:
        """Whether the operator reads it as itself. Never at an endpoint that the job names: it would get to see the
        operator's signature."""
        named = storage.config.endpoint or storage.credentials_secret
        return not named and storage.config.uri.rstrip("/") in {uri.rstrip("/") for uri in self.own_identity}


class _Lane:
    """Looks at the same time: so many in all, and so many of each namespace."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def enter(self, namespace: str) -> bool:
        if self._of.total() >= AT_ONCE or self._of[namespace] >= OF_NAMESPACE:
            return False
        self._of[namespace] += 1
        return True

    def leave(self, namespace: str) -> None:
        self._of[namespace] -= 1
        self._of += Counter()


class Stores:
    """All jobs' stores. Whether a job may look is decided at once: nobody waits for a turn."""

    def __init__(
        self, api: Api, rules: StoreRules | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rules = rules or StoreRules()
        self.api, self._clock = api, clock
        self._lock = threading.Lock()
        self.large = threading.Lock()
        self._quick, self._slow = _Lane(), _Lane()
        self._rests: dict[tuple[str, str], tuple[float, float]] = {}
        """Of jobs whose last slow look was lately: until when they rest, and until when they count as slow."""

    def look(self, spec: JobSpec) -> "StoreLook":
        """Begin to look at a job's store; close it after."""
        key = spec.namespace, spec.name
        with self._lock:
            now = self._clock()
            self._rests = {job: times for job, times in self._rests.items() if max(times) > now}
            rest, slow = self._rests.get(key, (0.0, 0.0))
            lane = self._slow if slow > now else self._quick
            if rest > now or not lane.enter(spec.namespace):
                raise StoreBusyError("the job's store is looked at again soon")
        return StoreLook(self, spec, lane, now)

    def ended(self, look: "StoreLook", *, large: bool) -> None:
        key = look.spec.namespace, look.spec.name
        with self._lock:
            look.lane.leave(look.spec.namespace)
            now = self._clock()
            if now - look.begun >= SLOW:
                self._rests[key] = (now + REST * (now - look.begun), now + SLOW_FOR)
        if large:
            self.large.release()


class StoreLook:
    """One round's look at its job's store: all that is read in it shares one limit."""

    def __init__(self, stores: Stores, spec: JobSpec, lane: _Lane, begun: float) -> None:
        self.spec, self.lane, self.begun = spec, lane, begun
        self._stores = stores
        self._large = False
        self._reader: StoreReader | None = None

    @property
    def reader(self) -> StoreReader:
        if self._reader is None:
            self._reader = self._open()
        return self._reader

    def close(self) -> None:
        self._stores.ended(self, large=self._large)

    def _may_be_large(self) -> bool:
        """One at a time: what is read is a multiple of that in memory."""
        self._large = self._stores.large.acquire(blocking=False)
        return self._large

    def _open(self) -> StoreReader:
        storage, rules = self.spec.storage, self._stores.rules
        if storage is None:
            raise StoreConfigError("", "the job names no store: set spec.checkpoint.storage")
        config = storage.config
        if problem := rules.problem(storage):
            raise StoreConfigError(config.uri, problem)
        scheme = check_uri(config.uri)
        if scheme in _LOCAL:
            return open_store(config.uri, retry=_RETRY, largest=LARGEST)
        if rules.as_operator(storage):
            return open_store(config.uri, StoreOptions(region=config.region), retry=_RETRY, largest=LARGEST)
        assert storage.credentials_secret is not None
        keys = _keys(self._stores.api, self.spec.namespace, storage.credentials_secret)
        region = config.region or os.environ.get("AWS_REGION") or "us-east-1"
        bucket, path = urlsplit(config.uri).netloc, urlsplit(config.uri).path
        return S3Reader(
            find_endpoint(config.uri, config.endpoint or f"https://s3.{region}.amazonaws.com", local=rules.local),
            uri=config.uri,
            bucket=bucket,
            prefix=path.strip("/"),
            region=region,
            keys=keys,
            look=Look(may_be_large=self._may_be_large),
        )


def _keys(api: Api, namespace: str, name: str) -> Keys:
    where = f"Secret {name} with the store's credentials"
    try:
        data = api.get("secrets", namespace, name).get("data") or {}
        found = {key: base64.b64decode(data[key]).decode() for key in _NAMES if data.get(key)}
    except NotFoundError as error:
        raise StoreConfigError(name, "the Secret with the store's credentials does not exist") from error
    except (binascii.Error, UnicodeDecodeError) as error:
        raise StoreConfigError(name, "the Secret with the store's credentials is not text") from error
    for key, value in found.items():
        if not value.isascii() or not value.isprintable():
            raise StoreConfigError(name, f"{key} has characters that no key has, a line end perhaps")
    try:
        return Keys(
            access_key_id=found[_NAMES[0]],
            secret_access_key=found[_NAMES[1]],
            session_token=found.get(_NAMES[2]),
        )
    except KeyError as error:
        raise StoreConfigError(name, f"{where} has no key {error}") from error


_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
