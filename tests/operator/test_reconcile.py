"""The loop on a world in memory: what a job lives through, and that nothing is lost or doubled wherever it dies."""

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from epochal.control.driver_client import DriverUnreachable, DriverWithoutTls
from epochal.control.events import EventReason, events_of
from epochal.control.job import DesiredState, JobSpec, OnCommittedOutput, PipelineSpec, RestartPolicy, RestoreSpec
from epochal.control.lifecycle import JobPhase, JobRecord, resumed
from epochal.control.reconcile import Reconciler, Tick, rebuild
from epochal.protocol.control import (
    EXIT_FAILED,
    EXIT_MISCONFIGURED,
    EXIT_NOTHING_TO_RESTORE,
    EXIT_REFUSED,
    EXIT_WOULD_REPEAT,
)
from epochal.protocol.decision import CheckpointSpec
from epochal.protocol.documents import GenerationRecord, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.resolve import list_epochs
from epochal.protocol.savepoints import Pinned, pin
from epochal_operator.reporting.conditions import ConditionType, conditions
from epochal_operator.reporting.status import project
from epochal_operator.reporting.timestamps import timestamp
from tests.operator.world import Crash, World

SPEC = JobSpec(
    namespace="default",
    name="job",
    pipeline=PipelineSpec(file="x.py"),
    checkpoint=CheckpointSpec(interval=2, timeout=10, keep=2, every=1),
    restart_policy=RestartPolicy(max_restarts=5, backoff=1, max_backoff=4, reset_after=20),
    start_timeout=30,
    unreachable_timeout=15,
)
SUSPENDED = replace(SPEC, state=DesiredState.SUSPENDED)
AT_REST = (JobPhase.STOPPED, JobPhase.FINISHED)


def record(world: World) -> JobRecord:
    job = world.load()
    assert job is not None
    return job


def assert_exactly_once(world: World) -> None:
    end = 0
    for begin, until in world.stretches():
        assert begin == end, f"lost or doubled at {begin}: {world.stretches()}"
        end = until
    if record(world).phase in AT_REST:
        assert end == world.position(), f"the newest epoch is at {world.position()}, and {end} rows came out"
    epochs = [epoch for epoch, _ in world.posted]
    assert len(epochs) == len(set(epochs)), f"a number was given out twice: {world.posted}"


def test_a_job_starts_checkpoints_and_stops_with_a_last_one() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 20)
    assert record(world).phase is JobPhase.RUNNING
    assert len(record(world).checkpoints.completed) >= 2
    world.ticks(reconciler, SUSPENDED, 8)
    job = record(world)
    assert job.phase is JobPhase.STOPPED
    assert not world.newest.alive
    assert world.posted[-1][0] == job.checkpoints.newest_completed
    assert_exactly_once(world)


def test_a_stopped_job_goes_on_when_it_is_asked_to() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    world.ticks(reconciler, SUSPENDED, 8)
    stopped_at = record(world).checkpoints.newest_completed
    world.ticks(reconciler, SPEC, 10)
    assert record(world).phase is JobPhase.RUNNING
    assert world.newest.generation == 2
    assert world.newest.restored == stopped_at
    assert_exactly_once(world)


def test_a_stop_that_is_taken_back_in_time_changes_nothing() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 4)
    world.newest.silent = True  # so that no barrier can be sent
    world.ticks(reconciler, SUSPENDED, 2)
    world.newest.silent = False
    world.ticks(reconciler, SPEC, 8)
    assert record(world).phase is JobPhase.RUNNING
    assert world.newest.generation == 1


def test_a_job_whose_sources_have_ended_finishes() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 5)
    world.newest.finished = True
    world.ticks(reconciler, SPEC, 6)
    assert record(world).phase is JobPhase.FINISHED
    world.ticks(reconciler, SPEC, 5)
    assert record(world).phase is JobPhase.FINISHED, "a finished job is not started again by itself"
    world.store(resumed(record(world)))
    world.ticks(reconciler, SPEC, 5)
    assert record(world).phase is JobPhase.RUNNING


def test_a_dead_driver_is_replaced_after_a_pause_that_doubles() -> None:
    world = World(exit_at_start=EXIT_FAILED)
    reconciler = Reconciler(world)
    pauses = []
    for _ in range(200):
        before = len(world.drivers)
        tick = world.ticks(reconciler, SPEC, 1, every=0.25)
        if len(world.drivers) > before:
            pauses.append(world.now)
        if tick.step.job.phase is JobPhase.FAILED:
            break
    gaps = [later - earlier for earlier, later in itertools.pairwise(pauses)]
    for gap, longest in zip(gaps, [1, 2, 4, 4, 4], strict=True):
        assert longest / 2 <= gap <= longest + 0.5
    assert record(world).phase is JobPhase.FAILED
    assert "given up after 5 restarts" in record(world).message


