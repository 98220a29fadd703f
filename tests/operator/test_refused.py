"""What the API server refuses is tried again with the same generation, counted, told once, and seen to end."""

import itertools
from dataclasses import replace

import msgspec
import pytest

from epochal.control.events import EventReason, events_of
from epochal.control.job import DesiredState, JobSpec, RestartPolicy
from epochal.control.lifecycle import JobPhase
from epochal.control.reconcile import Reconciler, Tick
from epochal.protocol.epochs import next_epoch
from epochal_operator.reporting.conditions import ConditionType, conditions
from epochal_operator.reporting.metrics import OperatorMetrics
from epochal_operator.reporting.status import project
from epochal_operator.reporting.timestamps import timestamp
from tests.operator.test_reconcile import SPEC, assert_exactly_once, record
from tests.operator.world import World

QUOTA = 'pods "job-driver-1" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0'
REFUSED = replace(SPEC, restart_policy=RestartPolicy(), version=1, revision="a", uid="uid")


def stalled(tick: Tick, world: World, spec: JobSpec = REFUSED) -> tuple[str, str, str]:
    found = {condition.type: condition for condition in conditions(spec, tick, world.now)}[ConditionType.STALLED]
    return found.status, found.reason, found.message


def test_one_generation_is_tried_again_after_pauses_that_grow_to_five_minutes() -> None:
    world = World(refuses=QUOTA)
    ticks = [world.ticks(Reconciler(world), REFUSED)]
    reconciler = Reconciler(world)
    ticks += [world.ticks(reconciler, REFUSED) for _ in range(3 * 3600)]
    moments = [moment for moment, _ in world.tries]
    assert {generation for _, generation in world.tries} == {1}
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    for refusals, gap in enumerate(gaps[1:], start=1):
        longest = min(300.0, 0.5 * 2.0 ** (refusals - 1))
        assert longest / 2 <= gap <= longest + 2, f"{gap:.0f} s after {refusals} refusals"
    assert 150 <= gaps[-1] <= 302
    assert len(moments) < 3 * 3600 / 150 + 12
    assert record(world).restarts.total == 0, "nothing was restarted"
    told = [event for tick in ticks for event in events_of(tick)]
    assert [event.reason for event in told] == [EventReason.STARTING, EventReason.FAILED_CREATE], "once, not each try"
    assert told[1].message == QUOTA


def test_the_status_has_the_words_the_tries_and_the_next_one() -> None:
    world = World(refuses=QUOTA)
    reconciler = Reconciler(world)
    tick = world.ticks(reconciler, REFUSED, 30)
    refusal = record(world).refusal
    assert refusal is not None
    status = project(REFUSED, {}, tick, version=1, executors=0, now=world.now)
    assert status["phase"] == "Starting"
    assert status["refused"] == {
        "tries": len(world.tries),
        "since": timestamp(refusal.since),
        "notBefore": timestamp(refusal.not_before),
        "message": QUOTA,
    }
    assert status["message"] == f"{QUOTA}; next try at {timestamp(refusal.not_before)}"
    assert stalled(tick, world) == ("True", "FailedCreate", QUOTA)


def test_while_it_waits_nothing_is_written() -> None:
    world = World(refuses=QUOTA)
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 600)
    written = []
    for _ in range(100):
        before = world.disk
        world.ticks(reconciler, REFUSED)
        written.append(world.disk != before)
    assert sum(written) <= 2, "one try, and what came of it"


def test_the_end_of_it_is_noticed() -> None:
    world = World(refuses=QUOTA)
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 700)
    world.refuses = ""
    ticks = [world.ticks(reconciler, REFUSED) for _ in range(310)]
    assert record(world).phase is JobPhase.RUNNING
    assert list(world.drivers) == [1], "the same generation"
    assert record(world).refusal is None
    assert stalled(ticks[-1], world)[0] == "False"
    assert [event.reason for tick in ticks for event in events_of(tick)][:1] == [EventReason.RESTORED]
    assert_exactly_once(world)
    # The time to begin counts from the try that was taken.
    assert record(world).restarts.total == 0


@pytest.mark.parametrize("edit", [{"version": 2}, {"version": 2, "revision": "b"}], ids=["any edit", "new revision"])
def test_an_edit_is_tried_at_once_with_a_generation_of_its_own(edit: dict[str, object]) -> None:
    """One that was written down before has a configuration that may say something else."""
    world = World(refuses=QUOTA)
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 700)
    world.refuses = ""
    world.ticks(reconciler, replace(REFUSED, **edit), 8)  # type: ignore[arg-type]
    assert record(world).phase is JobPhase.RUNNING
    assert list(world.drivers) == [2]


def test_a_job_that_is_refused_can_be_suspended_and_goes_on_later() -> None:
    world = World(refuses=QUOTA)
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 100)
    tick = world.ticks(reconciler, replace(REFUSED, state=DesiredState.SUSPENDED, version=2), 5)
    assert record(world).phase is JobPhase.STOPPED
    assert record(world).refusal is None
    assert stalled(tick, world)[0] == "False"
    world.refuses = ""
    world.ticks(reconciler, replace(REFUSED, version=3), 6)
    assert record(world).phase is JobPhase.RUNNING
    assert list(world.drivers) == [2]


