"""The page and the plot of the comparison with Structured Streaming."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.figures import COMMITTED, Figure, means
from benchmarks.missed_goals import why_missed
from benchmarks.plot import ratio_bars
from benchmarks.report import conditions_line, table
from benchmarks.workloads import CPU, P50, ROWS, Delay, Workload


@dataclass(slots=True)
class Report:
    """All that was found. ``runs``: each side's, as it was measured. ``done``: the cells whose results were right.
    ``better``: of Structured Streaming's state stores, by workload. ``sittings``: the conditions of earlier ones, if it
    was not all done in one."""

    chosen: Sequence[Workload]
    quick: bool
    found: list[Figure] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    compared: int = 0
    done: list[str] = field(default_factory=list)
    better: dict[str, str] = field(default_factory=dict)
    sittings: list[str] = field(default_factory=list)

    def kept(self, sitting: str) -> dict[str, Any]:
        """What another sitting can go on with. What was wrong is to be done again."""
        return {
            "found": [asdict(one) for one in self.found],
            "runs": self.runs,
            "failed": self.failed,
            "compared": self.compared,
            "done": self.done,
            "better": self.better,
            "sittings": [*self.sittings, sitting],
        }

    def take_up(self, kept: dict[str, Any]) -> None:
        self.found = [Figure(**one) for one in kept["found"]]
        self.runs, self.failed, self.compared = kept["runs"], kept["failed"], kept["compared"]
        self.done, self.better, self.sittings = kept["done"], kept["better"], kept["sittings"]

    def forget(self, pattern: str) -> None:
        """What is known of workloads whose names match, so that they are done again."""
        self.found = [one for one in self.found if not re.search(pattern, one.workload)]
        self.runs = [one for one in self.runs if not re.search(pattern, one["workload"])]
        self.failed = [line for line in self.failed if not re.search(pattern, line)]
        # A cell is what was done, and then the workload's name.
        self.done = [line for line in self.done if not re.search(pattern, line.split(": ", 1)[-1])]
        self.better = {name: store for name, store in self.better.items() if not re.search(pattern, name)}

    def every(self) -> list[Figure]:
        delays = sorted({one.s3_delay_ms for one in self.found if one.s3_delay_ms is not None})
        return self.found + means(self.found, delays)


def where(delay: Delay) -> str:
    return "local disk" if delay is None else "S3 on loopback" if delay == 0 else f"S3 with {delay:g} ms round trips"


def told(one: Figure) -> str:
    ratio = "" if one.ratio is None else f" = {one.ratio:.2f}"
    theirs = "" if one.structured_streaming is None else f" : {_number(one.structured_streaming)}"
    return f"{one.workload}, {where(one.s3_delay_ms)}: {one.metric} {_number(one.epochal)}{theirs}{ratio}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


CONDITIONS = """Every workload runs as Epochal and as plain Structured Streaming with each of its state stores, RocksDB
(with changelog checkpoints) and the HDFS-backed one, in turns and one at a time, on the same Parquet files from local
disk, one file a micro-batch. State, progress and results go to one S3 server on the same machine (versitygw), without
delay and with a proxy that holds every packet for 15 ms in each direction; for small batches also to local disk.
Epochal is compared with the better of the two (more rows per second). Both run where a workload comes first, and are
below; where it comes again, with a delay or to be killed, only the better one does. Structured Streaming has two
partitions, as Epochal has, and the best settings that are known (`SETTINGS` in `benchmarks/running.py`; the file
manager of spark-hadoop-cloud, which needs no rename, is not published for this version of Spark). What it emits in
update mode goes to local disk, because a plain Parquet write to s3a renames. It makes a checkpoint every batch, as it
always does.

Each side is one process with 4 GB of heap and 2 cores. The first batches of every run fill the state and warm up the
JVM, and are not counted, on any side; those that only warm it up are left out where a process runs a workload again.
Rows per second are of the batches after these, with Epochal's checkpoints among them; *until all is committed* also
has the last checkpoint, and for Epochal the closing of all windows. Where no checkpoint of Epochal's fell into the
counted batches (the last column of *both state stores*), compare by that. CPU, requests and bytes are from the first
counted batch until all is committed. *Visible* is when a reader of the results can see them: with Epochal's next
epoch, with Structured Streaming's batch. Each figure is from one run; the overhead of checkpoints is from two with
and two without, and where it is below zero it is less than runs differ by."""


EARLIER = """Not all was done in one sitting; both sides of each ratio were. Conditions of the earlier ones:

