"""Ending exchanges that last too long, by one thread for all of them: a timer for each would be a thread for each."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Deadlines:
    """Calls ``end`` of whatever is not over in time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int]] = []
        self._ends: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, seconds: float, end: Callable[[], None]) -> Iterator[None]:
        """``end`` is called from another thread if the body of the ``with`` takes longer."""
        number = next(self._numbers)
        when = time.monotonic() + seconds
        with self._changed:
            self._ends[number] = end
            heapq.heappush(self._heap, (when, number))
            if self._heap[0][1] == number:
                self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._ends.pop(number, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._heap:
                    self._changed.wait()
                left = self._heap[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                end = self._ends.pop(heapq.heappop(self._heap)[1], None)
            if end is not None:
                end()
