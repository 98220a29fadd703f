"""The threads in which rounds of jobs run, so that jobs whose round hangs slow no other job.

A round waits for its job's driver, for its job's store and for the API server. Each wait has a time limit, and a job
has one round at a time; so with a thread for each round that waits, nobody waits for somebody else's driver or store.
Threads are not without end, though. So a job that had a slow round has its next ones among its like, in threads of
their own, until none was slow for a while: however many jobs hang, for ever or now and then, the threads of the others
are theirs alone.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from epochal.protocol.decision import Seconds
from epochal_operator.process.health import OLDEST_ROUND, Beat

logger = logging.getLogger(__name__)

ROUNDS_AT_ONCE = 512
"""Of jobs whose rounds are quick, and as many of the others."""

SLOW: Seconds = 1.0

SLOW_FOR: Seconds = 60.0
"""So long after a slow round a job still has its rounds among the slow ones: one that hangs every other time, too."""

_T = TypeVar("_T")


class ReconcilePools:
    def __init__(
        self,
        threads: int = ROUNDS_AT_ONCE,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """``before`` is called at the beginning of each round, in its thread."""
        self._quick = ThreadPoolExecutor(threads, thread_name_prefix="round")
        self._slow = ThreadPoolExecutor(threads, thread_name_prefix="slow-round")
        self._clock, self._before = clock, before
        self._lock = threading.Lock()
        self._slow_until: dict[str, Seconds] = {}
        self._running: set[Future[Any]] = set()
        self._jobs = 0
        self._beat = Beat("no job has been reconciled", OLDEST_ROUND)

    async def run(self, job: str, function: Callable[[], _T]) -> _T:
        """Run a round of ``job`` in a thread. Cancelled, it goes on there: see :meth:`close`."""
        return await asyncio.wrap_future(self._submit(job, function))

    def _submit(self, job: str, function: Callable[[], _T]) -> Future[_T]:
        with self._lock:
            slow = self._slow_until.get(job, -math.inf) > self._clock()
        pool = self._slow if slow else self._quick
        future = pool.submit(self._timed, job, function)
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._ended)
        return future

    def _timed(self, job: str, function: Callable[[], _T]) -> _T:
        self._before()
        begun = self._clock()
        try:
            return function()
        finally:
            now = self._clock()
            if now - begun >= SLOW:
                with self._lock:
                    self._slow_until[job] = now + SLOW_FOR

    def _ended(self, future: Future[_T]) -> None:
        with self._lock:
            self._running.discard(future)
        if not future.cancelled():
            self.note()

    @contextmanager
    def of_job(self, job: str) -> Iterator[None]:
        """Around all rounds of a job: from now on, rounds are expected."""
        with self._lock:
            self._jobs += 1
        self.note()
        try:
            yield
        finally:
            with self._lock:
                self._jobs -= 1
                self._slow_until.pop(job, None)
            self.note()

    def note(self) -> None:
        """A round has ended, or was found not to be needed."""
        with self._lock:
            (self._beat.beat if self._jobs else self._beat.rest)()

    def problem(self) -> str | None:
        """For the liveness probe. Rounds of some jobs that hang are none: they are to be seen in the metrics."""
        return self._beat.problem()

    def close(self, seconds: Seconds) -> bool:
        """Let no round begin any more, and give those that run time to end. Says whether none is left."""
        for pool in (self._quick, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            left = list(self._running)
        return not wait(left, timeout=seconds).not_done