def test_a_job_that_ran_keeps_its_epochs_while_its_next_driver_is_refused() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 12)
    world.refuses = QUOTA
    world.newest.end(1)
    world.ticks(reconciler, REFUSED, 400)
    assert record(world).checkpoints.generation == 2
    assert record(world).restarts.total == 1
    world.refuses = ""
    world.ticks(reconciler, REFUSED, 310)
    assert record(world).phase is JobPhase.RUNNING
    assert list(world.drivers) == [1, 2]
    assert_exactly_once(world)


def test_output_is_committed_by_one_generation_however_often_it_is_refused() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 8)
    stopping = replace(REFUSED, state=DesiredState.SUSPENDED, version=2)
    world.stuck = {next_epoch(record(world).checkpoints.issued)}
    world.ticks(reconciler, stopping, 3)
    world.newest.end(1)
    world.refuses, world.stuck = QUOTA, set()
    tick = world.ticks(reconciler, stopping, 200)
    assert {generation for _, generation in world.tries} == {2}
    assert 5 < len(world.tries) < 15
    assert stalled(tick, world, stopping) == ("True", "FailedCreate", QUOTA)
    world.refuses = ""
    world.ticks(reconciler, stopping, 310)
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


def test_an_operator_that_died_before_it_started_a_driver_leaves_that_to_the_next() -> None:
    world = World(refuses="the one before ended here")
    world.ticks(Reconciler(world), REFUSED)
    world.refuses = ""
    world.ticks(Reconciler(world), REFUSED, 3)
    assert list(world.drivers) == [1]


def test_a_driver_that_was_seen_and_is_gone_is_not_started_a_second_time() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 1)
    world.newest.silent = True
    world.ticks(reconciler, REFUSED, 2)
    del world.drivers[next(iter(world.drivers))]  # deleted by somebody while it was starting
    tick = world.ticks(reconciler, REFUSED, 1)
    assert tick.step.job.restarts.total == 1, "counted, and after a pause"
    world.ticks(reconciler, REFUSED, 5)
    assert list(world.drivers) == [2]


def test_a_clock_that_is_set_back_does_not_hold_up_the_next_try() -> None:
    world = World(refuses=QUOTA)
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 700)
    world.refuses = ""
    world.now -= 600
    world.ticks(reconciler, REFUSED, 10)
    assert record(world).phase is JobPhase.RUNNING


def test_a_record_of_the_release_before_starts_a_generation_of_its_own() -> None:
    """It does not say with which spec its generation was started."""
    world = World(refuses=QUOTA)
    world.ticks(Reconciler(world), REFUSED)
    assert world.disk is not None
    before = msgspec.json.decode(world.disk)
    for name in ("begun", "refusal", "version"):
        del before[name]
    world.disk, world.refuses = msgspec.json.encode(before), ""
    world.ticks(Reconciler(world), REFUSED, 5)
    assert list(world.drivers) == [2]


def test_a_cleanup_that_is_refused_backs_off_and_is_told_once() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, REFUSED, 4)
    world.refuses = "exceeded quota: jobs"
    ticks = [world.ticks(reconciler, REFUSED) for _ in range(300)]
    told = [event for tick in ticks for event in events_of(tick)]
    assert [event.reason for event in told if event.reason is not EventReason.RESTORED] == [EventReason.CLEANUP_FAILED]
    cleanup = record(world).checkpoints.cleanup
    assert 3 <= cleanup.failures <= 7
    assert cleanup.refused == "exceeded quota: jobs"
    found = {one.type: one for one in conditions(REFUSED, ticks[-1], world.now)}[ConditionType.CLEANUP_RUNNING]
    assert (found.status, found.reason, found.message) == ("False", "FailedCreate", "exceeded quota: jobs")
    assert len(record(world).checkpoints.completed) > 10, "checkpoints go on"
    world.refuses = ""
    world.ticks(reconciler, REFUSED, 700)
    assert record(world).checkpoints.cleanup.failures == 0
    assert record(world).checkpoints.cleanup.refused == ""
    assert_exactly_once(world)


def test_refusals_are_counted() -> None:
    world, metrics = World(refuses=QUOTA), OperatorMetrics(lambda: 0.0)
    reconciler = Reconciler(world)
    for _ in range(30):
        metrics.on_tick(("shop", "job"), world.ticks(reconciler, REFUSED))

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"namespace": "shop", "job": "job", **labels})

    assert value("epochal_refused_total", resource="pods") == len(world.tries) - (record(world).refusal is None)
    assert value("epochal_job_stalled") == 1
    world.refuses = ""
    for _ in range(60):
        metrics.on_tick(("shop", "job"), world.ticks(reconciler, REFUSED))
    assert value("epochal_job_stalled") == 0
    metrics.forget(("shop", "job"))
    assert value("epochal_refused_total", resource="pods") is None
