"""Several operators of which one works: whoever holds the Lease.

A leader that cannot renew the Lease in time ends, before anybody else can take it; whatever it was at, the next one
finds in the records. Three things see to that, none of which needs the others: the thread that renews ends the process
if it fails, a watchdog ends it if the last renewal is too old (so a request that hangs counts, too), and every write
looks at the age of the last renewal first (so a process that was stopped for a while writes nothing when it goes on).

The client library's election is not used: its thread ends silently when a request fails, and its requests have no
time limit.
"""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from epochal.protocol.decision import Seconds
from epochal_operator.api import Api, ApiError, ConflictError, JsonObject, NotFoundError
from epochal_operator.process.election import LeaseRecord, LeaseView, Move, Timing, decide, look
from epochal_operator.process.vital_threads import end_process, vital_thread

logger = logging.getLogger(__name__)

EXIT_LOST = 75
KIND = "leases"


def steady_clock() -> Seconds:
    """Goes on while the machine sleeps: what was held before is not held any more after."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """This process's part in the election. ``api`` is its own, with short time limits: see :class:`Timing`."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        timing: Timing,
        clock: Callable[[], Seconds] = steady_clock,
        lost: Callable[[str], None] = lambda why: end_process(why, EXIT_LOST),
    ) -> None:
        self.identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        self.timing = timing
        self._api, self._namespace, self._name = api, namespace, name
        self._clock, self._lost = clock, lost
        self._view: LeaseView | None = None
        self._lease: JsonObject | None = None
        self._renewed: Seconds | None = None
        self._attempted = clock()
        self._failing = False
        self._leading = threading.Event()
        self._stop = threading.Event()
        self._renewer = vital_thread("lease", self._run, may_end=self._stop.is_set)
        self._watchdog = vital_thread("lease-watchdog", self._watch, may_end=self._stop.is_set)

    def wait(self) -> None:
        """Returns when this process holds the Lease; from then on it is renewed."""
        logger.info("Waiting for Lease %s/%s as %s", self._namespace, self._name, self.identity)
        self._renewer.start()
        self._leading.wait()
        self._watchdog.start()
        logger.info("Leading: this operator holds Lease %s/%s", self._namespace, self._name)

    def check(self) -> None:
        """Ends the process if the Lease may be somebody else's by now: to be called before anything is changed."""
        age = self._age()
        if age is None or age >= self.timing.renew_within:
            shown = "it was never held" if age is None else f"it was last renewed {age:.1f} s ago"
            self._lost(f"Lease {self._namespace}/{self._name} is lost: {shown}")

    def problem(self) -> str | None:
        """For the liveness probe: what is wrong with this process (not with the API server)."""
        if self._stop.is_set():
            return None
        if not self._renewer.is_alive():
            return "the thread of the Lease is dead"
        silent = self._clock() - self._attempted
        return f"no try to get or renew the Lease for {silent:.0f} s" if silent > 2 * self.timing.lease else None

    def release(self) -> None:
        """Give the Lease back, so that a standby need not wait. Nothing may be changed by this process any more."""
        self._stop.set()
        for thread in (self._renewer, self._watchdog):
            if thread.is_alive():
                thread.join(4 * self.timing.request)
        lease, age = self._lease, self._age()
        self._renewed = None  # from here on, whoever writes ends the process
        if self._renewer.is_alive() or lease is None or age is None or age >= self.timing.renew_within:
            return
        spec = lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            self._api.replace(KIND, self._namespace, self._name, lease | {"spec": spec})
            logger.info("Lease %s/%s is given back", self._namespace, self._name)
        except ApiError as error:
            logger.warning("Lease %s/%s is not given back and must expire: %s", self._namespace, self._name, error)

    # --- the threads --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            self._attempted = self._clock()
            try:
                self.attempt()
                if self._failing:
                    logger.info("Lease %s/%s: the API server answers again", self._namespace, self._name)
                self._failing = False
            except ApiError as error:
                # Outages end. A leader's watchdog knows how long it may wait; a standby may wait for ever.
                if not self._failing:
                    logger.warning("Lease %s/%s: %s", self._namespace, self._name, error)
                self._failing = True
            self._stop.wait(self.timing.retry)

    def _watch(self) -> None:
        while not self._stop.wait(self.timing.retry / 8):
            self.check()

    def _age(self) -> Seconds | None:
        renewed = self._renewed
        return None if renewed is None else self._clock() - renewed

    # --- one try ------------------------------------------------------------------------------------------------------

    def attempt(self) -> None:
        """Get or renew the Lease, if it may be had."""
        if self._leading.is_set() and self._lease is not None:
            try:
                self._write(self._lease, LeaseRecord.of(self._lease))
                return
            except (ConflictError, NotFoundError):
                pass  # somebody has edited or deleted it, or an answer was lost: look
        try:
            found: JsonObject | None = self._api.get(KIND, self._namespace, self._name)
        except NotFoundError:
            found = None
        record = LeaseRecord.of(found) if found else None
        if self._leading.is_set() and record is not None and record.holder != self.identity:
            self._lost(f"Lease {self._namespace}/{self._name} is lost: {record.holder or 'nobody'} holds it")
            return
        self._view = look(self._view, record, self.timing, self._clock())
        if self._leading.is_set() or decide(self._view, self.identity, self._clock()) is not Move.WAIT:
            try:
                self._write(found, record)
            except ConflictError:
                logger.info("Lease %s/%s: another operator was faster", self._namespace, self._name)

    def _write(self, lease: JsonObject | None, record: LeaseRecord | None) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (lease or {}).get("spec") or {}
        mine = record is not None and record.holder == self.identity
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.timing.lease)),
            "acquireTime": before.get("acquireTime") if mine else now,
            "renewTime": now,
            "leaseTransitions": record.transitions + (0 if mine else 1) if record else 0,
        }
        sent = self._clock()
        if lease is None:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            self._lease = self._api.create(KIND, self._namespace, body | {"spec": spec})
        else:
            self._lease = self._api.replace(KIND, self._namespace, self._name, lease | {"spec": spec})
        if self._stop.is_set():
            return
        self._renewed = sent
        self._leading.set()
