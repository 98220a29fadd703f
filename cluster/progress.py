"""Lines that tell what is being done and how long it took."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(message: str) -> None:
    print(f"cluster: {message}", file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is done when it is done; nothing if it took no time, because then it was there already."""
    started = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{what}: failed after {time.monotonic() - started:.1f} s")
        raise
    say(f"{what}: {time.monotonic() - started:.1f} s")
