"""Threads that the operator cannot do without: if one ends, however it ends, so does the process.

An operator that lives on without one of them looks alive and is not: it acts on an old view, or keeps a Lease that it
does not renew. Kubernetes starts a new process within seconds, and that one has everything.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

logger = logging.getLogger(__name__)

EXIT_BROKEN = 70
"""A part of the operator has stopped working."""


def end_process(why: str, code: int = EXIT_BROKEN) -> NoReturn:
    """End at once, from any thread. Not sys.exit: other threads must not write anything more."""
    try:
        logger.critical("Ending: %s", why)
        sys.stderr.flush()
    finally:
        os._exit(code)


def vital_thread(
    name: str, run: Callable[[], None], *, may_end: Callable[[], bool] = lambda: False
) -> threading.Thread:
    """A thread, not yet started, whose end is the end of the process, unless ``may_end`` says otherwise."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            logger.exception("Thread %s failed", name)
            end_process(f"thread {name} failed: {type(error).__name__}")
        if not may_end():
            end_process(f"thread {name} ended")

    return threading.Thread(target=guarded, name=name, daemon=True)