def test_by_default_a_driver_is_restarted_as_often_as_it_takes() -> None:
    policy = RestartPolicy()
    assert policy.max_restarts is None
    world = World(exit_at_start=EXIT_FAILED)
    reconciler = Reconciler(world)
    spec = replace(SPEC, restart_policy=policy)
    world.ticks(reconciler, spec, 3 * 360, every=10.0)
    job = record(world)
    assert job.phase in (JobPhase.RESTARTING, JobPhase.STARTING)
    assert 3 * 3600 / 310 < job.restarts.total < 3 * 3600 / 150 + 12
    world.exit_at_start = None
    world.ticks(reconciler, spec, 40, every=10.0)
    assert record(world).phase is JobPhase.RUNNING
    assert_exactly_once(world)


@pytest.mark.parametrize("restarts", [1, 2, 5, 10, 11, 100, 1_000_000])
def test_a_pause_grows_to_five_minutes_and_differs_between_jobs(restarts: int) -> None:
    policy = RestartPolicy()
    longest = min(300.0, 0.5 * 2.0 ** min(restarts - 1, 30))
    pauses = [policy.pause(restarts, seed=f"job-{number}/{restarts}") for number in range(500)]
    assert all(longest / 2 <= pause <= longest for pause in pauses)
    assert min(pauses) < longest * 0.51
    assert max(pauses) > longest * 0.99
    assert policy.pause(restarts, seed="a") == policy.pause(restarts, seed="a"), "a decision made again is the same"


def test_a_healthy_time_resets_the_count_of_restarts() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 5)
    world.newest.end(EXIT_FAILED)
    world.ticks(reconciler, SPEC, 6)
    assert record(world).restarts.in_a_row == 1
    world.ticks(reconciler, SPEC, 25)
    assert record(world).restarts.in_a_row == 0
    assert record(world).restarts.total == 1


@pytest.mark.parametrize("code", [EXIT_MISCONFIGURED, EXIT_NOTHING_TO_RESTORE])
def test_what_only_an_edit_mends_is_not_retried_by_a_revision_that_never_ran(code: int) -> None:
    world = World(exit_at_start=code)
    world.ticks(Reconciler(world), SPEC, 20)
    assert record(world).phase is JobPhase.FAILED
    assert record(world).message == "said so"
    assert len(world.drivers) == 1


UNLIMITED = replace(SPEC, restart_policy=RestartPolicy(), version=1, revision="a")


def stalled(tick: Tick, world: World, spec: JobSpec = UNLIMITED) -> tuple[str, str, str]:
    found = {condition.type: condition for condition in conditions(spec, tick, world.now)}[ConditionType.STALLED]
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (EXIT_MISCONFIGURED, "Misconfigured"),
        (EXIT_NOTHING_TO_RESTORE, "NothingToRestore"),
        (EXIT_REFUSED, "Refused"),
    ],
)
def test_a_revision_that_has_run_is_tried_again_whatever_ends_its_driver(code: int, reason: str) -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, UNLIMITED, 5)
    assert record(world).phase is JobPhase.RUNNING
    world.exit_at_start = code
    world.newest.end(code)
    ticks = [world.ticks(reconciler, UNLIMITED, 1, every=4.0) for _ in range(300)]
    assert record(world).phase is not JobPhase.FAILED
    assert 6 < record(world).restarts.total < 20
    told = [event for tick in ticks for event in events_of(tick)]
    assert [event.message for event in told if event.reason is EventReason.STALLED] == [
        f"the driver of generation 1 ended with code {code}: said so"
    ], "once, and with its words"
    assert not any(event.reason is EventReason.FAILED for event in told)
    status, why, message = stalled(ticks[-1], world)
    assert (status, why) == ("True", reason)
    assert message.endswith(f"ended with code {code}: said so")
    assert all(stalled(tick, world)[0] == "True" for tick in ticks[3:]), "also while the next try is on its way"
    ready = {one.type: one for one in conditions(UNLIMITED, ticks[-1], world.now)}[ConditionType.READY]
    if record(world).phase is JobPhase.RESTARTING:
        assert ready.message.endswith(f"next try at {timestamp(record(world).restarts.not_before)}")
    world.exit_at_start = None
    tick = world.ticks(reconciler, UNLIMITED, 80, every=4.0)
    assert record(world).phase is JobPhase.RUNNING
    assert stalled(tick, world)[0] == "False"
    assert_exactly_once(world)


