"""From what was seen of a job to figures: when it went on, and what it did until then."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """An epoch as the store has it: when its barrier was sent, when it was published, and when its sinks had committed
    it."""

    number: int
    generation: int
    begun: float
    published: float
    committed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A job's status at a moment."""

    at: float
    phase: str
    message: str = ""
    generation: int = 0
    restarts: int = 0
    conditions: tuple[str, ...] = ()
    """Those that say that something is not as it should be."""


def recovered_at(
    epochs: Iterable[EpochSeen], end: float, *, after_generation: int = 0, begun_after: bool = False
) -> float | None:
    """When the first epoch was committed that was published after the outage's end.

    A driver that is asked to go may publish a last one: only epochs after ``after_generation`` count. One whose
    operator is killed completes what it was asked for: with ``begun_after`` only epochs whose barrier came after the
    end count.
    """
    times = [
        epoch.committed
        for epoch in epochs
        if epoch.committed is not None
        and epoch.generation > after_generation
        and (epoch.begun if begun_after else epoch.published) > end
    ]
    return min(times, default=None)


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank: one of the values. Of ten, the 95th percentile is the worst."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def phases(samples: Sequence[Seen], begin: float, end: float) -> dict[str, float]:
    """How many seconds each phase lasted, in the order in which they came."""
    result: dict[str, float] = {}
    for number, sample in enumerate(samples):
        until = samples[number + 1].at if number + 1 < len(samples) else end
        lasted = min(until, end) - max(sample.at, begin)
        if lasted > 0:
            result[sample.phase] = result.get(sample.phase, 0.0) + lasted
    return result


def during(samples: Sequence[Seen], begin: float, end: float) -> list[Seen]:
    """What was seen between two moments, with what held at the first of them."""
    held = [sample for sample in samples if sample.at <= begin][-1:]
    return held + [sample for sample in samples if begin < sample.at <= end]


def commonest(texts: Iterable[str], most: int = 3) -> list[str]:
    return [text for text, _ in Counter(text for text in texts if text).most_common(most)]
