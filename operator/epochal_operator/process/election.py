"""Who may lead, decided from the Lease. Pure: the time is an argument, and nothing is asked for.

No clock of another machine is trusted: a Lease counts as held for as long as *this* process has not seen it change, by
its own clock. The times that are written into it are for people.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from epochal.protocol.decision import Seconds

LONGEST_LEASE: Seconds = 120.0
"""A Lease with a longer duration is not waited for any longer: somebody has edited it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a Lease lasts, and all that follows from it."""

    lease: Seconds = 15.0

    @property
    def renew_within(self) -> Seconds:
        """A leader that has not renewed for so long ends. Counted from when the renewal was sent, so that it ends
        before any standby, which counts from when it saw it, can take over."""
        return self.lease * 2 / 3

    @property
    def retry(self) -> Seconds:
        return self.lease * 2 / 15

    @property
    def request(self) -> Seconds:
        """To connect, and again to answer: a request that hangs leaves time for another one."""
        return self.lease / 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    holder: str
    renewed: str = ""
    transitions: int = 0
    duration: Seconds = 0.0

    @classmethod
    def of(cls, lease: dict[str, Any]) -> "LeaseRecord":
        spec = lease.get("spec") or {}
        return cls(
            holder=str(spec.get("holderIdentity") or ""),
            renewed=str(spec.get("renewTime") or ""),
            transitions=int(spec.get("leaseTransitions") or 0),
            duration=float(spec.get("leaseDurationSeconds") or 0),
        )


@dataclass(frozen=True, slots=True)
class LeaseView:
    """The Lease as it was last seen (None: there is none), and from when on somebody else may take it."""

    record: LeaseRecord | None
    free_from: Seconds


class Move(Enum):
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def look(before: LeaseView | None, record: LeaseRecord | None, timing: Timing, now: Seconds) -> LeaseView:
    """What is known after the Lease was read at ``now``."""
    if before is not None and before.record == record:
        return before
    if record is not None and not record.holder:
        return LeaseView(record, now)  # given back
    if record is not None:
        return LeaseView(record, now + max(timing.lease, min(record.duration, LONGEST_LEASE)))
    if before is None or before.record is None or not before.record.holder:
        return LeaseView(None, now)
    # Somebody has deleted it. Whoever held it does not know yet.
    return LeaseView(None, now + timing.lease)


def decide(view: LeaseView, me: str, now: Seconds) -> Move:
    if view.record is not None and view.record.holder == me:
        return Move.RENEW
    return Move.TAKE if now >= view.free_from else Move.WAIT
