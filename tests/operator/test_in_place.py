"""A driver that begins the next generation in its own process: the record follows it, and it is no restart."""

from dataclasses import replace

import pytest

from epochal.control.events import EventReason, events_of
from epochal.control.job import JobSpec, RestoreSpec
from epochal.control.lifecycle import EndDriver, JobPhase, LifeReason, StartDriver
from epochal.control.reconcile import Reconciler, Tick
from epochal.protocol.control import (
    EXIT_DRAINED,
    EXIT_FAILED,
    EXIT_FENCED,
    EXIT_MISCONFIGURED,
    EXIT_WOULD_REPEAT,
)
from epochal.protocol.decision import DriverSilent, Nothing
from epochal.protocol.epochs import Epoch, Generation
from epochal_operator.reporting.conditions import ConditionType, conditions
from epochal_operator.reporting.status import project
from tests.operator.test_reconcile import CHANGED, SPEC, SUSPENDED, assert_exactly_once, record
from tests.operator.world import Crash, SimDriver, World

MESSAGE = "generation 2 begins in the driver that was started as generation 1"


def running(spec: JobSpec = SPEC) -> tuple[World, Reconciler, SimDriver]:
    """A job with an epoch, and none in flight."""
    world = World()
    reconciler = Reconciler(world)
    while not world.disk or not record(world).checkpoints.completed or record(world).checkpoints.in_flight:
        world.ticks(reconciler, spec)
    return world, reconciler, world.newest


def recovering(spec: JobSpec = SPEC) -> tuple[World, Reconciler, SimDriver]:
    """Written down that generation 2 begins in generation 1's process."""
    world, reconciler, driver = running(spec)
    driver.lose_state()
    tick = world.ticks(reconciler, spec)
    assert tick.step.reason is LifeReason.RECOVERING_IN_PLACE
    assert (record(world).checkpoints.generation, record(world).process) == (2, 1)
    return world, reconciler, driver


def told(ticks: list[Tick]) -> list[EventReason]:
    return [event.reason for tick in ticks for event in events_of(tick)]


def ready(tick: Tick, world: World, spec: JobSpec = SPEC) -> tuple[str, str, str]:
    found = {one.type: one for one in conditions(spec, tick, world.now)}[ConditionType.READY]
    return found.status, found.reason, found.message


def rest(world: World, reconciler: Reconciler) -> None:
    world.ticks(reconciler, SUSPENDED, 20)
    assert record(world).phase is JobPhase.STOPPED
    assert_exactly_once(world)


def test_the_record_follows_and_it_is_no_restart() -> None:
    world, reconciler, driver = running()
    newest = record(world).checkpoints.newest_completed
    driver.lose_state()
    first = world.ticks(reconciler, SPEC)
    job = record(world)
    assert (job.phase, job.checkpoints.generation, job.process) == (JobPhase.STARTING, 2, 1)
    assert (job.restored, job.running_since, job.checkpoints.generation_started) == (False, None, world.now)
    assert isinstance(first.step.action, Nothing)
    assert ready(first, world) == ("False", "Starting", MESSAGE)
    second = world.ticks(reconciler, SPEC)
    job = record(world)
    assert (job.phase, job.process_generation, job.checkpoints.newest_completed) == (JobPhase.RUNNING, 1, newest)
    assert ready(second, world) == ("True", "Running", "generation 2 runs")
    assert told([first, second]) == [EventReason.RECOVERING_IN_PLACE, EventReason.RESTORED]
    assert (job.restarts.total, job.restarts.in_a_row) == (0, 0)
    world.ticks(reconciler, SPEC, 6)
    assert record(world).checkpoints.newest_completed > newest
    assert {generation for epoch, generation in world.posted if epoch > newest} == {2}
    assert list(world.drivers) == [1]
    rest(world, reconciler)


def test_it_goes_on_in_place_again_and_again() -> None:
    world, reconciler, driver = running()
    for generation in range(2, 6):
        newest = record(world).checkpoints.newest_completed
        driver.lose_state()
        while record(world).checkpoints.newest_completed <= newest or record(world).checkpoints.in_flight:
            world.ticks(reconciler, SPEC)
        assert (record(world).checkpoints.generation, record(world).process) == (generation, 1)
    assert (list(world.drivers), record(world).restarts.total) == ([1], 0)
    rest(world, reconciler)


def test_the_event_has_the_drivers_words() -> None:
    world, reconciler, driver = running()
    driver.lose_state()
    driver.message = "an executor was lost"
    [event] = events_of(world.ticks(reconciler, SPEC))
    assert (event.reason, event.type, event.message) == (
        EventReason.RECOVERING_IN_PLACE,
        "Warning",
        f"{MESSAGE}: an executor was lost",
    )


