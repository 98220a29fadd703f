"""How rows flow through a job, in a few numbers: from what its driver says. Pure.

A driver is not believed blindly: its numbers go to status and metrics only if they are numbers.
"""

import math
from dataclasses import dataclass

from epochal.protocol.control import LARGEST_NUMBER, DriverStatus
from epochal.protocol.decision import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """``lag`` is that of the source that is furthest behind; None if no source has one."""

    rows: int = 0
    rows_per_second: float = 0.0
    lag: Seconds | None = None
    late_rows: int = 0
    state_bytes: int = 0


def flow_of(status: DriverStatus) -> Flow:
    lags = [
        source.lag
        for source in status.sources
        if source.lag is not None and _is_number(source.lag) and not source.idle and not source.finished
    ]
    rates = [source.rows_per_second for source in status.sources if _is_number(source.rows_per_second)]
    return Flow(
        rows=sum(source.rows for source in status.sources),
        rows_per_second=sum(rates),
        lag=max(lags, default=None),
        late_rows=status.late_rows,
        state_bytes=status.state_bytes,
    )


def _is_number(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= LARGEST_NUMBER