def test_a_first_start_that_is_refused_from_outside_goes_on_by_itself() -> None:
    """A missing table, a wrong password: mended where they are, without an edit of the job."""
    world = World(exit_at_start=EXIT_REFUSED)
    reconciler = Reconciler(world)
    tick = world.ticks(reconciler, UNLIMITED, 60)
    assert stalled(tick, world)[:2] == ("True", "Refused")
    world.exit_at_start = None
    world.ticks(reconciler, UNLIMITED, 60)
    assert record(world).phase is JobPhase.RUNNING


@pytest.mark.parametrize("edit", [{"version": 2}, {"revision": "b"}], ids=["any edit", "a new revision"])
def test_an_edit_ends_the_pause_before_the_next_try(edit: dict[str, Any]) -> None:
    world = World(exit_at_start=EXIT_REFUSED)
    reconciler = Reconciler(world)
    world.ticks(reconciler, UNLIMITED, 300, every=4.0)
    while record(world).phase is not JobPhase.RESTARTING or record(world).restarts.not_before - world.now < 60:
        world.ticks(reconciler, UNLIMITED, 1)
    world.ticks(reconciler, replace(UNLIMITED, **edit), 3)
    assert record(world).restarts.in_a_row == 1, "counting begins anew"
    world.exit_at_start = None
    world.ticks(reconciler, replace(UNLIMITED, **edit), 6)
    assert record(world).phase is JobPhase.RUNNING


def test_a_new_revision_is_not_what_ran_before() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, UNLIMITED, 5)
    world.exit_at_start = EXIT_MISCONFIGURED
    world.ticks(reconciler, replace(UNLIMITED, revision="b", version=2), 20)
    assert record(world).phase is JobPhase.FAILED
    assert record(world).message == "said so"


def test_what_a_person_asked_to_go_back_to_and_is_not_there_is_told_at_once() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, UNLIMITED, 5)
    back = replace(UNLIMITED, version=2, restore=RestoreSpec(from_epoch=Epoch(99)))
    world.ticks(reconciler, back, 1)
    world.newest.end(EXIT_FAILED)
    world.ticks(reconciler, back, 20)
    assert record(world).phase is JobPhase.FAILED


def test_a_job_that_ran_before_the_operator_knew_of_proofs_is_not_failed() -> None:
    """A record of the release before: restored, and nothing noted of revisions that have run."""
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, UNLIMITED, 5)
    world.store(replace(record(world), proven=None))
    world.exit_at_start = EXIT_MISCONFIGURED
    world.newest.end(EXIT_MISCONFIGURED)
    world.ticks(reconciler, UNLIMITED, 20)
    assert record(world).phase is JobPhase.RESTARTING


def test_a_job_that_would_repeat_output_waits_until_the_spec_chooses() -> None:
    world = World(exit_at_start=EXIT_WOULD_REPEAT)
    reconciler = Reconciler(world)
    spec = replace(SPEC, version=1)
    ticks = [world.ticks(reconciler, spec, 1) for _ in range(20)]
    told = [event.reason for tick in ticks for event in events_of(tick)]
    assert record(world).phase is JobPhase.WAITING
    assert record(world).message == "said so"
    assert len(world.drivers) == 1
    assert told.count(EventReason.WOULD_REPEAT) == 1
    stalled = {condition.type: condition for condition in conditions(spec, ticks[-1], world.now)}[ConditionType.STALLED]
    assert (stalled.status, stalled.reason, stalled.message) == ("True", "OutputWouldRepeat", "said so")
    world.exit_at_start = None
    chosen = replace(spec, version=2, restore=RestoreSpec(on_committed_output=OnCommittedOutput.REPEAT))
    world.ticks(reconciler, chosen, 5)
    assert record(world).phase is JobPhase.RUNNING
    assert world.newest.restore.repeat


def test_a_lost_record_remembers_only_wishes_to_go_back() -> None:
    """Not that the job went back by itself: the wish before that would be carried out a second time."""
    world = World()
    for generation, back_to, unasked in ((1, 7, False), (2, 9, True)):
        given = GenerationRecord(
            generation=Generation(generation),
            claim="c",
            created=1,
            writer="w",
            back_to=Epoch(back_to),
            unasked=unasked,
        )
        world.objects.create(world.paths.generation(given.generation), encode(given))
    assert rebuild(world.objects, world.paths, SPEC, 0.0).went_back == "epoch:7"


