"""Waiting for a target that is away: a restart of the driver would cost more."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from epochal.protocol.faults import worth_waiting
from epochal.runtime.errors import summarize_error

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Patience:
    """``ended`` is set when the driver is to end: nothing is waited for then. ``say`` is told what is waited for, and
    an empty text once that is over."""

    ended: threading.Event = field(default_factory=threading.Event)
    say: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic

    def call(
        self,
        what: str,
        call: Callable[[], T],
        *,
        seconds: float,
        on_wait: Callable[[str], None] = lambda _: None,
        before_retry: Callable[[], None] = lambda: None,
        progress: Callable[[], int] = lambda: 0,
    ) -> T:
        """Call until it works, for so many seconds; only where the table of faults says that waiting helps. The call
        must be one that may be made twice. ``before_retry`` sees whether it still may; it is part of the try. Where
        ``progress`` has moved when a try fails, the target has been there meanwhile, and waiting begins anew. An error
        may say by ``retry_after`` how many seconds the target asks to wait."""
        began, pause, waits, reached = self.clock(), FIRST_PAUSE, False, progress()
        try:
            while True:
                try:
                    if waits:
                        before_retry()
                    return call()
                except Exception as error:
                    if progress() != reached:
                        began, pause, reached = self.clock(), FIRST_PAUSE, progress()
                    left = began + seconds - self.clock()
                    if left <= 0 or self.ended.is_set() or not worth_waiting(error):
                        raise
                    waits = True
                    message = f"{what} waits, and tries again for {left:.0f} s: {summarize_error(error)}"
                    logger.warning("%s", message[0].upper() + message[1:])
                    self._tell(message, on_wait)
                    # Shortened by chance, so that jobs that wait for one target do not all come at once.
                    chosen = max(pause * random.uniform(0.5, 1.0), getattr(error, "retry_after", 0.0))
                    if self.ended.wait(min(chosen, left)):
                        raise
                    pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            if waits:
                self._tell("", on_wait)

    def _tell(self, message: str, on_wait: Callable[[str], None]) -> None:
        self.say(message)
        on_wait(message)
