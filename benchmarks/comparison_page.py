"""The page and the plot of the comparison with Structured Streaming."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.plot import ratio_bars
from benchmarks.report import conditions_line, table
from benchmarks.workloads import CPU, ROWS, Delay, Workload


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one workload on both sides. ``goal`` is a bound for the ratio, ``met`` says whether it holds."""

    workload: str
    metric: str
    s3_delay_ms: Delay
    epochal: float
    structured_streaming: float
    ratio: float
    goal: str | None
    met: bool | None

    @classmethod
    def of(
        cls, workload: str, metric: str, delay: Delay, ours: float, theirs: float, *, goal: float | None, more: bool
    ) -> "Figure":
        ratio = ours / theirs
        met = None if goal is None else ratio >= goal if more else ratio <= goal
        bound = None if goal is None else f"{'≥' if more else '≤'} {goal:g}"
        return cls(workload, metric, delay, round(ours, 4), round(theirs, 4), round(ratio, 4), bound, met)

    def __str__(self) -> str:
        both = f"{_number(self.epochal)} : {_number(self.structured_streaming)}"
        return f"{self.workload}, {where(self.s3_delay_ms)}: {self.metric} {both} = {self.ratio:.2f}"


def where(delay: Delay) -> str:
    return "local disk" if delay is None else "S3 on loopback" if delay == 0 else f"S3 with {delay:g} ms round trips"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def page(
    found: Sequence[Figure], chosen: Sequence[Workload], conditions: dict[str, Any], *, quick: bool, picture: str
) -> str:
    goals = [one for one in found if one.goal is not None]
    missed = [one for one in goals if not one.met]
    slower = [one for one in found if one.metric == ROWS and one.ratio < 1]
    parts = [
        "# Epochal beside Structured Streaming" + (", in five minutes" if quick else ""),
        f"""`make bench{"-quick" if quick else ""}` measures this and writes this page.
Every workload runs as Epochal and as plain Structured Streaming, one after the other, on the same Parquet files from
local disk, one file a micro-batch. State, progress and results go to one S3 server on the same machine (versitygw),
without delay and with a proxy that holds every packet for 15 ms in each direction. Structured Streaming has RocksDB
with changelog checkpoints, two partitions and the file manager that is the better one on s3a (that of
spark-hadoop-cloud, which needs no rename, is not published for this version of Spark); what it emits in update mode
goes to local disk, because a plain Parquet write to s3a renames. It makes a checkpoint every batch, as it always
does. Each side is one process with 4 GB of heap and 2 cores, warmed up only by the workloads before; each figure is
from one run.""",
        conditions_line(conditions),
        "The results of all workloads were compared row by row, and are equal.",
        f"![Rows per second, Epochal to Structured Streaming]({picture})",
        f"## Goals: {len(goals) - len(missed)} of {len(goals)} met",
        _table(goals),
        "## Where Epochal loses",
        "Rows per second below those of Structured Streaming:\n\n" + _table(slower)
        if slower
        else "In no workload here.",
        "## Input",
        table(
            ["workload", "files", "rows", "of these only to fill the state"],
            [
                [
                    one.name,
                    str(len(one.input.sizes)),
                    f"{sum(one.input.sizes):,}",
                    f"{sum(one.input.sizes[: one.input.load]):,}",
                ]
                for one in chosen
            ],
        ),
        "## All figures",
        _table(found),
    ]
    return "\n\n".join(parts)


def _table(figures: Sequence[Figure]) -> str:
    header = ["workload", "where", "metric", "Epochal", "Structured Streaming", "ratio", "goal", "met"]
    said = {True: "yes", False: "**no**", None: ""}
    rows = [
        [
            one.workload,
            where(one.s3_delay_ms),
            one.metric,
            _number(one.epochal),
            _number(one.structured_streaming),
            f"{one.ratio:.3g}",
            one.goal or "",
            said[one.met],
        ]
        for one in figures
    ]
    return table(header, rows)


def plot(found: Sequence[Figure]) -> str:
    """Rows and CPU seconds of each workload, as ratios."""
    return ratio_bars(
        {
            title: [(f"{one.workload}, {where(one.s3_delay_ms)}", one.ratio) for one in found if one.metric == metric]
            for title, metric in (("Rows per second: more is better", ROWS), ("CPU seconds: less is better", CPU))
        }
    )
