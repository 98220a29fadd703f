"""Epochal beside plain Structured Streaming: the same queries on the same input, the same S3 server, one machine.

Each side is a process: Epochal, and Structured Streaming with each of its two state stores. All run the same workloads,
one at a time and in turns, on S3 without and with delay. Results are compared row by row. What was measured is kept if
the run is interrupted, and another one can go on from there.

    make bench-quick
    make bench
    python -m benchmarks.compare --only 'windows.*' --delays 0
    python -m benchmarks.compare --minutes 60; python -m benchmarks.compare --resume
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.comparison_page import Report, page, plot, told
from benchmarks.figures import (
    CAUGHT_UP,
    FLOOR,
    MOST_OVER_FLOOR,
    MOST_OVERHEAD,
    OVERHEAD,
    RECOVERY,
    Figure,
    best,
    figures,
)
from benchmarks.inputs import Input
from benchmarks.report import BUILD, PAGES, conditions, listed, read_json, write_json, write_page
from benchmarks.running import Bench, Failed, Measured
from benchmarks.same_results import differences
from benchmarks.session import spark_session
from benchmarks.sides import EPOCHAL, Task
from benchmarks.workloads import P50, ROCKSDB, STORES, Delay, Workload, workloads
from tests.support.s3 import S3Server

SMALL, LARGE, STATE = "windows, 5k rows", "windows, 200k keys", "updating aggregate"
"""Beginnings of the names of the workloads that small batches, overhead and recovery are measured with."""

PACED_INTERVAL = 10.0
"""Seconds between epochs where requests per minute are counted, in quick runs as well."""

Cell = tuple[str, Workload, Delay]
"""What to do, with which workload and where."""

COMPARE, OVER_FLOOR, CHECKPOINTS, KILL = "compare", "floor", "overhead", "recovery"


class Comparison:
    """Does one cell after another, and keeps what came of it."""

    def __init__(self, bench: Bench, arguments: argparse.Namespace, report: Report, console: Console) -> None:
        self._bench, self._arguments, self._report, self._console = bench, arguments, report, console
        self._turn = 0
        self._floors: dict[str, Measured | Failed] = {}
        self._warm: set[str] = set()
        self._load, self._began = conditions()["load"], time.monotonic()

    def do(self, cell: Cell) -> None:
        what, workload, delay = cell
        if workload.alone:
            self._bench.end()
        done = {COMPARE: self._compare, OVER_FLOOR: self._floor, CHECKPOINTS: self._overhead, KILL: self._recovery}
        wrong = len(self._report.wrong)
        new = done[what](workload, delay)
        if workload.alone:
            self._bench.end()
        self._report.found += new
        if len(self._report.wrong) == wrong:
            self._report.done.append(key(cell))
        for one in new[:1]:
            self._console.print(told(one))
        self.save()

    def save(self) -> None:
        write_json("results", [asdict(one) for one in self._report.every()])
        write_json("runs", self._report.runs)
        write_json(kept_name(self._arguments), self._report.kept(listed(self._facts())))

    def _facts(self) -> dict[str, Any]:
        return sitting(self._arguments, self._load, time.monotonic() - self._began)

    def _kinds(self, workload: Workload) -> list[str]:
        """In turns: whoever is first in one cell is last in the next. Where a workload comes again, only the state
        store that was the better one at first does."""
        kinds = [EPOCHAL, *workload.stores]
        known = self._report.better.get(self._query(workload))
        if known is not None:
            kinds = [EPOCHAL, known]
        self._turn += 1
        return kinds if self._turn % 2 else kinds[::-1]

    def _query(self, workload: Workload) -> str:
        """What is the same query on the same rows: a paced input is that of the small batches."""
        return SMALL if workload.pace or workload.name.startswith(SMALL) else workload.name

    def _compare(self, workload: Workload, delay: Delay) -> list[Figure]:
        kinds = self._kinds(workload)
        new = self._bench.start(kinds)
        interval = PACED_INTERVAL if workload.pace else self._arguments.interval
        if not (workload.alone or workload.pace or self._arguments.quick):
            self._warm_up(new, workload, delay, interval)
        if workload.name in self._warm and not workload.alone:
            workload = workload.again()
        self._warm.add(workload.name)
        tasks = {kind: self._bench.task(kind, workload, delay, interval) for kind in kinds}
        results = {kind: self._bench.run(kind, workload, delay, task) for kind, task in tasks.items()}
        if all(isinstance(result, Failed) for kind, result in results.items() if kind != EPOCHAL):
            # The better store at first fails now: the other one may not.
            for kind in [store for store in workload.stores if store not in results]:
                self._bench.start([kind])
                tasks[kind] = self._bench.task(kind, workload, delay, interval)
                results[kind] = self._bench.run(kind, workload, delay, tasks[kind])
        found = self._judged(workload, delay, results, "")
        for task in tasks.values():
            self._bench.forget(task)
        return [] if found is None else figures(workload, delay, *found)

    def _warm_up(self, kinds: list[str], workload: Workload, delay: Delay, interval: float) -> None:
        """Once through for processes that have run nothing yet: whatever came first would be measured cold."""
        for kind in kinds:
            task = self._bench.task(kind, workload, delay, interval)
            self._bench.run(kind, workload, delay, task)
            self._bench.forget(task)

    def _judged(
        self, workload: Workload, delay: Delay, results: dict[str, Measured | Failed], after: str
    ) -> tuple[Measured, Measured | None] | None:
        """Epochal's run and the one to compare it with; None if there is nothing to compare."""
        for kind, result in results.items():
            shown = asdict(result) | {"side": kind, "workload": workload.name + after, "s3_delay_ms": delay}
            # Where results were is gone after the run, and another machine's.
            shown.pop("files", None)
            self._report.runs.append(shown)
            if isinstance(result, Failed):
                self._report.failed.append(f"{workload.name}{after}, {kind}: {result.why}")
        ours = results[EPOCHAL]
        if isinstance(ours, Failed):
            self._report.wrong.append(f"{workload.name}{after}: Epochal failed: {ours.why}")
            return None
        theirs = {kind: one for kind, one in results.items() if kind != EPOCHAL and isinstance(one, Measured)}
        for kind, one in theirs.items():
            try:
                compared, different = differences(workload, ours.files, one.files)
            except duckdb.Error as error:
                self._report.wrong.append(f"{workload.name}{after}, {kind}: cannot be compared: {error}")
                continue
            self._report.compared += compared
            if different or not compared:
                self._report.wrong.append(f"{workload.name}{after}, {kind}: {different} of {compared} rows differ")
        for kind, one in theirs.items():
            ratio = one.took.seconds / ours.took.seconds
            self._console.print(f"{workload.name}{after}: {ratio:.2f} times the rows per second of {kind}")
        chosen = best(workload, theirs)
        if chosen is not None:
            self._report.better.setdefault(self._query(workload), chosen)
        return ours, None if chosen is None else theirs[chosen]

    def _floor(self, workload: Workload, delay: Delay) -> list[Figure]:
        """A stream that reads the same files and drops the rows, with its progress on local disk: once a workload."""
        result = self._floors.get(workload.name)
        if result is None:
            task = replace(self._bench.task(ROCKSDB, workload, None, None), floor=True)
            result = self._floors[workload.name] = self._bench.run(ROCKSDB, workload, None, task)
            self._bench.forget(task)
        ours = [one for one in self._report.found if one.workload == workload.name and one.metric == P50]
        if isinstance(result, Failed):
            self._report.wrong.append(f"{workload.name}: the stream that only reads failed: {result.why}")
            return []
        floor = statistics.median(result.took.batches)
        return [
            Figure.of(one.workload, FLOOR, one.s3_delay_ms, one.epochal, floor, goal=MOST_OVER_FLOOR)
            for one in ours
            if one.s3_delay_ms == delay
        ]

    def _overhead(self, workload: Workload, delay: Delay) -> list[Figure]:
        """The same with and without checkpoints, in turns; the first of all is not counted."""
        took: dict[float | None, list[float]] = {None: [], 10.0: []}
        for interval in [None, 10.0, None, None, 10.0]:
            task = self._bench.task(EPOCHAL, workload, delay, interval)
            result = self._bench.run(EPOCHAL, workload, delay, task)
            self._bench.forget(task)
            if isinstance(result, Failed):
                self._report.wrong.append(f"{workload.name}: overhead: {result.why}")
                return []
            took[interval].append(result.took.seconds)
        share = statistics.mean(took[10.0]) / statistics.mean(took[None][1:]) - 1
        return [Figure.of(workload.name, OVERHEAD, delay, share, None, goal=MOST_OVERHEAD)]

    def _recovery(self, workload: Workload, delay: Delay) -> list[Figure]:
        """Killed with its state full and some batches after its last checkpoint; then a new process goes on."""
        after = ", killed and restarted"
        half = workload.input.load + (len(workload.input.sizes) - workload.input.load) // 2
        tasks: dict[str, Task] = {}
        results: dict[str, Measured | Failed] = {}
        seconds: dict[str, tuple[float, float]] = {}
        for kind in self._kinds(workload):
            tasks[kind] = task = self._bench.task(kind, workload, delay, self._arguments.interval)
            died = self._bench.run(kind, workload, delay, replace(task, kill_after=half))
            killed = Path(task.work) / "killed"
            if not killed.exists():
                results[kind] = Failed(f"before it was killed: {died}")
                continue
            self._bench.start([kind])
            results[kind] = again = self._bench.run(kind, workload, delay, replace(task, generation=2))
            if isinstance(again, Measured):
                seconds[kind] = _since(self._bench.began(kind), again, int(killed.read_text()))
        found = self._judged(workload, delay, results, after)
        for task in tasks.values():
            self._bench.forget(task)
        others = [seconds[kind] for kind in STORES if kind in seconds]
        if found is None or EPOCHAL not in seconds:
            return []
        return [
            Figure.of(workload.name, metric, delay, seconds[EPOCHAL][index], min(one[index] for one in others))
            for index, metric in enumerate((RECOVERY, CAUGHT_UP))
            if others
        ]