def test_a_misconfigured_driver_is_stalled_even_with_an_epoch_in_flight() -> None:
    world = World(hanging={Epoch(2)})
    reconciler = Reconciler(world)
    while not any(epoch == 2 for epoch, _ in world.posted):
        world.ticks(reconciler, SPEC)
    world.newest.end(EXIT_MISCONFIGURED)
    tick = world.ticks(reconciler, SPEC, 1)
    assert record(world).phase is JobPhase.RESTARTING
    assert stalled(tick, world)[:2] == ("True", "Misconfigured")


def test_a_checkpoint_that_hangs_is_aborted_and_the_job_goes_on() -> None:
    world = World(hanging={Epoch(2)})
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 30)
    job = record(world)
    assert job.phase is JobPhase.RUNNING
    assert 2 not in job.checkpoints.completed
    assert job.checkpoints.newest_completed > 2
    assert world.newest.generation == 1
    assert_exactly_once(world)


def test_a_driver_that_does_not_answer_is_replaced() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 6)
    world.newest.silent = True
    world.ticks(reconciler, SPEC, 30)
    assert world.newest.generation == 2
    assert not world.drivers[min(world.drivers)].alive
    assert record(world).phase is JobPhase.RUNNING
    assert record(world).restarts.total == 1
    assert_exactly_once(world)


def test_a_driver_that_does_not_answer_about_an_epoch_is_replaced_once() -> None:
    world = World(hanging={Epoch(2)})
    reconciler = Reconciler(world)
    while not any(epoch == 2 for epoch, _ in world.posted):
        world.ticks(reconciler, SPEC)
    world.newest.silent = True
    spec = replace(SPEC, unreachable_timeout=3)
    world.ticks(reconciler, spec, 12)
    assert record(world).phase is JobPhase.RUNNING
    assert (world.newest.generation, record(world).restarts.total) == (2, 1)
    assert_exactly_once(world)


WHY = "what answers does not have its certificate"


def test_why_a_driver_does_not_answer_is_told_where_people_look() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 6)
    world.newest.unreachable = DriverUnreachable("10.0.0.1 does not answer", why=WHY)
    ticks = [world.ticks(reconciler, SPEC) for _ in range(10)]
    [told] = [event for tick in ticks for event in events_of(tick) if event.reason is EventReason.DRIVER_UNREACHABLE]
    assert told.message == f"the driver does not answer: {WHY}"
    ready = {condition.type: condition for condition in conditions(SPEC, ticks[-1], world.now)}[ConditionType.READY]
    assert (ready.status, ready.message) == ("Unknown", told.message)
    world.ticks(reconciler, SPEC, 10)
    assert record(world).restarts.message.endswith(f" s: {WHY}")


def test_a_driver_whose_image_is_too_old_to_be_asked_is_not_replaced_by_another_of_that_image() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 1)
    world.newest.unreachable = DriverWithoutTls("no TLS", why="its image is old")
    tick = world.ticks(reconciler, SPEC, 300)
    assert (world.newest.generation, world.newest.alive, record(world).restarts.total) == (1, True, 0)
    status = project(SPEC, {}, tick, version=1, executors=0, now=world.now)
    assert status["message"] == "the driver is starting: its image is old"
    assert project(SPEC, status, world.ticks(reconciler, SPEC), version=1, executors=0, now=world.now) == status
    world.ticks(reconciler, replace(SPEC, revision="new", version=2), 20)
    assert world.newest.generation == 2, "an edit replaces it at once"
    assert_exactly_once(world)


def test_a_driver_that_can_no_longer_be_asked_is_replaced_once() -> None:
    """As when TLS is asked for while it runs: the next one may have another image by now."""
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 6)
    world.newest.unreachable = DriverWithoutTls("no TLS", why="its image is old")
    world.ticks(reconciler, SPEC, 30)
    assert (world.newest.generation, record(world).restarts.total) == (2, 1)


