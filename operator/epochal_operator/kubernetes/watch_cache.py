"""What the operator knows of its own pods, Jobs, Services and ConfigMaps without asking: one watch of each kind.

A round of a job looks here, so that five hundred jobs cost the API server no more requests than one. The client's own
informer is not used: it builds typed models, cannot notice a dead connection, and does not know of our own writes.
A cache that lags behind our own writes would let the next round start a second driver: what we create or delete is
noted here at once.
"""

import itertools
import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from epochal.protocol.decision import Seconds
from epochal_operator.api import Api, ApiError, GoneError, JsonObject
from epochal_operator.backoff import Pauses
from epochal_operator.names import JOB_LABEL, SELECTOR
from epochal_operator.process.vital_threads import vital_thread

logger = logging.getLogger(__name__)

WATCH_SECONDS = 240
LONGEST_SILENCE: Seconds = WATCH_SECONDS + 60.0
"""A watch ends by itself after ``WATCH_SECONDS``, and its connection is given up a little later."""

Key = tuple[str, str]


def version_of(item: JsonObject) -> int:
    """Versions of one object can be compared: the greater one is newer."""
    return int(item["metadata"].get("resourceVersion") or 0)


class WatchedKind:
    """All objects of one kind that are ours, in one namespace or all of them."""

    def __init__(self, api: Api, kind: str, namespace: str | None) -> None:
        self._api, self.kind, self._namespace = api, kind, namespace
        self._lock = threading.Lock()
        self._items: dict[Key, JsonObject] = {}
        self._by_job: dict[Key, set[Key]] = {}
        self._marks: dict[Key, int] = {}
        self._changes = itertools.count(1)
        self._gone: dict[str, int] = {}
        self._version = ""
        self.listed = threading.Event()
        self._stop = threading.Event()
        self._alive = time.monotonic()
        # Without it this operator would go on with a view that grows old.
        self._thread = vital_thread(f"watch-{kind}", self._run, may_end=self._stop.is_set)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def problem(self) -> str | None:
        """For the liveness probe. That the API server does not answer is none: the thread goes on asking."""
        if self._stop.is_set():
            return None
        if not self._thread.is_alive():
            return f"the thread that watches {self.kind} is dead"
        silent = time.monotonic() - self._alive
        return f"the watch of {self.kind} has done nothing for {silent:.0f} s" if silent > LONGEST_SILENCE else None

    def of_job(self, namespace: str, job: str) -> list[JsonObject]:
        with self._lock:
            return [self._items[key] for key in sorted(self._by_job.get((namespace, job), ()))]

    def mark(self, namespace: str, job: str) -> int:
        """Another number after each change of the job's objects."""
        return self._marks.get((namespace, job), 0)

    def get(self, namespace: str, name: str) -> JsonObject | None:
        with self._lock:
            return self._items.get((namespace, name))

    def note(self, item: JsonObject) -> None:
        """An object as the API server has just returned it, or as a watch reports it; an older state is ignored."""
        with self._lock:
            known = self._items.get(_key(item))
            if known is not None and version_of(known) > version_of(item):
                return
            if item["metadata"]["uid"] in self._gone:
                return
            self._put(item)

    def note_gone(self, item: JsonObject) -> None:
        with self._lock:
            # An answer that is still on its way must not bring it back.
            self._gone[item["metadata"]["uid"]] = version_of(item)
            while len(self._gone) > 1000:
                self._gone.pop(next(iter(self._gone)))
            known = self._items.get(_key(item))
            if known is not None and known["metadata"]["uid"] == item["metadata"]["uid"]:
                self._remove(_key(item))

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pauses = Pauses()
        while not self._stop.is_set():
            self._alive = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._watch()
                pauses.reset()
            except GoneError:
                self._version = ""
            except Exception as error:
                # Whatever it was: listing anew puts everything right.
                unexpected = not isinstance(error, ApiError | ValueError | KeyError)
                logger.warning("Watch of %s broke, trying again: %s", self.kind, error, exc_info=unexpected)
                self._stop.wait(pauses.next(error))
                self._version = ""

    def _list(self) -> None:
        answer = self._api.list(self.kind, self._namespace, selector=SELECTOR)
        found = {_key(item): item for item in answer.get("items") or []}
        listed_at = int(answer["metadata"]["resourceVersion"])
        with self._lock:
            for key, item in list(self._items.items()):
                # What we made after the list was taken cannot be in it.
                if key not in found and version_of(item) <= listed_at:
                    self._remove(key)
        for item in found.values():
            self.note(item)
        self._version = str(listed_at)
        self.listed.set()

    def _watch(self) -> None:
        events = self._api.watch(
            self.kind, self._namespace, selector=SELECTOR, version=self._version, seconds=WATCH_SECONDS
        )
        for event in events:
            self._alive = time.monotonic()
            item = event["object"]
            if event["type"] in ("ADDED", "MODIFIED"):
                self.note(item)
            elif event["type"] == "DELETED":
                self.note_gone(item)
            self._version = item["metadata"]["resourceVersion"]
            if self._stop.is_set():
                return

    # --- under the lock -----------------------------------------------------------------------------------------------

    def _put(self, item: JsonObject) -> None:
        key = _key(item)
        if key in self._items:
            self._remove(key)
        item["metadata"].pop("managedFields", None)  # half of an object's size, and of no use here
        self._items[key] = item
        self._by_job.setdefault(_job(item), set()).add(key)
        self._marks[_job(item)] = next(self._changes)

    def _remove(self, key: Key) -> None:
        item = self._items.pop(key)
        names = self._by_job.get(_job(item), set())
        names.discard(key)
        self._marks[_job(item)] = next(self._changes)
        if not names:
            self._by_job.pop(_job(item), None)
            self._marks.pop(_job(item), None)


class Watched:
    """Our objects of all kinds that the operator watches, in some namespaces (none named: all)."""

    KINDS = ("pods", "jobs", "services", "configmaps")

    def __init__(self, api: Api, namespaces: Iterable[str] = ()) -> None:
        scopes: list[str | None] = [*namespaces] or [None]
        self._kinds = {
            (kind, namespace): WatchedKind(api, kind, namespace) for kind in self.KINDS for namespace in scopes
        }

    def start(self, *, timeout: float = 60.0) -> None:
        """Begin to watch. Returns once everything was listed: before that, nothing can be said to be absent."""
        for watched in self._kinds.values():
            watched.start()
        for watched in self._kinds.values():
            if not watched.listed.wait(timeout):
                raise ApiError(f"{watched.kind} could not be listed within {timeout:.0f} s: see the warnings above")

    def stop(self) -> None:
        for watched in self._kinds.values():
            watched.stop()

    def problem(self) -> str | None:
        return next((problem for watched in self._kinds.values() if (problem := watched.problem())), None)

    def mark(self, namespace: str, job: str) -> tuple[int, ...]:
        """Another one after each change of any of the job's objects."""
        return tuple(self.kind(kind, namespace).mark(namespace, job) for kind in self.KINDS)

    def kind(self, kind: str, namespace: str) -> WatchedKind:
        return self._kinds.get((kind, namespace)) or self._kinds[(kind, None)]


def _key(item: JsonObject) -> Key:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _job(item: JsonObject) -> Key:
    labels: dict[str, Any] = item["metadata"].get("labels") or {}
    return item["metadata"]["namespace"], str(labels.get(JOB_LABEL, ""))
