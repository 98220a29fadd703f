"""What the rounds of an outage gave, and where it is kept: figures of each outage on their own, so that any can be run
again."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.outages.figures import NEVER, percentile
from benchmarks.report import BUILD

FILE = "outages.json"


@dataclass(frozen=True, kw_only=True)
class Try:
    """One job in one outage. ``seconds`` None: it did not go on within the time given, or not without a hand."""

    job: str
    seconds: float | None
    phases: dict[str, float]
    conditions: list[str]
    messages: list[str]
    restarts: int
    generations: int
    windows: int = 0
    wrong: str = ""
    """What was wrong about its rows when they were read back."""

    @property
    def took(self) -> float:
        return NEVER if self.seconds is None else self.seconds


@dataclass(frozen=True, kw_only=True)
class Result:
    """``lasted``: seconds from the first act of the outage to its end, of each round."""

    title: str
    jobs: int
    seconds: float
    lasted: list[float]
    tries: list[Try]
    conditions: dict[str, Any] = field(default_factory=dict)
    given_up_after: float = 0.0
    events: dict[str, int] = field(default_factory=dict)

    def at(self, share: float) -> float:
        return percentile([one.took for one in self.tries], share)

    @property
    def recovered(self) -> int:
        return sum(one.seconds is not None for one in self.tries)

    @property
    def right(self) -> int:
        return sum(not one.wrong for one in self.tries)

    def phase_seconds(self) -> dict[str, float]:
        """The mean over all tries."""
        total: Counter[str] = Counter()
        for one in self.tries:
            total.update(one.phases)
        return {phase: seconds / len(self.tries) for phase, seconds in total.items()}


Kept = dict[str, dict[str, Result]]
"""By label (what was measured: `before`, `now`), then by outage."""


def load(directory: Path) -> Kept:
    file = directory / FILE
    return msgspec.json.decode(file.read_bytes(), type=Kept) if file.exists() else {}


def save(directory: Path, label: str, results: Mapping[str, Result]) -> None:
    """Beside what is there of other outages and labels."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = load(directory)
    kept.setdefault(label, {}).update(results)
    encoded = msgspec.json.format(msgspec.json.encode(kept), indent=1)
    (directory / FILE).write_bytes(encoded + b"\n")


TRIAL = BUILD
"""Where figures of runs go that were shorter than they should be."""
