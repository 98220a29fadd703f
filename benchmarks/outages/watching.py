"""Looking at all jobs of a namespace once a second, without touching them."""

import threading
import time
from typing import Any, cast

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from benchmarks.outages.figures import Seen
from epochal.control.schema import GROUP, VERSION
from epochal_operator.names import PLURAL
from examples.cluster.live_job import Cluster

SILENT = "(API server away)"
"""The phase while nobody can say what the phase is."""

WELL = {"Ready": "True", "Stalled": "False", "CheckpointFresh": "True"}
"""Conditions that tell of outages, and what they are when all is well."""


class Watcher:
    """Keeps what changes, job by job."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._seen: dict[str, list[Seen]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def of(self, job: str) -> list[Seen]:
        return list(self._seen.get(job, ()))

    def now(self, job: str) -> Seen:
        return self._seen[job][-1]

    def _watch(self) -> None:
        while not self._ended.wait(1):
            try:
                found = self._cluster.jobs.list_namespaced_custom_object(
                    GROUP, VERSION, self._namespace, PLURAL, _request_timeout=(2, 5)
                )
            except (ApiException, HTTPError, OSError):
                for name, seen in self._seen.items():
                    last = seen[-1]
                    silent = Seen(at=time.time(), phase=SILENT, generation=last.generation, restarts=last.restarts)
                    self._note(name, silent)
                continue
            for one in cast(dict[str, Any], found)["items"]:
                self._note(one["metadata"]["name"], read(one.get("status") or {}, time.time()))

    def _note(self, job: str, seen: Seen) -> None:
        known = self._seen.setdefault(job, [])
        if not known or _content(known[-1]) != _content(seen):
            known.append(seen)


def _content(seen: Seen) -> tuple[Any, ...]:
    return seen.phase, seen.message, seen.generation, seen.restarts, seen.conditions


def read(status: dict[str, Any], at: float) -> Seen:
    unwell = tuple(
        f"{one['type']}={one['status']} ({one.get('reason', '')}): {one.get('message', '')}"
        for one in status.get("conditions", [])
        if one["status"] != WELL.get(one["type"], one["status"])
    )
    return Seen(
        at=at,
        phase=status.get("phase", "(none)"),
        message=status.get("message", ""),
        generation=int(status.get("generation", 0)),
        restarts=int(status.get("restarts", {}).get("total", 0)),
        conditions=unwell,
    )
