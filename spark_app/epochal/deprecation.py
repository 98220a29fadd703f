"""How something public is taken away: it works as before for a while, and says what to use instead.

``docs/compatibility.md`` says what counts as public, and for how long.
"""

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def deprecated(*, instead: str, as_of: str, removed_in: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Warn once per place of use. Versions are written as ``0.2``."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        text = (
            f"{function.__qualname__} is deprecated since Epochal {as_of} and will be removed in {removed_in}: "
            f"use {instead}"
        )

        @functools.wraps(function)
        def warning(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return warning

    return decorate
