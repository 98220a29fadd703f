"""Which nodes are being emptied, from a watch of all nodes.

`kubectl drain`, cluster autoscalers and Karpenter first mark a node, then evict its pods. A PodDisruptionBudget lets
them wait for a driver's last checkpoint, and a refused eviction leaves no trace: the mark is all that there is to see.

Nodes belong to no namespace. An operator that may not list them (`watchNamespaces`) goes without, and makes no
PodDisruptionBudgets: nobody would notice that a drain waits for one.
"""

import logging
import threading
import time
from http import HTTPStatus
from typing import Any

from epochal.protocol.decision import Seconds
from epochal_operator.api import Api, ApiError, GoneError, JsonObject
from epochal_operator.backoff import Pauses
from epochal_operator.kubernetes.watch_cache import LONGEST_SILENCE, WATCH_SECONDS
from epochal_operator.process.vital_threads import vital_thread

logger = logging.getLogger(__name__)

CORDONED = "node.kubernetes.io/unschedulable"
DRAIN_TAINTS = (
    CORDONED,
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
)
"""Of nodes whose pods are to go."""

NOT_ALLOWED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
ASK_AGAIN: Seconds = 300.0
"""How often an operator that may not see nodes looks whether it may by now."""


class Nodes:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._draining: dict[str, frozenset[str]] = {}
        self._version = ""
        self.known = threading.Event()
        """Set while this operator sees nodes."""
        self.changes = 0
        """Another number after each change of what is known here."""
        self._asked = threading.Event()
        self._alive = time.monotonic()
        self._resting = False
        self._stop = threading.Event()
        self._thread = vital_thread("watch-nodes", self._run, may_end=self._stop.is_set)

    def start(self, *, timeout: float = 60.0) -> None:
        """Begin to watch. Returns once it is clear whether nodes can be seen."""
        self._thread.start()
        self._asked.wait(timeout)

    def stop(self) -> None:
        self._stop.set()

    def problem(self) -> str | None:
        """For the liveness probe."""
        if not self._thread.is_alive():
            return "the thread that watches nodes is dead"
        silent = time.monotonic() - self._alive
        limit = LONGEST_SILENCE + (ASK_AGAIN if self._resting else 0.0)
        return f"the watch of nodes has been silent for {silent:.0f} s" if silent > limit else None

    def drains(self, pod: JsonObject) -> str:
        """Why the pod has to leave its node, if it has to. What tolerates the mark may stay: it could come back to
        this very node."""
        node = str(pod["spec"].get("nodeName") or "")
        with self._lock:
            marks = self._draining.get(node, frozenset())
        for mark in sorted(marks):
            if not _tolerates(pod, mark):
                return f"its node {node} is " + ("cordoned" if mark == CORDONED else f"being emptied ({mark})")
        return ""

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
                self._version = ""
                code = error.code if isinstance(error, ApiError) else None
                self._resting = code in NOT_ALLOWED
                if self._resting:
                    self._refused(error)
                    self._stop.wait(ASK_AGAIN)
                else:
                    logger.warning("Watch of nodes broke, trying again: %s", error)
                    self._stop.wait(pauses.next(error))

    def _refused(self, error: Exception) -> None:
        with self._lock:
            self._draining.clear()
            self.changes += 1
        if self.known.is_set() or not self._asked.is_set():
            logger.warning(
                "Jobs cannot be moved before their node is drained, and have no PodDisruptionBudget: %s", error
            )
        self.known.clear()
        self._asked.set()

    def _list(self) -> None:
        answer = self._api.list("nodes", None)
        with self._lock:
            self._draining = {
                node["metadata"]["name"]: marks for node in answer.get("items") or [] if (marks := _marks(node))
            }
            self.changes += 1
        self._version = str(answer["metadata"]["resourceVersion"])
        self.known.set()
        self._asked.set()

    def _watch(self) -> None:
        for event in self._api.watch("nodes", None, selector="", version=self._version, seconds=WATCH_SECONDS):
            self._alive = time.monotonic()
            node = event["object"]
            self._version = node["metadata"]["resourceVersion"]
            if self._stop.is_set():
                return
            if event["type"] != "BOOKMARK":
                self._note(node["metadata"]["name"], frozenset() if event["type"] == "DELETED" else _marks(node))

    def _note(self, name: str, marks: frozenset[str]) -> None:
        with self._lock:
            if self._draining.get(name, frozenset()) == marks:
                return
            self._draining[name] = marks
            if not marks:
                del self._draining[name]
            self.changes += 1


def _marks(node: JsonObject) -> frozenset[str]:
    spec: JsonObject = node.get("spec") or {}
    taints = {str(taint.get("key")) for taint in spec.get("taints") or []}
    # The taint comes a moment after the field that `kubectl cordon` sets.
    cordoned = {CORDONED} if spec.get("unschedulable") else set()
    return frozenset((taints | cordoned).intersection(DRAIN_TAINTS))


def _tolerates(pod: JsonObject, key: str) -> bool:
    found: list[dict[str, Any]] = pod["spec"].get("tolerations") or []
    return any(one.get("key", key) == key and one.get("effect") in (None, "", "NoSchedule") for one in found)
