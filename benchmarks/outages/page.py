"""The page of outages."""

from collections import Counter
from typing import Any

from benchmarks.outages.figures import NEVER, commonest
from benchmarks.outages.results import Kept, Result
from benchmarks.plot import stacked_bars
from benchmarks.report import conditions_line, table

NOW, BEFORE = "now", "before"

WORDS = """\
`make outages` measures this on the cluster of `make cluster` and writes this page. Jobs are small ones, each all in
its driver: one half reads a generator and writes to PostgreSQL, the other reads a topic of Kafka and writes to
another. All limits and pauses are the defaults; checkpoints come every 5 seconds. S3, PostgreSQL and Kafka are real
servers of their own, killed with SIGKILL and started again. PostgreSQL and Kafka are away at the same time, each for
its own jobs.

**A try is one job in one outage.** Several jobs see the same outage side by side: the column *tries* says how many
jobs saw how many outages. They share the machine's cores, so where all drivers start anew at once, they wait for each
other.

**Recovered** is the time from the end of the outage until the sinks have committed the first epoch that was published
after it. Where drivers are lost, an epoch of the old driver does not count; where an operator is killed, one that it
had begun does not. A drain and a kill have no end: the time counts from their beginning. p95 is by nearest rank, so
of ten tries it is the worst.

**Nothing needs a hand**: the program breaks and mends, and touches no job; that no spec was changed is checked at the
end. **Rows**: after each outage all rows are read back from the sink by its own client and compared with the computed
ones, window by window: none lost, none twice."""


def page(kept: Kept, order: list[str], found: dict[str, Any]) -> str:
    parts = ["# Outages", WORDS, conditions_line(found)]
    for label, heading in ((NOW, None), (BEFORE, "Before")):
        results = [kept[label][name] for name in order if name in kept.get(label, {})]
        if not results:
            continue
        if heading:
            parts += [f"## {heading}", "The same, measured before restarts, refused pods and the election were mended."]
        parts.append(_table(results))
        if label == NOW:
            parts.append("![Seconds until jobs went on](outages.svg)")
        parts += ["### What people see meanwhile" if not heading else "### What people saw", _seen(results)]
    return "\n\n".join(parts)


def picture(kept: Kept, order: list[str]) -> str:
    """Median, and what the worst took beyond it."""
    bars = {}
    for name in order:
        if (one := kept.get(NOW, {}).get(name)) and one.at(0.95) != NEVER:
            bars[one.title] = {"p50": one.at(0.5), "p95, beyond that": one.at(0.95) - one.at(0.5)}
    return stacked_bars(bars) if bars else ""


def _table(results: list[Result]) -> str:
    header = ["outage", "for", "tries", "recovered", "p50", "p95", "restarts of a job", "new generations", "rows right"]
    return table(
        header,
        [
            [
                one.title,
                _length(one.seconds),
                f"{len(one.tries)} ({one.jobs} jobs × {len(one.lasted)})",
                f"{one.recovered} of {len(one.tries)}",
                _seconds(one.at(0.5), one),
                _seconds(one.at(0.95), one),
                _range([one_try.restarts for one_try in one.tries]),
                _range([one_try.generations for one_try in one.tries]),
                f"{one.right} of {len(one.tries)}",
            ]
            for one in results
        ],
    )


def _seen(results: list[Result]) -> str:
    rows = []
    for one in results:
        spent = ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in _sorted(one.phase_seconds()) if seconds >= 1)
        conditions = Counter(_short(text) for each in one.tries for text in each.conditions)
        messages = commonest((text for each in one.tries for text in each.messages), 1)
        events = ", ".join(f"{reason} {count}" for reason, count in sorted(one.events.items()))
        shown = ", ".join(f"`{text}`" for text, _ in conditions.most_common(4))
        rows.append([one.title, spent, shown or "–", _cell(messages[0]) if messages else "–", events or "–"])
    return (
        "Phases: the mean, from the beginning of the outage until the job went on. Events: of all jobs and rounds.\n\n"
        + table(["outage", "phases", "conditions", "the message that came most", "events"], rows)
    )


def _sorted(spent: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(spent.items(), key=lambda item: -item[1])


def _short(condition: str) -> str:
    return condition.partition(":")[0]


def _cell(text: str) -> str:
    shown = " ".join(text.replace("|", "\\|").split())
    return shown if len(shown) <= 240 else f"{shown[:239]}…"


def _length(seconds: float) -> str:
    if not seconds:
        return "a moment"
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _seconds(value: float, one: Result) -> str:
    return f"not within {one.given_up_after / 60:.0f} min" if value == NEVER else f"{value:.1f} s"


def _range(values: list[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else f"{min(values)} to {max(values)}"
