"""A driver that somebody else asks to go: it makes a last checkpoint, and the next one starts at once."""

from dataclasses import replace

import pytest

from epochal.control.events import EventReason, events_of
from epochal.control.job import JobSpec
from epochal.control.lifecycle import JobPhase
from epochal.control.reconcile import Reconciler, Tick
from epochal.protocol.control import EXIT_DRAINED
from epochal.protocol.epochs import Epoch
from tests.operator.test_reconcile import SPEC, SUSPENDED, assert_exactly_once, record
from tests.operator.world import SimDriver, World

RARELY = replace(SPEC, checkpoint=replace(SPEC.checkpoint, interval=1000))
"""No checkpoint but the last one."""

EVICTED = "its pod has to go: EvictionByEvictionAPI"


def running(spec: JobSpec = RARELY) -> tuple[World, Reconciler]:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, spec, 5)
    assert record(world).phase is JobPhase.RUNNING
    return world, reconciler


def each_tick(world: World, reconciler: Reconciler, spec: JobSpec, count: int) -> list[Tick]:
    return [world.ticks(reconciler, spec) for _ in range(count)]


@pytest.mark.parametrize("how", ["leaving", "ending"])
def test_an_evicted_driver_makes_a_last_checkpoint_and_the_next_one_goes_on_from_it(how: str) -> None:
    """The pod says so, or the driver itself: where a node shuts down, only the driver knows."""
    world, reconciler = running()
    evicted = world.newest
    setattr(evicted, how, EVICTED if how == "leaving" else True)
    ticks = each_tick(world, reconciler, RARELY, 6)
    assert not evicted.alive
    assert evicted.code == 0
    assert world.newest.restored == 1
    assert world.newest.restore.known == 1
    job = record(world)
    assert job.phase is JobPhase.RUNNING
    assert job.checkpoints.generation == 2
    assert job.restarts.total == 0
    assert job.draining_since is None
    told = [event.reason for tick in ticks for event in events_of(tick)]
    assert told.count(EventReason.DRAINING) == 1
    assert EventReason.RESTART_SCHEDULED not in told
    assert EventReason.STOPPED not in told
    world.ticks(reconciler, SUSPENDED, 6)
    assert_exactly_once(world)


def test_the_checkpoint_in_flight_comes_first() -> None:
    world, reconciler = running(SPEC)
    world.ticks(reconciler, SPEC)
    while record(world).checkpoints.in_flight is None:
        world.ticks(reconciler, SPEC)
    flight = record(world).checkpoints.in_flight
    assert flight is not None
    world.newest.leaving = EVICTED
    world.ticks(reconciler, SPEC, 6)
    assert record(world).checkpoints.generation == 2
    assert world.newest.restored == flight.epoch + 1
    assert_exactly_once(world)


def test_a_drain_waits_for_a_last_checkpoint_as_long_as_for_any_and_no_longer() -> None:
    """S3 is away, say: whoever empties the node waits for this driver."""
    spec = replace(RARELY, checkpoint=replace(RARELY.checkpoint, timeout=20))
    world, reconciler = running(spec)
    world.hanging = {Epoch(1)}
    drained = world.newest
    drained.leaving = "its node n1 is cordoned"
    world.ticks(reconciler, spec, 18)
    assert world.newest is drained
    world.ticks(reconciler, spec, 12)
    assert not drained.alive
    job = record(world)
    assert (job.phase, job.checkpoints.generation, job.restarts.total) == (JobPhase.RUNNING, 2, 1)
    assert not job.checkpoints.stop
    assert "has made no last checkpoint within 20 s" in job.restarts.message
    world.ticks(reconciler, SUSPENDED, 8)
    assert_exactly_once(world)


