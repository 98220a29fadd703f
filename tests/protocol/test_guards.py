# A guard that is taken out ignores what it is given.
# ruff: noqa: ARG005
"""Every invariant of the protocol has a guard, and a scenario that fails without it.

The table below is the one in ``docs/invariants.md``. Each row takes one guard out by replacing a function; a scenario
that still passes then would show nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError

from epochal.control import reconcile
from epochal.protocol import cleanup, generations, line, progress, publish, resolve, savepoints, start, store
from epochal.protocol.decision import InProgress
from epochal.protocol.errors import DocumentError, NewerDocumentError, ProtocolError
from tests.protocol import scenarios

Mutation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Guard:
    """``guard`` is an attribute of ``where``; ``without(original)`` is what stands there when it is taken out."""

    scenario: Callable[[], None]
    where: Any
    guard: str
    without: Callable[[Mutation], Mutation]

    @property
    def name(self) -> str:
        owner = self.where.__name__.rsplit(".", 1)[-1]
        return f"{owner}.{self.guard}"


def gives(value: Any) -> Callable[[Mutation], Mutation]:
    return lambda original: lambda *args, **kwargs: value


def _completed_at_start(original: Mutation) -> Mutation:
    def complete(spec: Any, record: Any, flight: Any, fate: Any, now: float) -> Any:
        decision = original(spec, record, flight, fate, now)
        return replace(decision, record=replace(decision.record, last_checkpoint=flight.started))

    return complete


def _flight_forgotten(original: Mutation) -> Mutation:
    return lambda spec, record, observed, now: original(spec, replace(record, in_flight=None), observed, now)


def _state_first(original: Mutation) -> Mutation:
    def classify(*args: Any) -> Any:
        plan = original(*args)
        manifests = tuple(store.ObjectInfo(name, 0) for name in plan.manifests)
        return replace(plan, manifests=tuple(info.name for info in plan.state), state=manifests)

    return classify


def _fence_only_before(original: Mutation) -> Mutation:
    """The second look of each publish sees nothing."""
    looks: list[int] = []

    def look(*args: Any) -> Any:
        looks.append(1)
        return original(*args) if len(looks) % 2 else None

    return look


def _all_ones_own(original: Mutation) -> Mutation:
    """Whoever finds its bytes there has written them."""

    def create(self: Any, name: str, data: bytes) -> Any:
        made = original(self, name, data)
        return store.Created() if isinstance(made, store.Created) else made

    return create


def _no_compare(original: Mutation) -> Mutation:
    """Who is refused has lost, even against itself."""

    def create(self: Any, name: str, data: bytes) -> Any:
        def put() -> bool:
            try:
                obstore.put(self._backend, name, data, mode="create")
            except AlreadyExistsError:
                return False
            return True

        return store.Created() if self._tried("create", name, put) else store.Exists(b"")

    return create


def _any_turn(original: Mutation) -> Mutation:
    def turn_to(self: Any, manifest: Any) -> Any:
        turns = list(self._turns(down_to=manifest.generation))
        return min(turns, key=lambda turn: turn.back_to, default=None)

    return turn_to


def _newer_is_damage(original: Mutation) -> Mutation:
    def read(*args: Any) -> Any:
        try:
            return original(*args)
        except NewerDocumentError as error:
            raise DocumentError(error.name, error.problem) from error

    return read


def _target_unseen(original: Mutation) -> Mutation:
    """Claimed first, and looked at after that."""

    def begin(store: Any, paths: Any, request: Any) -> Any:
        publish.claim_generation(store, paths, request.record)
        return original(store, paths, request)

    return begin


def _gap_left(original: Mutation) -> Mutation:
    """Numbers in between stay free."""

    def retire(store: Any, paths: Any, by: Any) -> Any:
        newest = generations.newest_generation(store, paths, before=by.generation)
        return generations.Generations(store, paths, newest)

    return retire


G = Guard
GUARDS = [
    # publishing
    G(scenarios.a_fenced_generation_publishes_nothing, publish, "newer_generation", gives(None)),
    G(scenarios.a_zombie_between_fence_and_manifest_publishes_nothing, start, "seal", gives(True)),
    G(scenarios.a_zombie_that_was_overtaken_commits_no_sink, publish, "newer_generation", _fence_only_before),
    G(scenarios.a_zombie_whose_seal_was_cleaned_up_makes_no_epoch, resolve, "can_be_an_epoch", gives(True)),
    G(scenarios.an_epoch_that_was_given_up_never_appears, publish, "seal", gives(True)),
    G(scenarios.a_store_that_overwrites_begins_no_generation, store.Store, "check_create", gives(None)),
    G(scenarios.a_lost_answer_is_no_defeat, store.Store, "create", _no_compare),
    G(scenarios.a_generation_that_comes_up_late_does_not_turn_the_line, publish, "retire_generations", _gap_left),
    # restoring
    G(scenarios.what_was_left_behind_is_not_restored, line.Line, "left_behind", gives(None)),
    G(scenarios.one_can_go_back_to_what_was_left_behind, line.Line, "turn_to", _any_turn),
    G(scenarios.a_job_that_was_emptied_once_is_not_emptied_by_damage, resolve, "came_after", gives(False)),
    G(scenarios.a_job_with_unreadable_state_does_not_start_empty, resolve, "had_epochs", gives(False)),
    G(scenarios.a_target_that_cannot_be_restored_does_not_turn_the_line, start, "start_generation", _target_unseen),
    G(scenarios.an_epoch_of_a_newer_release_is_not_passed_over, resolve, "read_epoch", _newer_is_damage),
    G(scenarios.a_job_that_stops_leaves_no_output_behind, reconcile, "uncommitted_epoch", gives(None)),
    # cleanup and savepoints
    G(
        scenarios.cleanup_keeps_what_a_kept_epoch_needs,
        cleanup,
        "is_garbage",
        lambda _: lambda name, info, min_epoch, needed: name.epoch < min_epoch,
    ),
    G(
        scenarios.cleanup_keeps_what_an_unpublished_epoch_has_written,
        cleanup,
        "is_garbage",
        lambda _: lambda name, info, min_epoch, needed: info.name not in needed,
    ),
    G(scenarios.whoever_finds_a_manifest_finds_what_it_names, cleanup, "classify", _state_first),
    G(scenarios.a_savepoint_made_during_cleanup_keeps_its_objects, cleanup, "_late_savepoints", gives(set())),
    G(scenarios.a_savepoint_that_came_too_late_is_taken_back, savepoints, "still_there", gives(True)),
    G(scenarios.a_late_caller_does_not_take_back_another_ones_savepoint, store.Store, "create", _all_ones_own),
    # the controller
    G(scenarios.one_checkpoint_is_in_flight, progress, "progress", _flight_forgotten),
    G(scenarios.no_checkpoint_starts_while_a_cleanup_exists, progress, "cleanup_allows_checkpoint", gives(True)),
    G(scenarios.the_interval_counts_from_completion, progress, "_complete", _completed_at_start),
    G(
        scenarios.a_stop_outlives_the_checkpoint_in_flight,
        progress,
        "request_stop",
        lambda original: lambda record: record if record.in_flight else original(record),
    ),
    G(
        scenarios.a_number_is_never_given_out_twice,
        progress,
        "restored",
        lambda original: lambda record, epoch, newest: original(record, epoch, epoch),
    ),
    G(
        scenarios.too_many_failures_in_a_row_replace_the_driver,
        progress,
        "_fail",
        lambda original: lambda spec, *args, **kw: original(replace(spec, tolerable_failures=10**6), *args, **kw),
    ),
    G(
        scenarios.a_checkpoint_that_takes_too_long_is_aborted,
        progress,
        "_too_late",
        lambda _: lambda spec, record, flight, now: progress._wait_for(record, flight, InProgress()),
    ),
    G(
        scenarios.a_controller_that_dies_still_replaces_the_driver,
        progress,
        "_recover",
        lambda original: lambda record, *args: replace(original(record, *args), record=record),
    ),
    G(scenarios.first_checkpoints_are_spread, progress, "first_delay", gives(0.0)),
    G(
        scenarios.a_clock_set_back_stops_no_checkpoint,
        progress,
        "interval_passed",
        lambda _: lambda spec, last, now: now - last > spec.interval,
    ),
    G(
        scenarios.a_clock_set_back_moves_no_deadline_away,
        progress,
        "_without_future",
        lambda _: lambda spec, record, now: record,
    ),
    G(
        scenarios.a_failing_cleanup_backs_off_and_holds_nothing_back,
        progress,
        "_cleanup_failed",
        lambda original: (
            lambda record, now, *args: replace(
                original(record, now, *args),
                record=replace(record, cleanup=replace(record.cleanup, started=None, not_before=now)),
            )
        ),
    ),
    G(
        scenarios.no_cleanup_starts_while_a_driver_may_be_going_back,
        progress,
        "may_be_restoring",
        gives(False),
    ),
    G(scenarios.a_cleanup_does_not_wait_for_ever, progress, "_cleanup_goes_first", gives(False)),
]


def _id(row: Guard) -> str:
    return row.scenario.__name__


@pytest.mark.parametrize("row", GUARDS, ids=_id)
def test_it_holds(row: Guard) -> None:
    row.scenario()


@pytest.mark.parametrize("row", GUARDS, ids=_id)
def test_it_fails_without_its_guard(row: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row.where, row.guard, row.without(getattr(row.where, row.guard)))
    with pytest.raises((AssertionError, ProtocolError)):
        row.scenario()


@pytest.mark.parametrize("row", GUARDS, ids=_id)
def test_the_page_on_invariants_names_it(row: Guard) -> None:
    page = (Path(__file__).parents[2] / "docs" / "invariants.md").read_text()
    found = next((text for text in page.splitlines() if f"`{row.scenario.__name__}`" in text), "")
    assert f"`{row.name}`" in found