def test_what_a_driver_was_told_is_known_whatever_the_spec_says_by_now() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 6)
    assert isinstance(pin(world.objects, world.paths, "kept", Epoch(1)), Pinned)
    spec = replace(SPEC, restore=RestoreSpec(from_savepoint="kept"), version=1, revision="a")
    while world.newest.generation == 1:
        world.ticks(reconciler, spec)
    begun = world.newest.restore
    assert (begun.savepoint, begun.back_to) == ("kept", 1)
    world.ticks(reconciler, spec, 10)
    edited = replace(spec, restore=RestoreSpec(from_epoch=Epoch(2), allow_empty_start=True), version=2)
    assert reconciler.told(edited, record(world)) == begun
    assert reconciler.told(replace(edited, revision="b"), record(world)) is None, "that is another driver"
    of_0_1 = replace(record(world), told=None)
    assert reconciler.told(spec, of_0_1) is not None
    assert reconciler.told(edited, of_0_1) is None, "nobody knows"


def test_a_driver_that_never_begins_is_replaced() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 1)
    world.newest.silent = True
    world.ticks(reconciler, SPEC, 40)
    assert world.newest.generation == 2


WAITS = "sink 'out' waits, and tries again for 120 s: connection refused"


def test_what_a_driver_waits_for_is_told_when_it_never_begins() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 1)
    world.newest.waits_for = WAITS
    tick = world.ticks(reconciler, SPEC, 20)
    assert tick.step.message == f"the driver is starting: {WAITS}"
    world.ticks(reconciler, SPEC, 20)
    assert record(world).restarts.message == f"the driver has not begun after 31 s: {WAITS}"


def test_a_lost_record_is_rebuilt_from_the_store() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 20)
    world.newest.end(None)
    newest = max(epoch for epoch, _ in world.posted)
    world.disk = None
    world.ticks(reconciler, SPEC, 15)
    assert world.newest.generation == 2
    assert record(world).checkpoints.newest_completed > newest
    assert_exactly_once(world)


def test_going_back_to_an_epoch_is_done_once() -> None:
    world = World()
    reconciler = Reconciler(world)
    kept = replace(SPEC, checkpoint=replace(SPEC.checkpoint, keep=50))
    world.ticks(reconciler, kept, 20)
    world.ticks(reconciler, replace(kept, state=DesiredState.SUSPENDED), 5)
    back = replace(kept, restore=RestoreSpec(from_epoch=Epoch(2)))
    world.ticks(reconciler, back, 15)
    assert world.newest.restored == 2
    newest = record(world).checkpoints.newest_completed
    world.newest.end(None)
    world.ticks(reconciler, back, 10)
    assert world.newest.generation == 3
    assert world.newest.restored is not None
    assert world.newest.restored >= newest
    # A lost record does not go back either.
    world.newest.end(None)
    world.disk = None
    world.ticks(reconciler, back, 6)
    assert world.newest.generation == 4
    assert world.newest.restored >= newest


def test_a_wish_to_go_back_that_comes_while_a_driver_starts_is_kept_for_the_next() -> None:
    world = World()
    reconciler = Reconciler(world)
    kept = replace(SPEC, version=1, checkpoint=replace(SPEC.checkpoint, keep=50))
    world.ticks(reconciler, kept, 20)
    world.ticks(reconciler, replace(kept, version=2, state=DesiredState.SUSPENDED), 6)
    world.ticks(reconciler, replace(kept, version=3), 2)
    assert not record(world).restored
    back = replace(kept, version=4, restore=RestoreSpec(from_epoch=Epoch(2)))
    world.ticks(reconciler, back, 6)
    assert world.newest.restored != 2
    world.ticks(reconciler, replace(back, version=5, state=DesiredState.SUSPENDED), 6)
    world.ticks(reconciler, replace(back, version=6), 4)
    assert world.newest.restored == 2


def test_a_fenced_driver_is_followed_by_a_generation_above_the_store() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 5)
    job = record(world)
    world.newest.end(None)
    # An old record comes back, from a backup for example.
    world.disk = None
    world.drivers.clear()
    world.store(replace(job, checkpoints=replace(job.checkpoints, generation=type(job.checkpoints.generation)(0))))
    world.ticks(reconciler, SPEC, 15)
    assert record(world).phase is JobPhase.RUNNING
    assert world.newest.generation >= 2
    assert_exactly_once(world)


def _life(world: World) -> None:
    """Run, stop, run again, stop; a controller that crashes is started again."""
    reconciler = Reconciler(world)
    phases = [(SPEC, 22), (SUSPENDED, 14), (SPEC, 18), (SUSPENDED, 14)]
    for spec, count in phases:
        for _ in range(count):
            try:
                world.ticks(reconciler, spec)
            except Crash:
                reconciler = Reconciler(world)
                world.crash_at = None


