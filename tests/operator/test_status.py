"""A job's status and conditions: what changes them, and what must not."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from epochal.control.events import MEANING, EventReason, events_of
from epochal.control.job import JobSpec, PipelineSpec
from epochal.control.lifecycle import DriverUp, JobPhase, JobRecord, LifeReason, Restarts, Seen, Step, decide
from epochal.control.reconcile import Tick
from epochal.protocol.control import DriverPhase, DriverStatus
from epochal.protocol.decision import (
    CleanupExists,
    CleanupRecord,
    Complete,
    EpochFailed,
    EpochPublished,
    Fail,
    InFlight,
    InProgress,
    Nothing,
    Reason,
    Record,
    Stop,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal_operator.api import JsonObject
from epochal_operator.reporting.status import KEPT_HISTORY, load_record, project, with_blocked, without_progress
from epochal_operator.reporting.timestamps import parse_timestamp, timestamp

SPEC = JobSpec(namespace="default", name="job", pipeline=PipelineSpec(module="m"))
UP = DriverUp(generation=Generation(1), status=None)
RUNNING = JobRecord(
    checkpoints=Record(
        generation=Generation(1), generation_started=1000.5, completed=(Epoch(1), Epoch(2)), last_checkpoint=1090.0
    ),
    phase=JobPhase.RUNNING,
    restored=True,
    running_since=1001.0,
)
FLIGHT = InFlight(epoch=Epoch(3), generation=Generation(1), started=1095.0, deadline=1695.0, min_epoch=Epoch(1))
FLYING = replace(RUNNING, checkpoints=replace(RUNNING.checkpoints, issued=Epoch(3), in_flight=FLIGHT))


def tick_of(
    job: JobRecord,
    before: JobRecord | None = None,
    *,
    action: Complete | Fail | Nothing | Stop | None = None,
    reason: Reason | LifeReason = Reason.NOT_DUE,
    seen: Seen | None = None,
    message: str = "",
) -> Tick:
    step = Step(action=action or Nothing(), job=job, reason=reason, message=message)
    return Tick(before=before or job, seen=seen or Seen(driver=UP), step=step)


def status_of(tick: Tick, before: JsonObject | None = None, *, now: float = 1100.0, spec: JobSpec = SPEC) -> JsonObject:
    return project(spec, before or {}, tick, version=1, executors=0, now=now)


def stored(status: JsonObject) -> JsonObject:
    """As the API server gives it back."""
    result: JsonObject = json.loads(json.dumps(status))
    return result


def condition(status: JsonObject, kind: str) -> JsonObject:
    found: JsonObject = next(item for item in status["conditions"] if item["type"] == kind)
    return found


@pytest.mark.parametrize("job", [RUNNING, FLYING, JobRecord(checkpoints=RUNNING.checkpoints)])
def test_nothing_changes_while_nothing_happens(job: JobRecord) -> None:
    first = stored(status_of(tick_of(job)))
    for seconds in (1, 7, 29):
        assert status_of(tick_of(job), first, now=1100.0 + seconds) == first


def test_the_record_comes_back_as_it_was() -> None:
    assert load_record(stored(status_of(tick_of(FLYING)))) == FLYING
    assert load_record({}) is None
    with pytest.raises(ValueError, match="cannot be read"):
        load_record({"record": {"phase": "Nonsense"}})


def test_a_completed_epoch_is_in_the_history_with_what_it_wrote() -> None:
    record = replace(FLYING.checkpoints, in_flight=None, completed=(Epoch(1), Epoch(2), Epoch(3)))
    done = replace(FLYING, checkpoints=record)
    seen = Seen(driver=UP, fate=EpochPublished(bytes=5000))
    status = status_of(tick_of(done, FLYING, action=Complete(Epoch(3), 5.0, 5000), seen=seen))
    assert status["lastCheckpoint"] == status["history"][0]
    assert status["lastCheckpoint"] == {
        "epoch": 3,
        "generation": 1,
        "state": "Ready",
        "finished": "1970-01-01T00:18:20Z",
        "duration": "5.0s",
        "bytes": 5000,
    }
    assert status["epoch"] == 3


def test_a_failed_epoch_is_in_the_history_with_why_and_the_last_one_stays() -> None:
    failed = replace(FLYING, checkpoints=replace(FLYING.checkpoints, in_flight=None, failures_in_a_row=1))
    seen = Seen(driver=UP, fate=EpochFailed("no room"))
    tick = tick_of(
        failed,
        FLYING,
        action=Fail(Epoch(3)),
        reason=Reason.CHECKPOINT_FAILED,
        seen=seen,
        message="epoch 3 failed: no room",
    )
    status = status_of(tick, {"lastCheckpoint": {"epoch": 2}})
    assert status["lastCheckpoint"] == {"epoch": 2}
    assert (status["history"][0]["state"], status["history"][0]["message"]) == ("Failed", "epoch 3 failed: no room")
    assert [event.reason for event in events_of(tick)] == [EventReason.CHECKPOINT_FAILED]


def test_the_history_is_short() -> None:
    record = replace(FLYING.checkpoints, in_flight=None, completed=(Epoch(3),))
    old = [{"epoch": number, "state": "Ready"} for number in range(30, 4, -1)]
    status = status_of(tick_of(replace(FLYING, checkpoints=record), FLYING), {"history": old})
    assert len(status["history"]) == KEPT_HISTORY
    assert status["history"][0]["epoch"] == 3


def test_progress_within_a_checkpoint_is_told_apart_from_everything_else() -> None:
    one = status_of(tick_of(FLYING, seen=Seen(driver=UP, fate=InProgress(operators_done=1, operators_total=3))))
    two = status_of(tick_of(FLYING, seen=Seen(driver=UP, fate=InProgress(operators_done=2, operators_total=3))))
    assert one["inFlight"]["operatorsDone"] == 1
    assert one != two
    assert without_progress(one) == without_progress(two)
    assert without_progress(one) != without_progress(status_of(tick_of(RUNNING)))


@pytest.mark.parametrize(
    ("job", "status", "reason"),
    [
        (RUNNING, "True", "Running"),
        (replace(RUNNING, silent_since=1099.0), "Unknown", "DriverUnreachable"),
        (replace(RUNNING, phase=JobPhase.STOPPING), "False", "Stopping"),
        (replace(RUNNING, phase=JobPhase.FAILED, message="why"), "False", "Failed"),
        (replace(RUNNING, phase=JobPhase.RESTARTING, restarts=Restarts(message="why")), "False", "Restarting"),
    ],
)
def test_ready(job: JobRecord, status: str, reason: str) -> None:
    found = condition(status_of(tick_of(job)), "Ready")
    assert (found["status"], found["reason"], found["observedGeneration"]) == (status, reason, 1)


def test_fresh_while_the_last_checkpoint_is_not_too_old() -> None:
    assert condition(status_of(tick_of(RUNNING), now=1149.0), "CheckpointFresh")["status"] == "True"
    stale = condition(status_of(tick_of(RUNNING), now=1151.0), "CheckpointFresh")
    assert (stale["status"], stale["reason"]) == ("False", "TooOld")
    stopped = replace(RUNNING, phase=JobPhase.STOPPED)
    assert condition(status_of(tick_of(stopped), now=9999.0), "CheckpointFresh")["status"] == "Unknown"


def test_stalled_if_only_somebody_can_help() -> None:
    failed = status_of(tick_of(replace(RUNNING, phase=JobPhase.FAILED, message="broken")))
    assert condition(failed, "Stalled")["message"] == "broken"
    refused = status_of(tick_of(RUNNING), spec=replace(SPEC, problem="no image"))
    assert condition(refused, "Stalled")["reason"] == "SpecNotAccepted"
    assert condition(refused, "Ready")["status"] == "True"
    blocked = with_blocked(failed, reason="StoreUnavailable", message="gone", version=2, now=1200.0)
    assert condition(blocked, "Stalled")["message"] == "gone"
    assert condition(blocked, "Ready") == condition(failed, "Ready")


def test_a_transition_moves_the_time_and_nothing_else_does() -> None:
    first = status_of(tick_of(RUNNING), now=1100.0)
    again = status_of(tick_of(replace(RUNNING, phase=JobPhase.STOPPING)), first, now=1110.0)
    back = status_of(tick_of(RUNNING), again, now=1120.0)
    times = [condition(status, "Ready")["lastTransitionTime"] for status in (first, again, back)]
    assert times == [timestamp(1100.0), timestamp(1110.0), timestamp(1120.0)]
    assert condition(back, "CheckpointFresh")["lastTransitionTime"] == timestamp(1100.0)


def test_a_running_cleanup_is_shown() -> None:
    job = replace(RUNNING, checkpoints=replace(RUNNING.checkpoints, cleanup=CleanupRecord(started=1.0, failures=2)))
    status = status_of(tick_of(job, seen=Seen(driver=UP, cleanup=CleanupExists())))
    assert condition(status, "CleanupRunning")["status"] == "True"
    assert (status["cleanup"]["running"], status["cleanup"]["failures"]) == (True, 2)


def test_moments_go_there_and_back() -> None:
    assert parse_timestamp(timestamp(1_794_877_290.0)) == 1_794_877_290.0


def test_every_reason_of_an_event_has_a_meaning() -> None:
    assert set(MEANING) == set(EventReason)


def test_rows_that_begin_to_come_too_late_are_an_event_and_stay_in_the_status() -> None:
    status = DriverStatus(
        namespace="default", job="job", generation=Generation(1), phase=DriverPhase.RUNNING, started=1
    )

    def told(job: JobRecord, rows: int, **more: Any) -> tuple[JobRecord, list[EventReason]]:
        driver = DriverUp(generation=Generation(1), status=msgspec.structs.replace(status, late_rows=rows, **more))
        job = replace(RUNNING, late=job.late)
        step = decide(SPEC, job, Seen(driver=driver), 1091.0)
        return step.job, [event.reason for event in events_of(Tick(before=job, seen=Seen(driver=driver), step=step))]

    job, events = told(RUNNING, 0)
    assert (job.late.total, EventReason.LATE_ROWS in events) == (0, False)
    job, events = told(job, 5)
    assert (job.late.total, EventReason.LATE_ROWS in events) == (5, True)
    # Each change is a write: the next one is when there are twice as many, or at the end.
    job, events = told(job, 9)
    assert (job.late.total, EventReason.LATE_ROWS in events) == (5, False)
    job, events = told(job, 12)
    assert (job.late.total, EventReason.LATE_ROWS in events) == (12, False)
    job, events = told(job, 13, finished=True)
    assert (status_of(tick_of(job))["lateRows"], EventReason.LATE_ROWS in events) == (13, False)
    # A new driver counts from nothing.
    job, _ = told(replace(job, late=replace(job.late, of_driver=0)), 20)
    assert job.late.total == 33