def key(cell: Cell) -> str:
    what, workload, delay = cell
    return f"{what}: {workload.name}, {delay}"


def kept_name(arguments: argparse.Namespace) -> str:
    return f"kept-{'quick' if arguments.quick else 'whole'}-{arguments.scale:g}"


def sitting(arguments: argparse.Namespace, load: float, seconds: float) -> dict[str, Any]:
    """What a page says of the conditions; of several sittings also which of them measured what."""
    facts = conditions(load_before=load, interval=f"{arguments.interval:g} s", took=f"{seconds:.0f} s")
    return facts | ({"workloads": arguments.only} if arguments.only else {})


def _since(began: float, again: Measured, killed: int) -> tuple[float, float]:
    ends = again.took.ends
    return ends[0][1] - began, next((end for number, end in ends if number > killed), ends[-1][1]) - began


def cells(chosen: list[Workload], wanted: list[Delay], *, quick: bool) -> Iterator[Cell]:
    """What to do, in this order. Where a workload is measured by itself, everything of it comes together."""
    for workload in chosen:
        delays = [delay for delay in workload.delays if delay in wanted]
        for delay in delays:
            yield COMPARE, workload, delay
        if workload.name.startswith(SMALL):
            yield from ((OVER_FLOOR, workload, delay) for delay in delays)
        if workload.name.startswith(LARGE) and not quick and 0.0 in delays:
            yield CHECKPOINTS, workload, 0.0
    for workload in [one for one in chosen if one.name.startswith(STATE)][:1]:
        delays = [delay for delay in workload.delays if delay in wanted]
        yield from ((KILL, workload, delay) for delay in delays)


