"""Where kopf meets the operator. Each handler delegates at once; nothing is decided here."""

import asyncio
import functools
import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any

import kopf

from epochal.control.events import Event
from epochal.control.schema import GROUP, VERSION
from epochal_operator.controller import Controller
from epochal_operator.names import FINALIZER, KOPF_PREFIX, PLURAL
from epochal_operator.process.health import SLOWEST_LOOP, Beat, Health
from epochal_operator.process.reconcile_pools import ReconcilePools
from epochal_operator.process.vital_threads import end_process

LONGEST_END = 30.0
"""Seconds that kopf has to end its tasks."""


class _Backoffs:
    """Pauses between tries of kopf's own requests, without end: an API server that answers with errors for minutes is
    an outage like any other, and kopf would end the process."""

    def __iter__(self) -> Iterator[float]:
        for pause in itertools.chain((1, 1, 2, 3), itertools.repeat(5)):
            yield pause * random.uniform(0.75, 1.25)


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf would copy every spec into an annotation to tell what changed, and the whole object with every event.
    Nothing here asks for that."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> None:  # noqa: ARG002
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        pass


def settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=KOPF_PREFIX)
    settings.persistence.diffbase_storage = _NoDiffBase()
    # Our own events say what happened; kopf's say that its handlers ran.
    settings.posting.loggers = False
    settings.posting.reporting_component = "epochal-operator"
    settings.posting.event_name_prefix = "epochal-"
    # The CRD is there when the operator starts: watching for others needs rights that nobody should have to give.
    settings.scanning.disabled = True
    # A watch can die without a word.
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = _Backoffs()
    settings.background.cancellation_polling = 5
    settings.execution.default_backoff = 5
    return settings


def register(registry: kopf.OperatorRegistry, controller: Controller, *, rounds: ReconcilePools, tick: float) -> None:
    """Register the handlers: one for as long as a job lives and one for its deletion, both rounds of one loop."""

    @kopf.on.login(id="login", registry=registry)
    def on_login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    # Not a timer: kopf's own work for each round of a timer costs more than most rounds do.
    @kopf.daemon(GROUP, VERSION, PLURAL, id="tick", registry=registry)
    async def on_tick(body: kopf.Body, stopped: kopf.DaemonStopped, **_: Any) -> None:
        uid = str(body["metadata"]["uid"])
        with rounds.of_job(uid):
            # Jobs that are found together, when the operator starts, do not all have their rounds together.
            await stopped.wait(random.uniform(0, tick))
            while not stopped:
                seen = dict(body)
                if controller.quiet(seen):
                    rounds.note()
                else:
                    _tell(body, await rounds.run(uid, functools.partial(controller.tick, seen)))
                await stopped.wait(tick)

    @kopf.on.delete(GROUP, VERSION, PLURAL, id="stop-first", registry=registry)
    async def on_delete(body: kopf.Body, **_: Any) -> None:
        """Reconciles until nothing runs any more. An operator that is restarted begins here again."""
        uid = str(body["metadata"]["uid"])
        with rounds.of_job(uid):
            while True:
                gone, events = await rounds.run(uid, functools.partial(controller.delete_step, dict(body)))
                _tell(body, events)
                if gone:
                    break
                await asyncio.sleep(tick)
        controller.forget(dict(body))

    @kopf.on.event(GROUP, VERSION, PLURAL, id="forget", registry=registry)
    def on_event(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf calls it so
        # Also when somebody has taken the finalizer away.
        if type == "DELETED":
            controller.forget(dict(body))


def register_health(registry: kopf.OperatorRegistry, health: Health) -> None:
    """Let the liveness probe see that kopf's event loop runs, and let it not take for ever to end."""
    beat = Beat("the event loop has not run", SLOWEST_LOOP)
    health.add("loop", beat.problem)

    def again(loop: asyncio.AbstractEventLoop) -> None:
        beat.beat()
        # Not a task: kopf would wait for it to end.
        loop.call_later(1.0, again, loop)

    @kopf.on.startup(id="beat", registry=registry)
    async def on_startup(**_: Any) -> None:
        again(asyncio.get_running_loop())

    @kopf.on.cleanup(id="end", registry=registry)
    async def on_cleanup(**_: Any) -> None:
        beat.rest()
        late = threading.Timer(LONGEST_END, end_process, [f"kopf has not ended within {LONGEST_END:.0f} s"])
        late.daemon = True
        late.start()


def _tell(body: kopf.Body, events: list[Event]) -> None:
    for event in events:
        kopf.event(body, type=event.type, reason=event.reason, message=event.message[:1000])
