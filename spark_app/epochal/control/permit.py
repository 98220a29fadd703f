"""What lets a round do something that cannot be undone.

An operator may have stood still since it looked at the cluster, and another one may have gone on meanwhile. So whatever
starts, ends or deletes something asks for a :class:`Permit`, and only a write of the job's record returns one: a write
that succeeds only if nobody else has written the record since this round read it.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Permit:
    """``drivers`` and ``cleanups`` are what was seen before the write, as the place where the job runs knows them: what
    may be ended. What has come up since is somebody else's."""

    drivers: tuple[Any, ...] = ()
    cleanups: tuple[Any, ...] = ()
