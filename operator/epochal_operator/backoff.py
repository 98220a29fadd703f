"""Pauses between requests to an API server that refuses them or does not answer."""

import random
from dataclasses import dataclass

from epochal.protocol.decision import Seconds
from epochal_operator.api import ApiError

FIRST: Seconds = 1.0
LONGEST: Seconds = 15.0
LONGEST_ASKED: Seconds = 60.0
"""An API server may ask for a longer pause, but not for any."""


@dataclass(slots=True)
class Pauses:
    """Twice as long each time, without end, and shortened by chance, so that not everybody comes back at once."""

    _tries: int = 0
    _until: Seconds = 0.0

    def next(self, error: Exception) -> Seconds:
        longest = min(LONGEST, FIRST * 2.0 ** min(self._tries, 10))
        self._tries += 1
        asked = error.retry_after if isinstance(error, ApiError) else None
        return max(longest * random.uniform(0.5, 1.0), min(asked or 0.0, LONGEST_ASKED))

    def begin(self, error: Exception, now: Seconds) -> None:
        self._until = now + self.next(error)

    def lasts(self, now: Seconds) -> bool:
        return 0 < self._until - now <= LONGEST_ASKED

    def reset(self) -> None:
        self._tries, self._until = 0, 0.0