"""


QUICK = """This is the short form: fewer rows, keys and batches than `make bench` has, checkpoints more often, so that
some fall into the short time, and most queries on one S3 only. Windows over large batches run with the HDFS-backed
store only, which was the better one for them so far. With so few batches, most of them on code that the JVM has
yet to compile, take these figures for a first look."""


def page(report: Report, conditions: dict[str, Any], *, picture: str) -> str:
    found, quick = report.every(), report.quick
    goals = [one for one in found if one.goal is not None]
    missed = [one for one in goals if not one.met]
    slower = [one for one in found if one.metric in (ROWS, COMMITTED) and one.ratio is not None and one.ratio < 1]
    parts = [
        "# Epochal beside Structured Streaming" + (", in five minutes" if quick else ""),
        f"`make bench{'-quick' if quick else ''}` measures this and writes this page.\n{CONDITIONS}",
        *([QUICK] if quick else []),
        conditions_line(conditions),
        *([EARLIER + "\n".join(f"- {one}" for one in report.sittings)] if report.sittings else []),
        f"The results of all workloads were compared row by row ({report.compared:,} rows), and are equal.",
        f"![Rows per second, Epochal to Structured Streaming]({picture})",
        f"## Goals: {len(goals) - len(missed)} of {len(goals)} met",
        _table(goals),
        *why_missed(missed),
        "## Where Epochal loses",
        f"Rows per second below those of Structured Streaming:\n\n{_table(slower)}"
        if slower
        else "In rows per second: in no workload here.",
        *_lists(report),
        "## Both state stores",
        _providers(report),
        "## Input",
        _inputs(report.chosen),
        "## All figures",
        _table(found),
    ]
    return "\n\n".join(parts)


def _lists(report: Report) -> list[str]:
    """What did not go as planned."""
    found = []
    if report.failed:
        found += ["Runs that failed:", "\n".join(f"- {line}" for line in report.failed)]
    if report.skipped:
        found += ["Not run, because the time was up:", "\n".join(f"- {line}" for line in report.skipped)]
    return found


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
            "–" if one.ratio is None else f"{one.ratio:.3g}",
            one.goal or "",
            said[one.met],
        ]
        for one in figures
    ]
    return table(header, rows)


def _providers(report: Report) -> str:
    rows = [
        [
            one["workload"],
            where(one["s3_delay_ms"]),
            one["side"],
            *(["failed", "", "", ""] if "why" in one else _run(one)),
        ]
        for one in report.runs
    ]
    header = ["workload", "where", "side", "seconds of counted batches", P50, "CPU seconds", "checkpoints among them"]
    return table(header, rows)


def _run(one: dict[str, Any]) -> list[str]:
    took = one["took"]
    middle = sorted(took["batches"])[len(took["batches"]) // 2]
    return [f"{took['end'] - took['measured']:.2f}", f"{middle:.3f}", f"{one['cpu']:.1f}", str(took["inside"])]


def _inputs(chosen: Sequence[Workload]) -> str:
    header = ["workload", "files", "rows", "of these to fill the state and warm up"]
    rows = [
        [one.name, str(len(one.input.sizes)), f"{sum(one.input.sizes):,}", f"{sum(one.input.sizes) - one.input.rows:,}"]
        for one in chosen
    ]
    return table(header, rows)


def plot(found: Sequence[Figure]) -> str:
    """Rows, batch times and CPU seconds of each workload, as ratios."""
    titles = {
        "Rows per second: more is better": ROWS,
        "p50 of a batch: less is better": P50,
        "CPU seconds: less is better": CPU,
    }
    return ratio_bars(
        {
            title: [
                (f"{one.workload}, {where(one.s3_delay_ms)}", one.ratio)
                for one in found
                if one.metric == metric and one.ratio
            ]
            for title, metric in titles.items()
        }
    )
