"""Results that differ in a row are told from those that are equal."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.same_results import differences
from benchmarks.workloads import Workload, workloads

QUICK = workloads(quick=True)
WHOLE = next(one for one in QUICK if one.name.startswith("deduplication"))
WINDOWS = QUICK[0]
UPDATES = next(one for one in QUICK if one.name.startswith("updating"))


def compare(
    tmp_path: Path, workload: Workload, ours: dict[str, list[int]], theirs: dict[str, list[int]]
) -> tuple[int, int]:
    for name, rows in (("ours", ours), ("theirs", theirs)):
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    return differences(workload, str(tmp_path / "ours.parquet"), str(tmp_path / "theirs.parquet"))


@pytest.mark.parametrize(
    ("theirs", "expected"), [([3, 2, 1], (3, 0)), ([1, 2], (2, 1)), ([1, 2, 3, 3], (4, 1)), ([1, 2, 4], (3, 2))]
)
def test_all_rows_count_however_often_they_come(tmp_path: Path, theirs: list[int], expected: tuple[int, int]) -> None:
    assert compare(tmp_path, WHOLE, {"key": [1, 2, 3]}, {"key": theirs}) == expected


def test_windows_that_structured_streaming_has_not_closed_are_left_out(tmp_path: Path) -> None:
    ours = {"window_end": [10, 20, 30], "n": [1, 2, 3]}
    assert compare(tmp_path, WINDOWS, ours, {"window_end": [10, 20], "n": [1, 2]}) == (2, 0)
    assert compare(tmp_path, WINDOWS, ours, {"window_end": [10, 20], "n": [1, 7]}) == (2, 2)


def test_of_results_that_change_the_newest_are_compared(tmp_path: Path) -> None:
    ours = {"key": [1, 1, 2], "n": [1, 2, 1], "total": [5, 9, 4]}
    assert compare(tmp_path, UPDATES, ours, {"key": [1, 2], "n": [2, 1], "total": [9, 4]}) == (2, 0)
    assert compare(tmp_path, UPDATES, ours, {"key": [1, 2], "n": [2, 1], "total": [8, 4]}) == (2, 2)
