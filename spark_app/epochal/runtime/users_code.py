"""Calls of the user's own code on the driver. What it raises is told as such: a slip in it is fixed by an edit, where
the same error of a library may be an outage."""

import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from epochal.protocol.faults import Area, fault_of
from epochal.runtime.errors import UserCodeError, summarize_error
from epochal.runtime.spark.jvm import JAVA_BRIDGE

_EPOCHAL = Path(__file__).parents[1]
_SPARK = tuple(Path(module.__file__ or "").parent for module in (pyspark, JAVA_BRIDGE))
_CALLERS = tuple(f"{directory}{os.sep}" for directory in (_EPOCHAL, *_SPARK))
_INSTALLED = (*_CALLERS, *(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib")))


def is_users(code: object) -> bool:
    """Whether the class of this is the user's, and not one of Epochal's."""
    return not _is_ours(type(code))


@contextmanager
def users_code(*, really: bool = True) -> Iterator[None]:
    """Around a call of the user's code; if it ``really`` is. Errors of Epochal's own kinds say themselves who fixes
    them."""
    try:
        yield
    except Exception as error:
        if not really or _is_ours(type(error)):
            raise
        raise _told(error) from error


def users_line(error: BaseException) -> traceback.FrameSummary:
    """The last line that is in no library: most errors come up deep inside of one. Of code that is installed itself,
    the last line that is not Spark's."""
    frames = traceback.extract_tb(error.__traceback__)
    for libraries in (_INSTALLED, _CALLERS):
        if found := [frame for frame in frames if not frame.filename.startswith(libraries)]:
            return found[-1]
    return frames[-1]


def _told(error: Exception) -> UserCodeError:
    said, found = summarize_error(error), UserCodeError()
    found.__cause__ = error
    if type(error).__module__ == "builtins" and fault_of(found).area is Area.CODE:
        # A slip says little without its kind and its place, such as KeyError: 'user'.
        where = users_line(error)
        said = f"{type(error).__name__}: {said} ({where.filename}:{where.lineno}, in {where.name})"
    return UserCodeError(said)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "epochal"