@pytest.mark.parametrize("when", [0, 1], ids=["before it is written down", "after it"])
def test_a_controller_that_dies_meanwhile_follows_once(when: int) -> None:
    world, reconciler, driver = running()
    driver.lose_state()
    world.crash_at = len(world.steps) + when
    with pytest.raises(Crash):
        world.ticks(reconciler, SPEC)
    world.crash_at = None
    reconciler = Reconciler(world)
    ticks = [world.ticks(reconciler, SPEC) for _ in range(6)]
    assert told(ticks).count(EventReason.RECOVERING_IN_PLACE) == 1 - when
    assert (record(world).checkpoints.generation, record(world).process) == (2, 1)
    assert (list(world.drivers), record(world).restarts.total) == ([1], 0)
    rest(world, reconciler)


@pytest.mark.parametrize("published", [False, True])
def test_the_fate_of_an_epoch_in_flight_shows_when_the_generation_has_restored(published: bool) -> None:
    world, reconciler, driver = running()
    while not (flight := record(world).checkpoints.in_flight):
        world.ticks(reconciler, SPEC)
    driver.lose_state(publish_first=published)
    world.ticks(reconciler, SPEC)
    assert record(world).checkpoints.in_flight == flight
    world.ticks(reconciler, SPEC)
    after = record(world).checkpoints
    assert after.in_flight is None
    assert (flight.epoch in after.completed) is published
    assert after.issued == flight.epoch
    rest(world, reconciler)


@pytest.mark.parametrize("code", [EXIT_FAILED, EXIT_FENCED, None])
@pytest.mark.parametrize("begun", [False, True], ids=["while it restores", "when it runs"])
def test_one_that_ends_after_that_is_restarted(code: int | None, begun: bool) -> None:
    world, reconciler, driver = recovering()
    if begun:
        world.ticks(reconciler, SPEC, 4)
    driver.end(code)
    tick = world.ticks(reconciler, SPEC)
    how = "was lost: said so" if code is None else f"ended with code {code}: said so"
    assert record(world).restarts.message == f"the driver of generation 2 {how}"
    assert (record(world).restarts.total, tick.step.job.phase) == (1, JobPhase.RESTARTING)
    world.ticks(reconciler, SPEC, 6)
    job = record(world)
    assert (job.phase, job.checkpoints.generation, job.process) == (JobPhase.RUNNING, 3, None)
    assert list(world.drivers) == [1, 3]
    rest(world, reconciler)


def test_one_whose_process_is_gone_is_restarted() -> None:
    world, reconciler, _ = recovering()
    world.drivers.clear()
    world.ticks(reconciler, SPEC, 6)
    job = record(world)
    assert (job.checkpoints.generation, job.process, job.restarts.total) == (3, None, 1)
    rest(world, reconciler)


def test_codes_mean_what_they_mean() -> None:
    for code, phase in ((EXIT_WOULD_REPEAT, JobPhase.WAITING), (EXIT_MISCONFIGURED, JobPhase.RESTARTING)):
        world, reconciler, driver = recovering()
        driver.end(code)
        world.ticks(reconciler, SPEC)
        assert record(world).phase is phase, code
    world, reconciler, driver = recovering()
    world.ticks(reconciler, SPEC)
    driver.end(EXIT_DRAINED)
    world.ticks(reconciler, SPEC, 4)
    assert (record(world).checkpoints.generation, record(world).restarts.total) == (3, 0)


def test_one_that_ended_before_anybody_saw_it_is_followed_by_a_generation_above_the_store() -> None:
    """The next generation finds its number taken, and ends."""
    world, reconciler, driver = running()
    driver.lose_state()
    driver.end(EXIT_FAILED)
    world.ticks(reconciler, SPEC, 12)
    job = record(world)
    assert (job.phase, job.checkpoints.generation, job.process) == (JobPhase.RUNNING, 3, None)
    assert world.drivers[Generation(2)].code == EXIT_FENCED
    rest(world, reconciler)


def test_one_that_goes_on_at_the_moment_of_a_restart_is_ended() -> None:
    world, reconciler, driver = running()
    driver.silent = True
    while record(world).phase is not JobPhase.RESTARTING:
        step = len(world.steps)
        world.lose_at = {step + 1}  # the restart is written down, and the driver has not been ended yet
        world.ticks(reconciler, SPEC)
    assert world.went_on == 1
    assert not driver.alive
    world.ticks(reconciler, SPEC, 12)
    assert (record(world).checkpoints.generation, list(world.drivers)) == (3, [1, 2, 3])
    rest(world, reconciler)