def _steps() -> int:
    world = World()
    _life(world)
    return len(world.steps)


STEPS = _steps()


def test_the_undisturbed_life_goes_through_every_kind_of_step() -> None:
    world = World()
    _life(world)
    kinds = {step.removeprefix("before ").removeprefix("after ") for step in world.steps}
    assert {"store", "start", "barrier is sent", "epoch was published", "cleanup", "end of cleanup"} <= kinds
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


@pytest.mark.parametrize("what", ["controller", "driver", "both", "driver and its successor"])
def test_nothing_is_lost_or_doubled_wherever_it_dies(what: str) -> None:
    for step in range(STEPS):
        world = World(
            crash_at=step if what in ("controller", "both") else None,
            kill_at={step} if what != "controller" else set(),
        )
        if "successor" in what:
            # Of the steps that follow, each is another part of a restart, or of a commit before a rest.
            world.kill_at.add(step + 3 + step % 11)
        _life(world)
        died = world.steps[step]
        job = record(world)
        assert job.phase is JobPhase.STOPPED, f"died {died} ({step}): {job}"
        assert_exactly_once(world)
        epochs = list_epochs(world.objects, world.paths).manifests
        assert max(epochs) <= job.checkpoints.issued


@pytest.mark.parametrize("publish_first", [False, True], ids=["", "what is in flight is published"])
@pytest.mark.parametrize(
    "what", ["an executor", "an executor and the controller", "an executor and then the driver", "an executor, twice"]
)
def test_nothing_is_lost_or_doubled_wherever_state_is_lost(what: str, publish_first: bool) -> None:
    went_on = 0
    for step in range(STEPS):
        later = step + 1 + step % 13
        world = World(
            lose_at={step, later} if "twice" in what else {step},
            crash_at=step if "controller" in what else None,
            kill_at={later} if "driver" in what else set(),
            publish_first=publish_first,
        )
        _life(world)
        job = record(world)
        assert job.phase is JobPhase.STOPPED, f"lost at {world.steps[step]} ({step}): {job}"
        assert_exactly_once(world)
        assert max(list_epochs(world.objects, world.paths).manifests) <= job.checkpoints.issued
        if what == "an executor" and world.went_on:
            assert (job.restarts.total, len(world.drivers)) == (0, 2), f"lost at {world.steps[step]} ({step}): {job}"
        went_on += world.went_on
    assert went_on > STEPS / 4


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_or_doubled_in_a_random_life(seed: int) -> None:
    chance = random.Random(seed)
    steps = range(2 * STEPS)
    world = World(
        lose_at=set(chance.sample(steps, chance.randrange(12))),
        kill_at=set(chance.sample(steps, chance.randrange(4))),
        crash_at=chance.choice(steps),
        hanging={Epoch(number) for number in chance.sample(range(1, 20), chance.randrange(3))},
        publish_first=chance.random() < 0.5,
    )
    _life(world)
    world.lose_at, world.kill_at, world.crash_at = set(), set(), None
    world.ticks(Reconciler(world), SUSPENDED, 40)
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


def test_going_back_to_a_savepoint_names_its_epoch() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 12)
    kept = record(world).checkpoints.newest_completed
    assert isinstance(pin(world.objects, world.paths, "before", kept), Pinned)
    world.ticks(reconciler, SUSPENDED, 8)
    back = replace(SPEC, restore=RestoreSpec(from_savepoint="before"))
    world.ticks(reconciler, back, 4)
    assert (world.newest.restore.savepoint, world.newest.restore.back_to) == ("before", kept)
    assert world.newest.restored == kept


CHANGED = replace(SPEC, revision="new", version=2)


def test_a_new_revision_is_taken_on_after_a_last_checkpoint() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    world.ticks(reconciler, CHANGED, 8)
    job = record(world)
    assert (job.phase, job.revision, world.newest.generation) == (JobPhase.RUNNING, "new", 2)
    assert job.restarts.total == 0
    assert world.newest.restored == max(epoch for epoch, generation in world.posted if generation == 1)
    world.ticks(reconciler, CHANGED, 10)
    assert world.newest.generation == 2
    assert_exactly_once(world)


def test_a_new_revision_replaces_a_driver_that_has_not_begun_at_once() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 1)
    world.newest.silent = True
    world.ticks(reconciler, CHANGED, 6)
    assert world.newest.generation == 2
    assert record(world).phase is JobPhase.RUNNING
    assert record(world).restarts.total == 0


