"""What sinks compute while the next batch is read: windows that were closed need not hold up the rows that come."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

MOST_WAITING = 2
"""So many jobs may wait or run; whoever comes with one more waits. State that they read is held until they are done."""


class Background:
    """One thread, so that all is done in the order in which it came."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._room = threading.Semaphore(MOST_WAITING)
        self._newest: Future[None] | None = None
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], None]) -> None:
        """``job`` does not raise."""
        self._room.acquire()
        self._add(job).add_done_callback(lambda _: self._room.release())

    def after(self, call: Callable[[], None]) -> None:
        """Call when all that came before is done: now, if there is nothing."""
        with self._lock:
            idle = self._newest is None or self._newest.done()
        if idle:
            call()
        else:
            self._add(call)

    def close(self) -> None:
        """Take no more. What is there is still done, or fails: somebody may wait for it."""
        self._pool.shutdown(wait=False)

    def _add(self, job: Callable[[], None]) -> "Future[None]":
        with self._lock:
            self._newest = self._pool.submit(job)
            return self._newest
