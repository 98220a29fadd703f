"""What batches need not wait for: computing closed windows for sinks, and letting go of what tables dropped."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

MOST_WAITING = 2
"""So many jobs may wait or run; whoever comes with one more waits. State that they read is held until they are done."""

logger = logging.getLogger(__name__)


class Background:
    """One thread, so that all is done in the order in which it came."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._room = threading.Semaphore(MOST_WAITING)

    def submit(self, job: Callable[[], None]) -> None:
        """``job`` does not raise."""
        self._room.acquire()
        self._pool.submit(job).add_done_callback(lambda _: self._room.release())

    def after(self, call: Callable[[], None]) -> None:
        """Call when all that came before is done, however much waits; at once, when no more is taken."""

        def guarded() -> None:
            try:
                call()
            except Exception:
                logger.warning("Letting go failed", exc_info=True)

        try:
            self._pool.submit(guarded)
        except RuntimeError:
            guarded()

    def close(self) -> None:
        """Take no more. What is there is still done, or fails: somebody may wait for it."""
        self._pool.shutdown(wait=False)

    def wait_for_end(self) -> None:
        """After :meth:`close`: until all is done."""
        self._pool.shutdown(wait=True)