def test_a_stop_ends_a_driver_that_has_not_begun_at_once() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 1)
    world.newest.silent = True
    world.ticks(reconciler, SUSPENDED, 4)
    assert record(world).phase is JobPhase.STOPPED


def test_a_revision_with_a_problem_leaves_the_job_as_it_is() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    broken = replace(CHANGED, problem="there is no image")
    tick = world.ticks(reconciler, broken, 10)
    assert (world.newest.generation, record(world).phase) == (1, JobPhase.RUNNING)
    assert tick.step.job.checkpoints.newest_completed > 2
    world.newest.end(EXIT_FAILED)
    tick = world.ticks(reconciler, broken, 10)
    assert len(world.drivers) == 1, "nothing is started with a spec that has a problem"
    assert tick.step.message == "there is no image"
    world.ticks(reconciler, CHANGED, 6)
    assert (world.newest.generation, record(world).phase) == (2, JobPhase.RUNNING)


def test_an_edit_gives_a_failed_job_another_chance() -> None:
    world = World(exit_at_start=EXIT_MISCONFIGURED)
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 5)
    assert record(world).phase is JobPhase.FAILED
    world.exit_at_start = None
    world.ticks(reconciler, replace(SPEC, version=2), 6)
    assert record(world).phase is JobPhase.RUNNING


def test_a_new_revision_starts_a_finished_job_again() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 5)
    world.newest.finished = True
    world.ticks(reconciler, SPEC, 6)
    assert record(world).phase is JobPhase.FINISHED
    world.ticks(reconciler, CHANGED, 6)
    assert (record(world).phase, world.newest.generation) == (JobPhase.RUNNING, 2)


# --- the last epoch ---------------------------------------------------------------------------------------------------


def _last_epoch_uncommitted(world: World, reconciler: Reconciler, spec: JobSpec) -> None:
    """Rounds with ``spec`` until a last epoch is published, whose driver dies before its sink has committed."""
    world.sink_fails = True
    for _ in range(10):
        world.ticks(reconciler, spec)
        if not world.newest.alive:
            return
    raise AssertionError("the driver lives")


@pytest.mark.parametrize("end", ["suspended", "finished"])
def test_a_job_rests_when_its_last_output_is_committed(end: str) -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    world.newest.finished = end == "finished"
    spec = SUSPENDED if end == "suspended" else SPEC
    _last_epoch_uncommitted(world, reconciler, spec)
    tick = world.ticks(reconciler, spec, 2)
    assert tick.step.job.phase is JobPhase.STOPPING
    assert tick.step.job.committing
    committer = world.newest
    assert (committer.generation, committer.restore.commit_only) == (2, True)
    world.sink_fails = False
    world.ticks(reconciler, spec, 6)
    assert record(world).phase is (JobPhase.STOPPED if end == "suspended" else JobPhase.FINISHED)
    assert committer.count == world.position(), "it has read on"
    assert len(world.drivers) == 2
    assert_exactly_once(world)


def test_an_epoch_whose_driver_died_is_committed_although_the_job_is_to_stop_now() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    _last_epoch_uncommitted(world, reconciler, SPEC)
    world.ticks(reconciler, SPEC, 2)
    assert record(world).phase is JobPhase.RESTARTING
    world.sink_fails = False
    world.ticks(reconciler, SUSPENDED, 8)
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


def test_a_commit_that_hangs_is_made_by_the_next_generation() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    last = Epoch(record(world).checkpoints.issued + 1)
    world.stuck = {last}
    world.ticks(reconciler, SUSPENDED, 35)
    job = record(world)
    assert (job.phase, job.checkpoints.newest_completed) == (JobPhase.STOPPED, last)
    assert_exactly_once(world)


def test_what_a_commit_waits_for_is_told_while_the_job_is_to_stop() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    _last_epoch_uncommitted(world, reconciler, SUSPENDED)
    world.ticks(reconciler, SUSPENDED, 2)
    world.sink_fails = False
    world.newest.waits_for = WAITS
    output = f"output of epoch {record(world).checkpoints.newest_completed}"
    tick = world.ticks(reconciler, SUSPENDED, 20)
    assert tick.step.message == f"committing the {output}: {WAITS}"
    world.ticks(reconciler, SUSPENDED, 20)
    assert record(world).restarts.message == f"the {output} is not committed after 31 s: {WAITS}"
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


