"""Stopped before any request and run again, each operation ends where an undisturbed one does: exhaustively."""

from collections.abc import Callable
from typing import Any

import pytest

from epochal.protocol.cleanup import clean
from epochal.protocol.epochs import Epoch
from epochal.protocol.publish import publish
from epochal.protocol.savepoints import pin
from epochal.protocol.start import StartRequest, start_generation
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch, state_name
from tests.protocol.stepping import Actor, Order, SteppedStore

Operation = Callable[[SteppedStore], Any]


def _start(store: SteppedStore) -> Any:
    request = StartRequest(record=generation_record(4, back_to=2), known=Epoch(3), issued=Epoch(6))
    return start_generation(store, PATHS, request)


OPERATIONS: dict[str, Operation] = {
    "start_generation": _start,
    "publish": lambda store: publish(store, PATHS, manifest(4, generation=2)),
    "pin": lambda store: pin(store, PATHS, "kept", Epoch(2)),
    "clean": lambda store: clean(store, PATHS, Epoch(3)),
}


def _prepared() -> SteppedStore:
    store = SteppedStore(tries=1)
    for generation in (1, 2):
        store.create(PATHS.generation(generation_record(generation).generation), b"")
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    put_epoch(store, manifest(3, generation=2, objects=(state_name(2), state_name(3, generation=2))))
    return store


def _content(store: SteppedStore) -> dict[str, bytes]:
    return {name: store.get(name) for name in store.list_names("")}


def _undisturbed(operation: Operation) -> tuple[int, Any, dict[str, bytes]]:
    store = _prepared()
    actor = Actor("undisturbed", lambda: operation(store))
    result = actor.finish()
    return len(store.log), result, _content(store)


@pytest.mark.parametrize("order", [order for order in Order if order is not Order.DO], ids=lambda order: order.name)
@pytest.mark.parametrize("name", OPERATIONS)
def test_stopped_anywhere_and_run_again_it_ends_in_the_same_place(name: str, order: Order) -> None:
    operation = OPERATIONS[name]
    requests, result, content = _undisturbed(operation)
    assert requests >= 3
    for stopped_at in range(requests):
        store = _prepared()
        store.trouble = (stopped_at, order)
        first = Actor("stopped", lambda store=store: operation(store))  # type: ignore[misc]
        first.finish()
        assert first.result is None, "it was not stopped"
        for late in store.late:
            late()
        again = operation(store)
        assert _content(store) == content, f"stopped at request {stopped_at} of {requests}"
        if name != "clean":  # which counts only what it deletes itself
            assert again == result
