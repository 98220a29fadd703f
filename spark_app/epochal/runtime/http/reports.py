"""What the parts of a driver say of themselves. One that cannot must not keep the driver from answering: a controller
that gets no answer takes the driver for dead."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from epochal.runtime.errors import summarize_error

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Reports:
    """One round of asking. ``known`` has the problems that were logged before: a driver is asked every second."""

    def __init__(self, known: set[str]) -> None:
        self._known = known
        self._problems: list[str] = []

    def of(self, what: str, ask: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return ask()
        except Exception as error:
            problem = f"no report of {what}: {type(error).__name__}: {summarize_error(error)}"
            self._problems.append(problem)
            if problem not in self._known:
                self._known.add(problem)
                logger.warning("Status has %s", problem, exc_info=True)
            return otherwise

    def each(self, parts: Mapping[str, Callable[[], _T]]) -> tuple[_T, ...]:
        """The reports of all that can give one."""
        found = (self.of(f"operator {name!r}", ask, None) for name, ask in parts.items())
        return tuple(one for one in found if one is not None)

    @property
    def message(self) -> str:
        """What is missing, and why."""
        return "; ".join(self._problems)