def write_input(given: Input, home: Path) -> None:
    """When it is first needed. Where that takes Spark, by one of its own, which is gone before anything is measured."""
    if (home / given.name).exists():
        return
    (home / given.name).mkdir()
    spark = spark_session("bench-inputs") if given.by_spark else None
    given.write(spark, home / given.name, given)
    if spark is not None:
        spark.stop()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="what fits into five minutes")
    parser.add_argument("--only", default="", metavar="PATTERN", help="workloads whose names match")
    parser.add_argument("--delays", default="0,30,local", help="milliseconds, or local: what to run (0,30,local)")
    parser.add_argument("--interval", type=float, help="seconds between Epochal's checkpoints (10; quick: 3)")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so many (no limit; quick: 5)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one run may take (600)")
    parser.add_argument("--scale", type=float, default=1.0, help="rows of each file, to try things out (1)")
    parser.add_argument("--resume", action="store_true", help="go on where the last run of this kind has ended")
    parser.add_argument("--again", metavar="PATTERN", help="with --resume: do workloads whose names match once more")
    arguments = parser.parse_args()
    arguments.interval = arguments.interval or (3.0 if arguments.quick else 10.0)
    arguments.minutes = arguments.minutes or (4.5 if arguments.quick else 1e9)
    return arguments