def test_a_driver_that_is_killed_before_its_last_checkpoint_is_replaced_at_once() -> None:
    world, reconciler = running()
    world.hanging = {Epoch(1)}
    world.newest.leaving = EVICTED
    world.ticks(reconciler, RARELY, 2)
    assert record(world).checkpoints.in_flight is not None
    world.newest.end(None)
    world.ticks(reconciler, RARELY, 4)
    job = record(world)
    assert (job.phase, job.checkpoints.generation, job.restarts.total) == (JobPhase.RUNNING, 2, 0)
    assert_exactly_once(world)


def test_a_driver_that_ended_while_no_operator_looked_is_replaced_without_a_pause() -> None:
    world, reconciler = running()
    for generation in range(2, 12):
        world.newest.end(EXIT_DRAINED)
        world.ticks(reconciler, RARELY, 4)
        job = record(world)
        assert (job.phase, job.checkpoints.generation) == (JobPhase.RUNNING, generation)
    assert record(world).restarts.in_a_row == 0


def test_a_driver_that_is_evicted_again_and_again_before_it_has_begun_is_not_started_in_a_loop() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.exit_at_start = EXIT_DRAINED
    world.ticks(reconciler, SPEC, 5)
    assert record(world).restarts.in_a_row >= 1


def test_a_driver_that_has_to_go_and_does_not_answer_is_replaced_as_any_other() -> None:
    world, reconciler = running()
    world.newest.leaving, world.newest.silent = EVICTED, True
    world.ticks(reconciler, RARELY, 25)
    job = record(world)
    assert job.checkpoints.generation == 2
    assert job.phase is JobPhase.RUNNING
    assert not job.checkpoints.stop


def test_a_drained_driver_of_a_suspended_job_is_not_followed_by_another() -> None:
    world, reconciler = running()
    world.newest.leaving = EVICTED
    world.ticks(reconciler, SUSPENDED, 8)
    assert record(world).phase is JobPhase.STOPPED
    assert len(world.drivers) == 1


def test_a_driver_that_has_not_begun_makes_no_checkpoint_when_it_has_to_go() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC)
    first = world.newest
    first.leaving, first.silent = EVICTED, True
    world.ticks(reconciler, SPEC, 3)
    assert record(world).draining_since is None
    assert world.posted == []


def test_a_drain_survives_the_operator_wherever_it_dies() -> None:
    """Each time another operator takes over after one more round."""
    for survived in range(1, 8):
        world, reconciler = running()
        world.newest.leaving = EVICTED
        world.ticks(reconciler, RARELY, survived)
        world.ticks(Reconciler(world), RARELY, 8)
        job = record(world)
        assert (job.phase, job.checkpoints.generation, job.restarts.total) == (JobPhase.RUNNING, 2, 0)
        assert world.newest.restored == 1
        assert_exactly_once(world)


def _waits(driver: SimDriver) -> None:
    driver.waiting = 'ImagePullBackOff: Back-off pulling image "shop:2"'


def test_a_driver_whose_image_is_missing_is_waited_for_and_not_replaced() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC)
    _waits(world.newest)
    tick = world.ticks(reconciler, SPEC, 100)
    job = record(world)
    assert (job.phase, job.checkpoints.generation, job.restarts.total) == (JobPhase.STARTING, 1, 0)
    assert "ImagePullBackOff" in tick.step.message
    # Its time to start begins with its process.
    world.newest.waiting, world.newest.silent, world.newest.since = "", True, world.now
    world.ticks(reconciler, SPEC, 10)
    assert record(world).checkpoints.generation == 1
    world.newest.silent = False
    world.ticks(reconciler, SPEC, 3)
    assert record(world).phase is JobPhase.RUNNING


def test_a_driver_whose_process_began_late_is_replaced_after_its_own_time() -> None:
    world = World()
    reconciler = Reconciler(world)
    world.ticks(reconciler, SPEC)
    _waits(world.newest)
    world.ticks(reconciler, SPEC, 100)
    world.newest.waiting, world.newest.silent, world.newest.since = "", True, world.now
    world.ticks(reconciler, SPEC, 35)
    assert record(world).restarts.total == 1
