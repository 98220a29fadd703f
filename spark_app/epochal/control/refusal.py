"""When the API server does not take what a driver needs: a quota is used up, Pod Security or a webhook says no, or the
API server has no time for it. Pure: no clock, no client.

None of this is a restart. The same generation is tried again, after pauses that grow: the driver has not begun, so
there is nothing to go back to, and a number that nobody used need not be given up.
"""

from dataclasses import dataclass

from epochal.control.job import JobSpec
from epochal.protocol.decision import Seconds


@dataclass(frozen=True, slots=True)
class Refused:
    """What came of the last try: ``resource`` is the kind of object that was to be made, as in a URL; ``message`` is
    what the API server said. ``for_good``: no later try can succeed."""

    resource: str
    message: str
    for_good: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTries:
    """Written down from the first try that is refused until a driver is seen."""

    tries: int
    since: Seconds
    not_before: Seconds
    message: str
    for_good: bool = False

    def waits(self, spec: JobSpec, now: Seconds) -> bool:
        """Whether it is too early for the next try. A clock that was set back does not hold it up."""
        return 0 < self.not_before - now <= spec.restart_policy.max_backoff


def refused_again(
    before: RefusedTries | None, seen: Refused, spec: JobSpec, now: Seconds, *, seed: str
) -> RefusedTries:
    """Counted, and with the moment of the next try."""
    tries = before.tries + 1 if before else 1
    return RefusedTries(
        tries=tries,
        since=before.since if before else now,
        not_before=now + spec.restart_policy.pause(tries, seed=f"{seed}/{tries}"),
        message=seen.message,
        for_good=seen.for_good,
    )


class ResourceRefusedError(Exception):
    """What a driver or a cleanup needs was not taken."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused
