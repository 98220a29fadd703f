"""Random histories of one job, with every fault at every moment: no invariant of the protocol may break.

``EPOCHAL_HISTORIES`` says how many (300 by default; `make histories` runs 10,000). A history that fails is printed as a
program that repeats it.
"""

import os
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from epochal.protocol.epochs import NO_EPOCH
from tests.protocol.model import BackTo, World
from tests.protocol.stepping import Order

HISTORIES = int(os.environ.get("EPOCHAL_HISTORIES", "300"))
SHARDS = 8

index = st.integers(0, 7)
few = st.integers(1, 6)
some = st.integers(4, 16)
moments = st.sampled_from(
    ["/manifest.json", "/generations/", "delete ", "the sink", "/savepoints/", "/state/", "list "]
)
orders = st.sampled_from([Order.DO, Order.DO, Order.DO, Order.ERROR_BEFORE, Order.ERROR_AFTER, Order.DELAY])
faults = st.sampled_from([order for order in Order if order is not Order.DO])
seldom = st.sampled_from([False, False, False, True])


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def _pick(self, items: list[Any], number: int) -> Any:
        return items[number % len(items)]

    # --- time goes by

    @rule(rounds=few)
    def calm(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.calm_round()

    # Most of the time little goes wrong: without that, a history hardly gets to its second epoch.
    @rule(rounds=some)
    def calm_for_some_time(self, rounds: int) -> None:
        self.calm(rounds)

    @rule(rounds=some)
    def calm_for_some_time_again(self, rounds: int) -> None:
        self.calm(rounds)

    @rule(pause=st.sampled_from([1.0, 11.0, 31.0, 100.0]))
    def wait(self, pause: float) -> None:
        self.world.now += pause

    @rule(jump=st.sampled_from([-100_000.0, -50.0, 50.0, 100_000.0]))
    def clock_jumps(self, jump: float) -> None:
        self.world.now += jump

    @rule(rows=few)
    def rows_come_in(self, rows: int) -> None:
        for driver in self.world.drivers:
            driver.rows += rows

    # --- actors

    @rule(requests=st.integers(0, 40), order=faults, rounds=few)
    def one_request_goes_wrong(self, requests: int, order: Order, rounds: int) -> None:
        self.world.store.trouble = (requests, order)
        self.calm(rounds)

    @precondition(lambda self: self.world.actors())
    @rule(which=index, order=orders, steps=few)
    def actor_goes_on(self, which: int, order: Order, steps: int) -> None:
        actor = self._pick(self.world.actors(), which)
        actor.paused = False
        actor.step(order)
        for _ in range(steps - 1):
            if actor.alive and actor.waiting_for != "a barrier":
                actor.step()

    @precondition(lambda self: self.world.actors())
    @rule(which=index, moment=moments)
    def actor_stands_still(self, which: int, moment: str) -> None:
        """For as long as it likes: whoever waits for it gives up and goes on without it."""
        actor = self._pick(self.world.actors(), which)
        actor.paused = actor.step_up_to(moment)

    @precondition(lambda self: self.world.actors())
    @rule(which=index)
    def actor_crashes(self, which: int) -> None:
        self._pick(self.world.actors(), which).kill()

    @rule(which=index)
    def driver_crashes(self, which: int) -> None:
        self._pick(self.world.drivers, which).actor.kill()

    @rule(fail=seldom)
    def cleanups_fail_from_now_on(self, fail: bool) -> None:
        self.world.cleanups_fail = fail

    @precondition(lambda self: self.world.store.late)
    @rule(which=index)
    def late_request_arrives(self, which: int) -> None:
        late = self.world.store.late
        late.pop(which % len(late))()

    # --- controller and network

    @rule(ticks=few, stale=seldom, crash=st.sampled_from(["", "", "", "store", "act"]))
    def controller_ticks(self, ticks: int, stale: bool, crash: str) -> None:
        self.world.tick(crash=crash, stale=stale)
        for _ in range(ticks - 1):
            self.world.now += 2.0
            self.world.tick()

    @precondition(lambda self: self.world.network)
    @rule(which=index, copies=st.sampled_from([0, 1, 1, 1, 2]), merge=st.booleans(), skip=st.booleans())
    def message_arrives(self, which: int, copies: int, merge: bool, skip: bool) -> None:
        """Any message, so out of order; lost, once, or once now and once later."""
        network = self.world.network
        message = network.pop(which % len(network))
        if copies:
            self.world.deliver(message, merge=merge, skip=skip)
        if copies > 1:
            network.append(message)

    @rule(silent=st.booleans())
    def contact_changes(self, silent: bool) -> None:
        self.world.drivers[-1].silent = silent

    @rule(which=index, kind=st.sampled_from(["newest", "newest", "epoch", "savepoint", "empty"]))
    def controller_replaces_driver(self, which: int, kind: str) -> None:
        world = self.world
        back: BackTo | None = None
        if kind == "epoch" and (epochs := world.restorable()):
            back = BackTo(self._pick(epochs, which))
        elif kind == "savepoint" and (names := sorted(world.oracle.savepoints)):
            name = self._pick(names, which)
            back = BackTo(world.oracle.savepoints[name].epoch, name)
        elif kind == "empty":
            back = BackTo(NO_EPOCH)
        world.new_generation(back)

    @rule(sure=seldom)
    def user_wants_stop(self, sure: bool) -> None:
        if sure:
            self.world.stop()

    @rule(dies=st.booleans())
    def driver_will_not_survive_its_last_commit(self, dies: bool) -> None:
        """Of all moments to die, the one that nobody comes after: whoever stops does not look again."""
        self.world.drivers[-1].dies_in_last_commit = dies

    @precondition(lambda self: self.world.record.stopped)
    @rule()
    def user_starts_again(self) -> None:
        self.world.new_generation()

    # --- savepoints, damage

    @precondition(lambda self: self.world.oracle.published)
    @rule(which=index, name=st.sampled_from(["a", "b"]))
    def owner_pins(self, which: int, name: str) -> None:
        if name not in self.world.oracle.savepoints:
            self.world.pin(name, self._pick(sorted(self.world.oracle.published), -which))

    @precondition(lambda self: self.world.free_savepoints())
    @rule(which=index)
    def owner_unpins(self, which: int) -> None:
        self.world.unpin(self._pick(self.world.free_savepoints(), which))

    @rule()
    def newest_manifest_is_damaged(self) -> None:
        self.world.damage_newest()

    # --- what must hold

    def check_invariants(self, *args: Any, **kwargs: Any) -> None:
        self.world.oracle.check_kept(self.world.record.min_epoch)

    def teardown(self) -> None:
        if self.world.store.objected:
            return  # what follows a violation would only hide it
        self.world.settle()
        if self.world.oracle.to_be_put_right:
            self.world.go_on()
            self.world.settle()
        self.world.oracle.check_exactly_once()
        self.world.check_garbage_gone()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_history_breaks_an_invariant(shard: int) -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=max(1, HISTORIES // SHARDS),
            stateful_step_count=40,
            deadline=None,
            database=None,
            print_blob=True,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