def test_a_lost_record_does_not_hide_output_that_is_not_committed() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    _last_epoch_uncommitted(world, reconciler, SUSPENDED)
    world.sink_fails = False
    world.disk = None
    world.ticks(reconciler, SUSPENDED, 8)
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


def test_a_last_epoch_that_was_published_while_no_controller_ran_is_committed() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    while not (flight := record(world).checkpoints.in_flight) or not flight.then_stop:
        world.ticks(reconciler, SUSPENDED)
    world.sink_fails = True
    with pytest.raises(DriverUnreachable):
        world.newest.get_checkpoint(flight.epoch)
    world.sink_fails = False
    world.ticks(Reconciler(world), SUSPENDED, 8)
    assert (record(world).phase, record(world).checkpoints.newest_completed) == (JobPhase.STOPPED, flight.epoch)
    assert_exactly_once(world)


def test_a_sink_that_fails_for_good_fails_the_job_and_an_edit_commits_it() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    _last_epoch_uncommitted(world, reconciler, SUSPENDED)
    world.ticks(reconciler, SUSPENDED, 60)
    job = record(world)
    assert job.phase is JobPhase.FAILED
    newest = job.checkpoints.newest_completed
    assert job.message == (
        f"the job cannot stop, because the output of epoch {newest} is not committed: the driver of generation 7 ended "
        "with code 1: said so; given up after 5 restarts"
    )
    world.sink_fails = False
    world.ticks(reconciler, replace(SUSPENDED, version=2), 8)
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


def test_a_driver_that_cannot_commit_for_a_reason_that_a_person_must_mend_says_so_and_tries_again() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    _last_epoch_uncommitted(world, reconciler, SUSPENDED)
    world.exit_at_start = EXIT_MISCONFIGURED
    tick = world.ticks(reconciler, SUSPENDED, 3)
    assert stalled(tick, world)[:2] == ("True", "Misconfigured")
    world.exit_at_start = None
    world.sink_fails = False
    tick = world.ticks(reconciler, SUSPENDED, 20)
    assert record(world).phase is JobPhase.STOPPED
    assert stalled(tick, world)[0] == "False"
    assert_exactly_once(world)


def test_a_job_that_is_to_run_again_commits_first() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    _last_epoch_uncommitted(world, reconciler, SUSPENDED)
    world.ticks(reconciler, SUSPENDED, 2)
    assert record(world).committing
    world.sink_fails = False
    back = replace(SPEC, restore=RestoreSpec(from_epoch=Epoch(2)))
    world.ticks(reconciler, back, 8)
    assert (world.newest.generation, world.newest.restored) == (3, 2), "the wish to go back is for who runs"
    assert record(world).phase is JobPhase.RUNNING


def test_an_edit_needs_no_generation_of_its_own_to_commit() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    _last_epoch_uncommitted(world, reconciler, CHANGED)
    world.sink_fails = False
    world.ticks(reconciler, CHANGED, 8)
    assert (record(world).phase, world.newest.generation) == (JobPhase.RUNNING, 2)
    world.ticks(reconciler, replace(CHANGED, state=DesiredState.SUSPENDED), 8)
    assert_exactly_once(world)


def test_a_damaged_record_of_a_commit_is_one() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 10)
    world.ticks(reconciler, SUSPENDED, 3)
    name = world.paths.committed(record(world).checkpoints.newest_completed)
    world.objects.delete([name])
    world.objects.create(name, b"")
    world.ticks(reconciler, SUSPENDED, 8)
    assert (record(world).phase, len(world.drivers)) == (JobPhase.STOPPED, 1)


def test_a_savepoint_that_was_gone_back_to_is_committed_once_before_a_rest() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC, 12)
    kept = record(world).checkpoints.newest_completed
    assert isinstance(pin(world.objects, world.paths, "before", kept), Pinned)
    world.ticks(reconciler, SUSPENDED, 8)
    world.objects.delete([world.paths.manifest(kept), world.paths.committed(kept)])
    back = replace(SPEC, restore=RestoreSpec(from_savepoint="before"))
    world.ticks(reconciler, back, 2)
    world.newest.end(None)
    world.ticks(reconciler, replace(back, state=DesiredState.SUSPENDED), 12)
    assert record(world).phase is JobPhase.STOPPED
    assert len(world.drivers) <= 3


def test_a_job_that_never_ran_does_not_ask_its_store() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SUSPENDED, 3)
    assert (record(world).phase, world.drivers) == (JobPhase.STOPPED, {})