def run(arguments: argparse.Namespace, chosen: list[Workload], report: Report, console: Console) -> None:
    wanted: list[Delay] = [None if text == "local" else float(text) for text in arguments.delays.split(",")]
    began = time.monotonic()
    todo = [one for one in cells(chosen, wanted, quick=arguments.quick) if key(one) not in report.done]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="epochal-bench-") as directory,
        S3Server() as server,
        Progress(*columns, console=console, transient=True) as bars,
    ):
        home = Path(directory)
        bar = bars.add_task("", total=len(todo))
        bench = Bench(home, server, quick=arguments.quick, scale=arguments.scale, limit=arguments.limit)
        comparison = Comparison(bench, arguments, report, console)
        try:
            for cell in todo:
                bars.update(bar, description=f"{cell[0]}: {cell[1].name}, {cell[2]} ms")
                if time.monotonic() - began > arguments.minutes * 60:
                    report.skipped.append(f"{cell[1].name}, {cell[0]}")
                else:
                    write_input(cell[1].input, home)
                    comparison.do(cell)
                bars.advance(bar)
        finally:
            bench.end()


def main() -> int:
    arguments = parsed()
    chosen = [
        one for one in workloads(quick=arguments.quick, scale=arguments.scale) if re.search(arguments.only, one.name)
    ]
    if not chosen:
        raise SystemExit(f"no workload's name matches {arguments.only!r}")
    console = Console(width=None if sys.stdout.isatty() else 140)
    report = Report(chosen=chosen, quick=arguments.quick)
    name = "structured-streaming-quick" if arguments.quick else "structured-streaming"
    kept = read_json(kept_name(arguments)) or (read_json(name, directory=PAGES) if arguments.scale == 1.0 else None)
    if arguments.resume and kept:
        report.take_up(kept)
        if arguments.again:
            report.forget(arguments.again)
    began, load = time.monotonic(), conditions()["load"]
    interrupted = False
    try:
        run(arguments, chosen, report, console)
    except KeyboardInterrupt:
        interrupted = True
    took = time.monotonic() - began
    for line in [*report.failed, *report.wrong]:
        console.print(f"[red]{line}[/red]", highlight=False)
    facts = sitting(arguments, load, took)
    whole = arguments.scale == 1.0 and not arguments.only and not interrupted
    if whole and not report.wrong:
        write_page(name, page(report, facts, picture=f"{name}.svg"))
        (PAGES / f"{name}.svg").write_text(plot(report.every()))
        write_json(name, report.kept(listed(facts)), directory=PAGES)
    else:
        write_json("summary", {"conditions": facts, "failed": report.failed, "wrong": report.wrong})
    said = "interrupted: " if interrupted else ""
    console.print(f"{said}{len(report.every())} figures in {BUILD / 'results.json'}, {took:.0f} s in all")
    return 130 if interrupted else 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
