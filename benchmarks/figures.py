"""From what runs took to figures with goals, and what of Structured Streaming they are compared with."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.running import Measured
from benchmarks.workloads import CPU, P50, ROWS, Delay, Workload

MOST_CPU, LEAST_MEAN, MOST_REQUESTS, MOST_OVER_FLOOR, MOST_OVERHEAD = 0.5, 2.5, 0.05, 1.5, 0.03
"""Goals for CPU of every workload, the geometric mean of the Nexmark queries, requests per minute of a paced job, a
small batch to one that does nothing, and the overhead of checkpoints."""

PER_MINUTE, OVERHEAD = "S3 requests per minute", "overhead of checkpoints every 10 s against none, share of time"
COMMITTED = "rows per second, until all is committed"
RECOVERY = "recovery: seconds from a new process to the end of its first batch"
CAUGHT_UP = "recovery: seconds from a new process until it is as far as the killed one was"
FLOOR = "p50 of a batch, seconds, to that of a stream that only reads"


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one workload on both sides. ``goal`` is a bound for the ratio, or for the figure itself where there
    is nothing to compare with; ``met`` says whether it holds."""

    workload: str
    metric: str
    s3_delay_ms: Delay
    epochal: float
    structured_streaming: float | None
    ratio: float | None
    goal: str | None
    met: bool | None

    @classmethod
    def of(
        cls,
        workload: str,
        metric: str,
        delay: Delay,
        ours: float,
        theirs: float | None,
        *,
        goal: float | None = None,
        more: bool = False,
    ) -> "Figure":
        """``more`` is better, or less."""
        ratio = ours / theirs if theirs else None
        bounded = ours if theirs is None else ratio
        met = None if goal is None or bounded is None else bounded >= goal if more else bounded <= goal
        bound = None if goal is None else f"{'≥' if more else '≤'} {goal:g}"
        return cls(workload, metric, delay, round(ours, 4), _rounded(theirs), _rounded(ratio), bound, met)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def best(workload: Workload, theirs: Mapping[str, Measured]) -> str | None:
    """The provider that Epochal is compared with: the one with more rows per second, or with less CPU where the input
    sets the pace."""

    def cost(kind: str) -> float:
        return theirs[kind].cpu if workload.pace is not None else theirs[kind].took.seconds

    return min(theirs, key=cost, default=None)


def figures(workload: Workload, delay: Delay, ours: Measured, theirs: Measured | None) -> list[Figure]:
    def figure(
        metric: str, get: Callable[[Measured], float], *, goal: float | None = None, more: bool = False
    ) -> Figure:
        # A goal is one for the ratio: without the other side there is nothing to judge.
        goal = None if theirs is None else workload.goals.get((metric, delay), goal)
        other = None if theirs is None else get(theirs)
        return Figure.of(workload.name, metric, delay, get(ours), other, goal=goal, more=more)

    rows = workload.input.rows
    found = [
        figure(P50, lambda one: statistics.median(one.took.batches)),
        figure("p99 of a batch, seconds", lambda one: high(one.took.batches)),
        figure(CPU, lambda one: one.cpu / rows * 1e6, goal=MOST_CPU),
        figure("peak memory, MB" if workload.alone else "peak memory so far, MB", lambda one: one.peak / 2**20),
        figure("checkpoint, p50 seconds", lambda one: _median(one.took.checkpoints)),
        figure("pause by a checkpoint, p99 seconds", lambda one: high(one.took.pauses)),
    ]
    if workload.pace is None:
        found[:0] = [
            figure(ROWS, lambda one: rows / one.took.seconds, more=True),
            figure(COMMITTED, lambda one: rows / (one.took.committed - one.took.measured), more=True),
            figure("seconds to fill the state and warm up", lambda one: one.took.measured - one.took.begin),
        ]
    else:
        found += [
            figure("arrival to computed, p50 seconds", lambda one: _median(one.took.computed)),
            figure("arrival to computed, p99 seconds", lambda one: high(one.took.computed)),
            figure("arrival to visible, p50 seconds", lambda one: _median(one.took.visible)),
            figure("arrival to visible, p99 seconds", lambda one: high(one.took.visible)),
        ]
    if delay is not None:
        found.append(figure("S3 requests", lambda one: one.requests))
        found.append(figure("S3 bytes, both ways", lambda one: one.bytes))
    if delay is not None and workload.pace is not None:
        found.append(figure(PER_MINUTE, lambda one: one.per_minute, goal=MOST_REQUESTS))
    # A short run may have had no checkpoint: nothing to say then.
    return [one for one in found if not math.isnan(one.epochal)]


def high(values: Sequence[float]) -> float:
    """The 99th percentile; the largest where there are fewer than a hundred."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else math.nan


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def means(found: Sequence[Figure], delays: Sequence[Delay]) -> list[Figure]:
    """The geometric mean over all Nexmark queries, by delay; also until all is committed, where what a short run has
    not written yet counts."""
    result = []
    for delay, (metric, goal) in itertools.product(delays, ((ROWS, LEAST_MEAN), (COMMITTED, None))):
        of = [one for one in found if one.s3_delay_ms == delay and one.metric == metric and "Nexmark q" in one.workload]
        pairs = [(one.epochal, one.structured_streaming) for one in of if one.structured_streaming]
        if pairs:
            ours, theirs = (statistics.geometric_mean(values) for values in zip(*pairs, strict=True))
            result.append(Figure.of("Nexmark, geometric mean", metric, delay, ours, theirs, goal=goal, more=True))
    return result
