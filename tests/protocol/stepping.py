"""Runs the real protocol functions one request at a time.

An :class:`Actor` is a piece of protocol code in a greenlet of its own. Before each request to the store it hands
control back; whoever resumes it says what becomes of the request. An actor that is not resumed is paused for as long as
one likes, which is what a zombie is; one that is killed has crashed between two requests.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import greenlet
from obstore.store import MemoryStore

from epochal.protocol.errors import StoreError, StoreUnavailableError
from epochal.protocol.store import RetryPolicy, Store

_T = TypeVar("_T")


LONGEST = 500
"""More requests than any operation of a test makes."""


class Order(Enum):
    """What becomes of a request."""

    DO = "do"
    ERROR_BEFORE = "error before the effect"
    ERROR_AFTER = "error after the effect: the answer is lost"
    DELAY = "error now, the effect later: the request is still on its way"
    CRASH = "whoever made the request dies before it"


class _Seen(BaseException):
    """Carries what an onlooker objects to out of the store, which would take any other exception for the backend's."""

    def __init__(self, violation: AssertionError) -> None:
        super().__init__(violation)
        self.violation = violation


def _no_pause(seconds: float) -> None:
    pass


def _nobody_looks(kind: str, name: str) -> None:
    pass


class SteppedStore(Store):
    """The real store; each request waits for an order if an actor makes it."""

    def __init__(self, tries: int = 2) -> None:
        super().__init__(MemoryStore(), uri="memory:///", retry=RetryPolicy(tries=tries), sleep=_no_pause)
        self.late: list[Callable[[], Any]] = []
        self.after_request: Callable[[str, str], None] = _nobody_looks
        self.log: list[str] = []
        self.trouble: tuple[int, Order] | None = None
        self.objected = False

    def _troubled(self, order: Order) -> Order:
        """``trouble`` says how many requests from now, whoever makes it, one goes wrong, and how."""
        if self.trouble is not None:
            left, fault = self.trouble
            self.trouble = (left - 1, fault) if left else None
            if not left:
                return fault
        return order

    def _tried(self, kind: str, name: str, request: Callable[[], _T]) -> _T:
        actor = greenlet.getcurrent()
        if not isinstance(actor, _ActorGreenlet):
            return super()._tried(kind, name, request)

        def stepped() -> _T:
            order = self._troubled(actor.wait(f"{kind} {name}"))
            self.log.append(f"{actor.name}: {kind} {name} [{order.name}]")
            if order is Order.CRASH:
                raise greenlet.GreenletExit
            if order is Order.DELAY and kind == "create":
                self.late.append(lambda: (request(), self.after_request(kind, name)))
            elif order in (Order.DO, Order.ERROR_AFTER):
                result = request()
                try:
                    self.after_request(kind, name)
                except AssertionError as violation:
                    self.objected = True
                    raise _Seen(violation) from violation
                if order is Order.DO:
                    return result
            raise StoreUnavailableError(self.uri, f"failed to {kind} {name}: {order.value}")

        return super()._tried(kind, name, stepped)


class _ActorGreenlet(greenlet.greenlet):
    name = ""

    def wait(self, what: str) -> Order:
        order: Order = self.parent.switch(what)  # type: ignore[union-attr]
        return order


class Actor:
    """``work`` in steps. ``waiting_for`` is the request (or the message) that it stands before; None once it has
    ended, with ``result`` or ``error``."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.result: Any = None
        self.error: StoreError | None = None
        self.killed = False
        self.paused = False
        self._work = work
        self._greenlet = _ActorGreenlet(self._run)
        self._greenlet.name = name
        self.waiting_for: str | None = "its start"

    @property
    def alive(self) -> bool:
        return self.waiting_for is not None

    def step(self, order: Order = Order.DO) -> None:
        """Up to the next request."""
        assert self.alive
        self._greenlet.parent = greenlet.getcurrent()
        try:
            self.waiting_for = self._greenlet.switch(order)
        except _Seen as seen:
            self.waiting_for = None
            raise seen.violation from None
        if self._greenlet.dead:
            self.waiting_for = None

    def step_up_to(self, what: str) -> bool:
        """Up to the next request (or message) in whose name ``what`` occurs; whether there was one."""
        for _ in range(LONGEST):
            if not self.alive or what in str(self.waiting_for) or self.waiting_for == "a barrier":
                break
            self.step()
        else:
            raise AssertionError(f"{self.name} goes on for ever: {self.waiting_for}")
        return self.alive and what in str(self.waiting_for)

    def finish(self) -> Any:
        while self.alive:
            self.step()
        return self.result

    def kill(self) -> None:
        """Crash: nothing of the actor runs any more, not even what would tidy up."""
        if self.alive:
            self.killed = True
            self.waiting_for = None
            self._greenlet.parent = greenlet.getcurrent()
            self._greenlet.throw(greenlet.GreenletExit)

    def _run(self, order: Order) -> None:
        try:
            self.result = self._work()
        except StoreError as error:
            self.error = error


def wait_for_message(what: str) -> None:
    """Called by an actor that has nothing to ask the store: it stands still until it is resumed."""
    actor = greenlet.getcurrent()
    assert isinstance(actor, _ActorGreenlet)
    actor.wait(what)
