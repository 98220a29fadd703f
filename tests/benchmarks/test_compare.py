"""A run of the comparison with sides that only pretend: what is compared, what is kept, and what is told."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from benchmarks.compare import CHECKPOINTS, COMPARE, KILL, OVER_FLOOR, Cell, Comparison, cells, key
from benchmarks.comparison_page import Report, page, plot
from benchmarks.figures import CAUGHT_UP, FLOOR, OVERHEAD, RECOVERY
from benchmarks.report import read_json
from benchmarks.running import Failed, Measured
from benchmarks.sides import EPOCHAL, Task, Took
from benchmarks.workloads import HDFS, P50, ROCKSDB, ROWS, STORES, Delay, Workload, workloads

SECONDS = {EPOCHAL: 1.0, ROCKSDB: 5.0, HDFS: 4.0}
QUICK = workloads(quick=True)
LARGE, SMALL = replace(QUICK[0], stores=STORES), QUICK[1]
PACED = next(one for one in QUICK if one.pace is not None)
STATE = next(one for one in QUICK if one.name.startswith("updating"))


class PretendedBench:
    """Sides that take the seconds above; ``odd`` ones fail, or have a row more in their results."""

    def __init__(self, home: Path, odd: dict[str, str]) -> None:
        self._home, self._odd = home, odd
        self.ran: list[tuple[str, Task]] = []
        self._up: set[str] = set()

    def start(self, kinds: list[str]) -> list[str]:
        new = [kind for kind in kinds if kind not in self._up]
        self._up.update(new)
        return new

    def end(self, *kinds: str) -> None:
        self._up.clear()

    def forget(self, task: Task) -> None: ...

    def began(self, kind: str) -> float:
        return 90.0

    def task(self, kind: str, workload: Workload, delay: Delay, interval: float | None) -> Task:
        work = self._home / f"work-{len(self.ran)}-{kind}-{delay}"
        work.mkdir(exist_ok=True)
        return Task(
            workload=workload.name, quick=True, scale=1.0, input="", store="", output="", work=str(work), endpoint=None,
            region=None, interval=interval, again=bool(workload.input.after),
        )  # fmt: skip

    def run(self, kind: str, workload: Workload, delay: Delay, task: Task) -> Measured | Failed:
        self.ran.append((kind, task))
        if self._odd.get(kind) == "fails":
            return Failed("out of memory")
        if task.kill_after is not None:
            (Path(task.work) / "killed").write_text("4")
            return Failed("its process ended")
        path = Path(task.work) / "result.parquet"
        extra = [9] if self._odd.get(kind) == "more rows" else []
        numbers = [1, 2, *extra]
        pq.write_table(pa.table({"key": numbers, "n": numbers, "window_end": numbers}), path)
        seconds = SECONDS[kind] * (1.02 if task.interval == 10.0 else 1.0)
        took = Took(
            begin=90.0, measured=100.0, end=100.0 + seconds, committed=100.0 + seconds, batches=[seconds / 2] * 2,
            ends=[(4, 100.0), (5, 100.0 + seconds)], checkpoints=[0.1], pauses=[0.1], computed=[0.1], visible=[0.1],
        )  # fmt: skip
        return Measured(took=took, cpu=seconds, peak=1, requests=1, bytes=1, per_minute=1.0, files=str(path))


class Run:
    def __init__(self, home: Path, odd: dict[str, str] | None = None, *, quick: bool = True) -> None:
        self.bench = PretendedBench(home, {} if odd is None else odd)
        self.report = Report(chosen=QUICK, quick=quick)
        arguments = argparse.Namespace(quick=quick, interval=3.0, scale=1.0, only="")
        bench: Any = self.bench
        self._comparison = Comparison(bench, arguments, self.report, Console(quiet=True))

    def do(self, *todo: Cell) -> list[dict[str, Any]]:
        for cell in todo:
            self._comparison.do(cell)
        found: list[dict[str, Any]] = json.loads(Path("build/bench/results.json").read_text())
        return found


@pytest.fixture(autouse=True)
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_results_are_as_promised_and_kept_after_every_cell(tmp_path: Path) -> None:
    run = Run(tmp_path)
    first = run.do((COMPARE, LARGE, 0.0))
    keys = ["workload", "metric", "s3_delay_ms", "epochal", "structured_streaming", "ratio", "goal", "met"]
    assert all(list(one) == keys for one in first)
    rows = next(one for one in first if one["metric"] == ROWS)
    assert (rows["s3_delay_ms"], rows["ratio"], rows["goal"], rows["met"]) == (0.0, 4.0, "≥ 4", True)
    assert len(run.do((COMPARE, LARGE, 30.0))) == 2 * len(first)


def test_another_sitting_goes_on_with_what_was_right(tmp_path: Path) -> None:
    run = Run(tmp_path, {ROCKSDB: "more rows"})
    whole = replace(LARGE, until=None)
    run.do((COMPARE, whole, 0.0))
    right = Run(tmp_path)
    right.do((COMPARE, SMALL, 0.0))
    again = Report(chosen=QUICK, quick=True)
    again.take_up(read_json("kept-quick-1"))
    assert again.done == [key((COMPARE, SMALL, 0.0))]
    assert again.found == right.report.found
    assert again.runs == json.loads(json.dumps(right.report.runs))
    assert not run.report.done
    assert "earlier ones" in page(again, {}, picture="x.svg")
    assert "earlier ones" not in page(right.report, {}, picture="x.svg")


def test_sides_take_turns_and_where_a_workload_comes_again_the_better_store_does(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.do((COMPARE, LARGE, 0.0), (COMPARE, LARGE, 30.0))
    assert [kind for kind, _ in run.bench.ran] == [EPOCHAL, ROCKSDB, HDFS, HDFS, EPOCHAL]


def test_where_the_better_store_fails_later_the_other_one_is_compared_with(tmp_path: Path) -> None:
    odd: dict[str, str] = {}
    run = Run(tmp_path, odd)
    run.do((COMPARE, LARGE, 0.0))
    odd[HDFS] = "fails"
    later = [one for one in run.do((COMPARE, LARGE, 30.0)) if one["s3_delay_ms"] == 30.0 and one["metric"] == ROWS]
    assert [one["ratio"] for one in later] == [SECONDS[ROCKSDB] / SECONDS[EPOCHAL]]


def test_another_sitting_knows_which_store_was_the_better_one(tmp_path: Path) -> None:
    Run(tmp_path).do((COMPARE, LARGE, 0.0))
    again = Run(tmp_path)
    again.report.take_up(read_json("kept-quick-1"))
    again.do((COMPARE, LARGE, 30.0))
    assert [kind for kind, _ in again.bench.ran] == [EPOCHAL, HDFS]


def test_what_is_to_be_done_again_is_forgotten(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.do((COMPARE, LARGE, 0.0), (COMPARE, SMALL, 0.0))
    run.report.forget(f"^{LARGE.name}")
    assert run.report.done == [key((COMPARE, SMALL, 0.0))]
    assert {one.workload for one in run.report.found} == {one["workload"] for one in run.report.runs} == {SMALL.name}
    run.do((COMPARE, LARGE, 30.0))
    assert {kind for kind, _ in run.bench.ran[-3:]} == {EPOCHAL, ROCKSDB, HDFS}


def test_the_first_run_of_a_process_is_not_counted(tmp_path: Path) -> None:
    run = Run(tmp_path, quick=False)
    run.do((COMPARE, SMALL, 0.0), (COMPARE, SMALL, 30.0))
    assert [kind for kind, _ in run.bench.ran] == [EPOCHAL, ROCKSDB, HDFS] * 2 + [HDFS, EPOCHAL]
    assert len(run.report.runs) == 5


def test_what_only_warms_up_is_left_out_when_it_comes_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.do((COMPARE, SMALL, None), (COMPARE, SMALL, 30.0))
    assert [task.again for _, task in run.bench.ran] == [False] * 3 + [True] * 2
    again = SMALL.again()
    assert again.input.rows == SMALL.input.rows
    assert len(again.input.sizes) == len(SMALL.input.sizes) - SMALL.warm_up


def test_what_has_nothing_to_leave_out_comes_again_as_it_is(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.do((COMPARE, PACED, 0.0), (COMPARE, PACED, 30.0))
    assert not any(task.again for _, task in run.bench.ran)
    assert PACED.again() is PACED
    assert all("files" not in one for one in run.report.runs)


def test_a_store_that_fails_is_told_and_the_other_one_is_compared_with(tmp_path: Path) -> None:
    run = Run(tmp_path, {HDFS: "fails"})
    found = run.do((COMPARE, LARGE, 0.0))
    assert next(one for one in found if one["metric"] == ROWS)["ratio"] == 5.0
    assert not run.report.wrong
    assert "out of memory" in page(run.report, {}, picture="x.svg")


@pytest.mark.parametrize("odd", [{EPOCHAL: "fails"}, {ROCKSDB: "more rows"}, {EPOCHAL: "more rows"}])
def test_a_failure_of_epochal_and_results_that_differ_are_wrong(tmp_path: Path, odd: dict[str, str]) -> None:
    # What Structured Streaming has not closed yet is no difference, so this needs a workload that is compared whole.
    run = Run(tmp_path, odd)
    run.do((COMPARE, replace(LARGE, until=None), 0.0))
    assert run.report.wrong


def test_small_batches_are_set_beside_a_stream_that_only_reads(tmp_path: Path) -> None:
    found = Run(tmp_path).do((COMPARE, SMALL, 30.0), (OVER_FLOOR, SMALL, 30.0))
    floor = next(one for one in found if one["metric"] == FLOOR)
    p50 = next(one for one in found if one["metric"] == P50)
    assert (floor["epochal"], floor["structured_streaming"]) == (p50["epochal"], 2.5)


def test_overhead_is_that_of_checkpoints_against_none(tmp_path: Path) -> None:
    (found,) = Run(tmp_path).do((CHECKPOINTS, LARGE, 0.0))
    assert (found["metric"], found["structured_streaming"], found["ratio"]) == (OVERHEAD, None, None)
    assert found["epochal"] == pytest.approx(0.02)
    assert found["met"] is True


def test_recovery_is_from_the_new_process_to_its_first_batch_and_until_it_has_caught_up(tmp_path: Path) -> None:
    run = Run(tmp_path)
    found = {one["metric"]: one for one in run.do((KILL, STATE, 0.0))}
    assert (found[RECOVERY]["epochal"], found[CAUGHT_UP]["epochal"]) == (10.0, 11.0)
    assert found[CAUGHT_UP]["structured_streaming"] == 14.0, "that of the better store"
    assert {task.generation for _, task in run.bench.ran} == {1, 2}


def test_everything_that_has_a_goal_is_in_a_whole_run() -> None:
    done = list(cells(workloads(quick=False), [0.0, 30.0, None], quick=False))
    assert {what for what, _, _ in done} == {COMPARE, OVER_FLOOR, CHECKPOINTS, KILL}
    assert {delay for what, _, delay in done if what == KILL} == {0.0, 30.0}


def test_the_page_shows_losses_and_what_was_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.do((COMPARE, LARGE, 0.0))
    run.report.found = [replace(one, ratio=0.5, met=False) if one.metric == ROWS else one for one in run.report.found]
    run.report.skipped.append("the last workload")
    text = page(run.report, {"cores": 2}, picture="x.svg")
    lost = text.split("## Where Epochal loses")[1].split("##")[0]
    assert LARGE.name in lost
    assert "the last workload" in text
    assert "**no**" in text
    assert "**Windows over large batches.**" in text
    assert "**Looking keys up.**" not in text
    assert "<svg" in plot(run.report.every())