def test_one_that_does_not_answer_while_it_recovers_is_given_up_as_ever() -> None:
    world, reconciler, driver = running()
    driver.lose_state()
    driver.silent = True
    world.ticks(reconciler, SPEC, int(SPEC.unreachable_timeout) + 3)
    assert not driver.alive
    assert "has not answered" in record(world).restarts.message
    world.ticks(reconciler, SPEC, 12)
    rest(world, reconciler)


def test_one_that_never_restores_is_given_up_as_ever() -> None:
    world, reconciler, driver = recovering()
    driver.silent = True
    world.ticks(reconciler, SPEC, int(SPEC.start_timeout) + 1)
    assert not driver.alive
    assert "has not begun" in record(world).restarts.message
    world.ticks(reconciler, SPEC, 6)
    assert record(world).checkpoints.generation == 3
    rest(world, reconciler)


def test_one_that_was_silent_and_went_on_is_followed() -> None:
    world, reconciler, driver = running()
    driver.lose_state()
    driver.silent = True
    world.ticks(reconciler, SPEC, 5)
    driver.silent = False
    world.ticks(reconciler, SPEC, 3)
    job = record(world)
    assert (job.phase, job.checkpoints.generation, job.process, job.silent_since) == (JobPhase.RUNNING, 2, 1, None)
    rest(world, reconciler)


@pytest.mark.parametrize("seen", [False, True], ids=["before it is seen", "while it restores"])
def test_an_edit_meanwhile_replaces_the_driver(seen: bool) -> None:
    world, reconciler, driver = running()
    driver.lose_state()
    if seen:
        world.ticks(reconciler, SPEC)
    world.ticks(reconciler, CHANGED, 10)
    job = record(world)
    assert (job.phase, job.revision, job.checkpoints.generation, job.process) == (JobPhase.RUNNING, "new", 3, None)
    assert job.restarts.total == 0
    rest(world, reconciler)


def test_a_stop_meanwhile_stops_the_job() -> None:
    world, reconciler, _ = recovering()
    rest(world, reconciler)
    assert list(world.drivers) == [1]


@pytest.mark.parametrize("version", [0, 1])
def test_a_wish_to_go_back_that_comes_meanwhile_is_kept_for_the_next(version: int) -> None:
    kept = replace(SPEC, version=version, checkpoint=replace(SPEC.checkpoint, keep=50))
    world, reconciler, driver = running(kept)
    world.ticks(reconciler, kept, 8)
    while record(world).checkpoints.in_flight:
        world.ticks(reconciler, kept)
    driver.lose_state()
    back = replace(kept, version=version + 1, restore=RestoreSpec(from_epoch=Epoch(2)))
    world.ticks(reconciler, back, 5)
    assert (record(world).phase, record(world).went_back) == (JobPhase.RUNNING, None)
    world.ticks(reconciler, replace(back, state=SUSPENDED.state), 6)
    world.ticks(reconciler, back, 5)
    assert world.newest.restored == 2
    assert record(world).went_back == "epoch:2"


def test_a_wish_that_was_carried_out_is_not_carried_out_again() -> None:
    back = replace(SPEC, version=1, restore=RestoreSpec(from_epoch=Epoch(1)))
    world, reconciler, _ = running(replace(SPEC, version=1, checkpoint=replace(SPEC.checkpoint, keep=50)))
    world.ticks(reconciler, replace(back, state=SUSPENDED.state), 6)
    world.ticks(reconciler, back, 10)
    assert (world.newest.restored, record(world).went_back) == (1, "epoch:1")
    while record(world).checkpoints.in_flight:
        world.ticks(reconciler, back)
    driver, newest = world.newest, record(world).checkpoints.newest_completed
    driver.lose_state()
    world.ticks(reconciler, back, 3)
    assert (driver.restored, record(world).went_back) == (newest, "epoch:1")
    driver.end(EXIT_FAILED)
    world.ticks(reconciler, back, 6)
    assert world.newest.restored is not None
    assert world.newest.restored >= newest


def test_a_controller_of_an_earlier_release_ends_the_driver() -> None:
    """It loses what it does not know of the record."""
    world, reconciler, driver = recovering()
    world.ticks(reconciler, SPEC, 3)
    world.store(replace(record(world), process=None))
    tick = world.ticks(reconciler, SPEC)
    assert isinstance(tick.step.action, EndDriver)
    assert not driver.alive
    world.ticks(reconciler, SPEC, 8)
    assert (record(world).checkpoints.generation, list(world.drivers)) == (3, [1, 3])
    rest(world, reconciler)


