"""Goals are judged as they are written, and what is compared is what the documentation says."""

import json
import math
from dataclasses import asdict, replace

import pytest

from benchmarks.figures import COMMITTED, PER_MINUTE, Figure, best, figures, high, means
from benchmarks.running import Measured
from benchmarks.sides import Took
from benchmarks.workloads import CPU, HDFS, P50, ROCKSDB, ROWS, Workload, workloads

WINDOWS = workloads(quick=True)[0]
PACED = next(one for one in workloads(quick=True) if one.pace is not None)


def measured(*, seconds: float = 10.0, cpu: float = 12.0) -> Measured:
    took = Took(
        begin=90.0, measured=100.0, end=100.0 + seconds, committed=102.0 + seconds,
        batches=[seconds / 2, seconds / 2], ends=[(1, 100.0 + seconds)], checkpoints=[0.5], pauses=[0.001],
        computed=[0.4], visible=[5.0],
    )  # fmt: skip
    return Measured(took=took, cpu=cpu, peak=2**30, requests=20, bytes=1000, per_minute=6.0, files="")


def named(found: list[Figure], metric: str) -> Figure:
    return next(one for one in found if one.metric == metric)


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "met"),
    [(8.0, 2.0, True, True), (7.9, 2.0, True, False), (8.0, 2.0, False, True), (8.1, 2.0, False, False)],
)
def test_a_goal_bounds_the_ratio(ours: float, theirs: float, more: bool, met: bool) -> None:
    figure = Figure.of("w", "m", 0.0, ours, theirs, goal=4, more=more)
    assert (figure.ratio, figure.met) == (ours / theirs, met)
    assert figure.goal == ("≥ 4" if more else "≤ 4")


def test_a_goal_bounds_the_figure_itself_where_there_is_nothing_to_compare_with() -> None:
    assert Figure.of("w", "m", 0.0, 0.02, None, goal=0.03).met is True
    assert Figure.of("w", "m", 0.0, 0.04, None, goal=0.03).met is False
    assert Figure.of("w", "m", 0.0, 1.0, 2.0).met is None


def test_epochal_is_compared_with_the_faster_state_store() -> None:
    theirs = {ROCKSDB: measured(seconds=9.0, cpu=50.0), HDFS: measured(seconds=8.0, cpu=60.0)}
    assert best(WINDOWS, theirs) == HDFS
    assert best(PACED, theirs) == ROCKSDB, "where the input sets the pace, seconds say nothing"
    assert best(WINDOWS, {}) is None


def test_rows_and_cpu_are_of_the_measured_batches() -> None:
    found = figures(WINDOWS, 0.0, measured(seconds=3.0, cpu=6.0), measured(seconds=15.0, cpu=9.0))
    rows = WINDOWS.input.rows
    assert rows == 3 * 1_000_000, "those to warm up are not counted"
    assert named(found, ROWS).epochal == pytest.approx(rows / 3)
    assert named(found, ROWS).met is True
    assert named(found, COMMITTED).epochal == pytest.approx(rows / 5)
    assert named(found, CPU).epochal == pytest.approx(6.0 / rows * 1e6)
    assert named(found, CPU).met is False, "at most half of theirs"


def test_a_goal_for_a_ratio_is_not_judged_without_the_other_side() -> None:
    found = figures(WINDOWS, 0.0, measured(), None)
    assert named(found, ROWS).epochal > 4
    assert {(one.goal, one.met) for one in found} == {(None, None)}


def test_a_paced_input_has_requests_per_minute_and_latencies_but_no_throughput() -> None:
    metrics = {one.metric for one in figures(PACED, 0.0, measured(), measured())}
    assert {PER_MINUTE, "arrival to computed, p50 seconds", "arrival to visible, p99 seconds"} <= metrics
    assert ROWS not in metrics


def test_what_was_not_seen_is_left_out_so_that_the_results_are_json() -> None:
    one = measured()
    found = figures(PACED, 0.0, replace(one, took=replace(one.took, visible=[])), one)
    assert "arrival to visible, p50 seconds" not in {figure.metric for figure in found}
    json.dumps([asdict(figure) for figure in found], allow_nan=False)


def test_the_mean_is_geometric_and_of_queries_that_both_ran() -> None:
    found = [
        Figure.of("Nexmark q0", ROWS, 0.0, 200.0, 100.0, more=True),
        Figure.of("Nexmark q1", ROWS, 0.0, 800.0, 100.0, more=True),
        Figure.of("Nexmark q2", ROWS, 0.0, 800.0, None, more=True),
        Figure.of("Nexmark q0", P50, 0.0, 1.0, 1.0),
    ]
    (mean,) = means(found, [0.0, 30.0])
    assert mean.ratio == pytest.approx(4.0)
    assert mean.met is True


def test_the_99th_percentile() -> None:
    assert high(list(range(1, 101))) == 99
    assert high([3.0, 1.0]) == 3.0
    assert math.isnan(high([]))


@pytest.mark.parametrize("quick", [True, False])
def test_every_workload_has_batches_to_measure_and_a_name_of_its_own(quick: bool) -> None:
    found: list[Workload] = workloads(quick=quick, scale=0.01)
    assert len({one.name for one in found}) == len(found)
    assert all(0 < one.input.load < len(one.input.sizes) - 1 for one in found)


def test_the_whole_run_has_the_sizes_that_it_promises() -> None:
    names = [one.name for one in workloads(quick=False)]
    for size in ("200k keys", "5M keys", "2,000,000 keys", "20,000,000 keys", "10,000,000 ids"):
        assert any(size in name for name in names), size
