"""What a cluster tells of one job: the StreamingJob, its pods, its events, and how its checkpoints went."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from epochal.cli.cluster.client import ClusterError, ForbiddenError, JsonObject, KubeContext, MissingObjectError
from epochal.cli.errors import UserError
from epochal.cli.output import seconds_of_stamp
from epochal.control.labels import GENERATION_LABEL, JOB_LABEL, PLURAL, ROLE_LABEL, Role
from epochal.protocol.control import CheckpointReport, CheckpointState
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.store import Store, StoreOptions, open_store

JOB_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
POLL = 1.0
SETTLE = 30.0
"""Seconds in which an operator that runs takes up what was asked for."""


@dataclass(frozen=True, slots=True)
class ClusterJob:
    cluster: KubeContext
    namespace: str
    name: str

    def body(self) -> JsonObject:
        try:
            return self.cluster.get(PLURAL, self.namespace, self.name)
        except MissingObjectError as error:
            if "does not know StreamingJobs" in error.message:
                raise
            raise UserError(self._not_there()) from error

    def _not_there(self) -> str:
        try:
            names = [item["metadata"]["name"] for item in self.cluster.list(PLURAL, self.namespace)]
        except ForbiddenError:
            names = []
        there = f"it has {', '.join(sorted(names)[:10])}" if names else "it has none; -n names another namespace"
        return f"there is no StreamingJob {self.name} in namespace {self.namespace}: {there}"

    def status(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.body().get("status") or {}
        return found

    def patch(self, body: Mapping[str, Any]) -> JsonObject:
        try:
            return self.cluster.patch(PLURAL, self.namespace, self.name, body)
        except MissingObjectError as error:
            raise UserError(self._not_there()) from error

    def pods(self, role: Role | None = None) -> list[JsonObject]:
        """The job's pods, newest generation first."""
        selector = f"{JOB_LABEL}={self.name}" + (f",{ROLE_LABEL}={role}" if role else "")
        found = self.cluster.list("pods", self.namespace, labelSelector=selector)
        return sorted(found, key=lambda pod: (generation_of(pod), pod["metadata"]["name"]), reverse=True)

    def events(self) -> list[JsonObject]:
        """Of the job and of its pods, oldest first."""
        found = self.cluster.list("events", self.namespace)
        mine = [event for event in found if self._is_mine(event.get("involvedObject") or {})]
        return sorted(mine, key=event_time)

    def _is_mine(self, about: Mapping[str, Any]) -> bool:
        name = str(about.get("name", ""))
        if about.get("kind") == "StreamingJob":
            return name == self.name
        ours = re.fullmatch(rf"{re.escape(self.name)}-(driver-\d+|\d+-exec-\d+|cleanup-\d+(-\w+)?)", name)
        return about.get("kind") in ("Pod", "Job") and ours is not None

    def store(self, options: StoreOptions) -> Store:
        """The job's store, with the credentials of the person who asks."""
        storage = (self.body()["spec"].get("checkpoint") or {}).get("storage")
        if not storage:
            raise UserError(f"job {self.name} names no checkpoint.storage: it has no checkpoints")
        given = StoreOptions(
            endpoint=options.endpoint or storage.get("endpoint"), region=options.region or storage.get("region")
        )
        return open_store(storage["uri"], given, create=False)

    def wait_for(
        self,
        done: Callable[[Mapping[str, Any]], bool],
        what: str,
        seconds: float,
        begun: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    ) -> Mapping[str, Any]:
        """Until the operator says so. That a job has failed counts once what was asked for has ``begun``, or when the
        operator has had time for it. An API server that is away for a while is waited for."""
        start = time.monotonic()
        while True:
            waited, trouble = time.monotonic() - start, ""
            status: Mapping[str, Any] = {}
            try:
                body = self.body()
            except ClusterError as error:
                if not error.is_outage:
                    raise
                trouble = error.message
            else:
                status = body.get("status") or {}
                current = status.get("observedGeneration") == body["metadata"].get("generation")
                if current and done(status):
                    return status
                if current and status.get("phase") == "Failed" and (begun(status) or waited > SETTLE):
                    raise UserError(f"job {self.name} has failed: {status.get('message', '')}")
            if waited > seconds:
                phase, why = status.get("phase", "Pending"), status.get("message") or "see `epochal describe`"
                told = trouble or f"it is {phase}: {why}"
                raise UserError(f"job {self.name} is not {what} after {seconds:.0f} s, {told}")
            time.sleep(POLL)


def generation_of(pod: Mapping[str, Any]) -> int:
    label = str((pod["metadata"].get("labels") or {}).get(GENERATION_LABEL, ""))
    return int(label) if label.isdigit() else 0


def event_time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next(filter(None, times), event["metadata"].get("creationTimestamp", "")))


def condition(body: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = (body.get("status") or {}).get("conditions") or []
    found: Mapping[str, Any] = next((one for one in conditions if one.get("type") == kind), {})
    return found


def reports_of(status: Mapping[str, Any]) -> list[CheckpointReport]:
    """The checkpoints that the status remembers, oldest first: without their operators, which only the driver knows."""
    return [_report(entry) for entry in reversed(status.get("history") or [])]


def _report(entry: Mapping[str, Any]) -> CheckpointReport:
    finished = int(seconds_of_stamp(entry["finished"]) * 1_000_000)
    return CheckpointReport(
        epoch=Epoch(entry["epoch"]),
        generation=Generation(entry.get("generation", 1)),
        then_stop=False,
        state=CheckpointState(entry.get("state", "Ready")),
        started=finished - int(_seconds(entry.get("duration", "")) * 1_000_000),
        finished=finished,
        message=entry.get("message", ""),
        bytes=entry.get("bytes", 0),
    )


def _seconds(duration: str) -> float:
    """What :func:`epochal.control.durations.format_duration` wrote."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([hms])", duration))