def test_a_lost_record_ends_the_driver() -> None:
    world, reconciler, driver = recovering()
    world.ticks(reconciler, SPEC, 3)
    world.disk = None
    world.ticks(reconciler, SPEC, 8)
    assert not driver.alive
    assert (record(world).checkpoints.generation, list(world.drivers)) == (3, [1, 3])
    rest(world, reconciler)


def test_a_record_that_comes_back_from_before_ends_the_driver() -> None:
    """Of a backup: what was done since is not in it, and no number may be given twice."""
    world, reconciler, driver = running()
    old = world.disk
    for _ in range(2):
        driver.lose_state()
        world.ticks(reconciler, SPEC, 8)
        while record(world).checkpoints.in_flight:
            world.ticks(reconciler, SPEC)
    assert driver.generation == 3
    world.disk = old
    tick = world.ticks(reconciler, SPEC)
    assert isinstance(tick.step.action, EndDriver)
    assert "says that it is of generation 3" in tick.step.message
    world.ticks(reconciler, SPEC, 20)
    assert record(world).checkpoints.generation == 4
    rest(world, reconciler)


def test_no_generation_is_started_while_one_goes_on_in_place() -> None:
    world, reconciler, driver = running()
    driver.lose_state()
    ticks = [world.ticks(reconciler, SPEC) for _ in range(10)]
    assert not any(isinstance(tick.step.action, StartDriver | EndDriver) for tick in ticks)
    assert not any(isinstance(tick.seen.fate, DriverSilent) for tick in ticks)


def test_late_rows_are_counted_on() -> None:
    world, reconciler, driver = running()
    driver.late_rows = 5
    world.ticks(reconciler, SPEC)
    assert record(world).late.total == 5
    while record(world).checkpoints.in_flight:
        world.ticks(reconciler, SPEC)
    driver.lose_state()
    driver.late_rows = 0  # a new engine counts anew
    world.ticks(reconciler, SPEC, 2)
    driver.late_rows = 7
    world.ticks(reconciler, SPEC)
    assert record(world).late.total == 12


def test_the_status_of_the_job_shows_the_generation() -> None:
    world, reconciler, driver = running()
    driver.lose_state()
    tick = world.ticks(reconciler, SPEC)
    status = project(SPEC, {}, tick, version=1, executors=1, now=world.now)
    assert (status["generation"], status["phase"], status["message"]) == (2, "Starting", MESSAGE)
    assert status["record"]["process"] == 1
    assert status["restarts"]["total"] == 0


def test_a_wish_that_was_taken_back_and_comes_again_meanwhile_is_one() -> None:
    kept = replace(SPEC, version=1, checkpoint=replace(SPEC.checkpoint, keep=50))
    back = replace(kept, version=2, restore=RestoreSpec(from_epoch=Epoch(1)))
    world, reconciler, _ = running(kept)
    world.ticks(reconciler, replace(back, state=SUSPENDED.state), 6)
    world.ticks(reconciler, back, 10)
    assert (world.newest.restored, record(world).went_back) == (1, "epoch:1")
    world.ticks(reconciler, replace(kept, version=3), 3)
    while record(world).checkpoints.in_flight:
        world.ticks(reconciler, replace(kept, version=3))
    world.newest.lose_state()
    world.ticks(reconciler, replace(back, version=4), 5)
    assert (record(world).phase, record(world).went_back) == (JobPhase.RUNNING, None)
    world.newest.end(EXIT_FAILED)
    world.ticks(reconciler, replace(back, version=4), 6)
    assert world.newest.restored == 1


@pytest.mark.parametrize("still", [False, True], ids=["which is gone with it", "and still has to go"])
def test_a_driver_that_drains_an_executor_goes_on_without_it(still: bool) -> None:
    """The stop waits for a checkpoint in flight, which is lost with the executor."""
    world, reconciler, driver = running()
    world.hanging = {Epoch(record(world).checkpoints.issued + 1)}
    while not record(world).checkpoints.in_flight:
        world.ticks(reconciler, SPEC)
    driver.leaving = "executor 1 has to go"
    world.ticks(reconciler, SPEC)
    assert record(world).draining_since is not None
    driver.lose_state()
    driver.leaving = driver.leaving if still else ""
    world.ticks(reconciler, SPEC, 10)
    job = record(world)
    assert (job.phase, job.checkpoints.generation) == (JobPhase.RUNNING, 3 if still else 2)
    assert (job.process, job.draining_since) == (None if still else 1, None)
    assert job.restarts.total == 0
    rest(world, reconciler)
