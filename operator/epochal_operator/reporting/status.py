"""A job's status: what people see, and the record that the next round begins with. Pure.

The record is in ``status.record``, exactly as the loop wrote it down; everything else is made from it and from what was
seen. Nothing here changes while nothing happens, because each change is a write.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from epochal.control.durations import format_duration
from epochal.control.flow import flow_of
from epochal.control.job import JobSpec
from epochal.control.lifecycle import DriverUp, JobPhase, JobRecord
from epochal.control.reconcile import Tick
from epochal.protocol.decision import EpochPublished, InFlight, InProgress, Seconds
from epochal_operator.api import JsonObject
from epochal_operator.reporting.conditions import blocked, conditions, laid_over, phase_message
from epochal_operator.reporting.timestamps import timestamp

KEPT_HISTORY = 10
LONGEST_MESSAGE = 1024
LONGEST_GRAPH = 500
"""Edges of a job's graph that are shown."""


def load_record(status: Mapping[str, Any]) -> JobRecord | None:
    """The record in a status; None if there is none. ValueError if it is not ours: somebody has edited it."""
    if not status.get("record"):
        return None
    try:
        return msgspec.convert(status["record"], JobRecord)
    except msgspec.ValidationError as error:
        raise ValueError(f"status.record cannot be read ({error})") from error


def project(
    spec: JobSpec, before: Mapping[str, Any], tick: Tick, *, version: int, executors: int, now: Seconds
) -> JsonObject:
    """The status after a tick."""
    job = tick.step.job
    record = job.checkpoints
    ended = ended_checkpoint(tick, now)
    history: list[JsonObject] = list(before.get("history") or [])
    last = before.get("lastCheckpoint")
    if ended is not None:
        history = [ended, *(entry for entry in history if entry["epoch"] != ended["epoch"])][:KEPT_HISTORY]
        last = ended if ended["state"] == "Ready" else last
    status: JsonObject = {
        "observedGeneration": version,
        "phase": str(job.phase),
        "message": phase_message(tick)[:LONGEST_MESSAGE],
        "generation": record.generation,
        "epoch": record.newest_completed,
        "minEpoch": record.min_epoch,
        "executors": executors,
        "history": history,
        "restarts": _restarts(job),
        "refused": _refused(job),
        "lateRows": job.late.total,
        "cleanup": _cleanup(job),
        "record": msgspec.json.decode(msgspec.json.encode(job)),
        "conditions": laid_over(before.get("conditions") or [], conditions(spec, tick, now), version=version, now=now),
    }
    if last:
        status["lastCheckpoint"] = last
    status |= _flow(job, before, tick)
    if record.in_flight is not None:
        status["inFlight"] = _in_flight(record.in_flight, tick)
    return status


def with_blocked(before: Mapping[str, Any], *, reason: str, message: str, version: int, now: Seconds) -> JsonObject:
    """The status of a job whose round could not be planned: as it was, and why."""
    status = dict(before)
    status.setdefault("phase", str(JobPhase.PENDING))
    status["conditions"] = laid_over(
        before.get("conditions") or [], blocked(reason, message[:LONGEST_MESSAGE]), version=version, now=now
    )
    return status


_FLOW = ("lag", "rowsPerSecond", "graph")


def _flow(job: JobRecord, before: Mapping[str, Any], tick: Tick) -> JsonObject:
    """How rows flow, as the driver says; as before while it is not asked. The graph stays when the driver has gone."""
    driver = tick.seen.driver
    told = driver.status if isinstance(driver, DriverUp) else None
    graph = before.get("graph")
    if told is not None and told.edges:
        graph = [{"from": begin, "to": end} for begin, end in told.edges[:LONGEST_GRAPH]]
    found: JsonObject = {"graph": graph} if graph else {}
    if job.phase is not JobPhase.RUNNING:
        return found
    if told is None:
        return found | {name: before[name] for name in ("lag", "rowsPerSecond") if name in before}
    flow = flow_of(told)
    found["rowsPerSecond"] = round(flow.rows_per_second)
    if flow.lag is not None:
        found["lag"] = format_duration(flow.lag)
    return found


def settled(status: Mapping[str, Any], before: Mapping[str, Any]) -> JsonObject:
    """The status with what flows as it was before: that changes with every look, and is no reason to write. It goes
    along with what is: at least twice with each checkpoint."""
    kept = {name: value for name, value in status.items() if name not in _FLOW}
    return kept | {name: before[name] for name in _FLOW if name in before}


def without_progress(status: Mapping[str, Any]) -> JsonObject:
    """The status but for what changes within a checkpoint: a difference there can wait."""
    flight = {name: value for name, value in (status.get("inFlight") or {}).items() if not name.startswith("operators")}
    return {**status, "inFlight": flight}


def ended_checkpoint(tick: Tick, now: Seconds) -> JsonObject | None:
    """The checkpoint that ended in this tick, published or not."""
    flight = tick.before.checkpoints.in_flight if tick.before else None
    after = tick.step.job.checkpoints
    if flight is None or (after.in_flight is not None and after.in_flight.epoch == flight.epoch):
        return None
    published = flight.epoch in after.completed
    entry: JsonObject = {
        "epoch": flight.epoch,
        "generation": flight.generation,
        "state": "Ready" if published else "Failed",
        "finished": timestamp(now),
        "duration": format_duration(max(0.0, now - flight.started)),
    }
    if published:
        entry["bytes"] = tick.seen.fate.bytes if isinstance(tick.seen.fate, EpochPublished) else 0
    else:
        entry["message"] = tick.step.message[:LONGEST_MESSAGE]
    return entry


def _in_flight(flight: InFlight, tick: Tick) -> JsonObject:
    entry: JsonObject = {
        "epoch": flight.epoch,
        "generation": flight.generation,
        "started": timestamp(flight.started),
        "deadline": timestamp(flight.deadline),
        "thenStop": flight.then_stop,
    }
    fate = tick.seen.fate
    if isinstance(fate, InProgress) and fate.operators_total:
        entry |= {"operatorsDone": fate.operators_done, "operatorsTotal": fate.operators_total}
    return entry


def _restarts(job: JobRecord) -> JsonObject:
    restarts = job.restarts
    entry: JsonObject = {"inARow": restarts.in_a_row, "total": restarts.total}
    if job.phase is JobPhase.RESTARTING and restarts.not_before:
        entry["notBefore"] = timestamp(restarts.not_before)
    if restarts.message:
        entry["message"] = restarts.message[:LONGEST_MESSAGE]
    return entry


def _refused(job: JobRecord) -> JsonObject:
    refusal = job.refusal
    if refusal is None:
        return {"tries": 0}
    return {
        "tries": refusal.tries,
        "since": timestamp(refusal.since),
        "notBefore": timestamp(refusal.not_before),
        "message": refusal.message[:LONGEST_MESSAGE],
    }


def _cleanup(job: JobRecord) -> JsonObject:
    cleanup = job.checkpoints.cleanup
    entry: JsonObject = {"running": cleanup.started is not None, "failures": cleanup.failures}
    if cleanup.failures:
        entry["notBefore"] = timestamp(cleanup.not_before)
    return entry
