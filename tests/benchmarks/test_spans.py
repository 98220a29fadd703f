"""When files were computed and visible, and what was used between two moments."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.inputs import keyed_input
from benchmarks.running import Sampler
from benchmarks.spans import Batch, committed_at, file_ends
from epochal.protocol.control import CheckpointReport, CheckpointState
from epochal.protocol.epochs import Epoch, Generation
from tests.support.proxy import CountingProxy


def batch(number: int, rows: int, end: float) -> Batch:
    return Batch(number=number, rows=rows, begin=end - 1, end=end, waits=0.0)


def report(started: float, finished: float) -> CheckpointReport:
    return CheckpointReport(
        epoch=Epoch(1),
        generation=Generation(1),
        then_stop=False,
        state=CheckpointState.READY,
        started=round(started * 1e6),
        finished=round(finished * 1e6),
    )


def test_a_file_is_computed_with_the_batch_that_took_its_last_row() -> None:
    batches = [batch(0, 10, 1.0), batch(1, 25, 2.0), batch(2, 5, 3.0)]
    assert file_ends(batches, [10, 10, 10, 10]) == [1.0, 2.0, 2.0, 3.0]
    assert file_ends(batches[:2], [10, 10, 10, 10]) == [1.0, 2.0, 2.0]


def test_rows_are_visible_with_the_first_epoch_whose_barrier_came_after_them() -> None:
    visible = committed_at([report(10.0, 11.0), report(20.0, 21.5)])
    assert [visible(moment) for moment in (9.0, 10.5, 20.5)] == [11.0, 21.5, None]


def test_use_between_two_moments_is_read_between_samples() -> None:
    with CountingProxy("http://127.0.0.1:1") as proxy:
        sampler = Sampler(0, proxy)
    sampler._samples = [(100.0, 10.0, 0, 0), (101.0, 12.0, 10, 1000), (103.0, 12.0, 10, 1000)]
    assert sampler.between(100.5, 102.0) == (1.0, 5.0, 500.0)
    assert sampler.between(90.0, 200.0) == (2.0, 10.0, 1000.0)


@pytest.mark.parametrize("every", [0, 2])
def test_keyed_input_is_the_same_each_time_and_hardly_out_of_order(tmp_path: Path, every: int) -> None:
    made = keyed_input("input", (100, 100, 50), keys=1000, load=1, every=every, seconds=5.0)
    tables = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.write(None, tmp_path / name, made)
        tables.append([pq.read_table(path) for path in sorted((tmp_path / name).glob("*.parquet"))])
    assert tables[0] == tables[1]
    keys = np.concatenate([one["key"].to_numpy() for one in tables[0][:every]]) if every else np.arange(0)
    assert len(set(keys.tolist())) == 100 * every, "the files that fill the state have no key twice"
    newest = [one["ts"].cast("int64").to_numpy().max() for one in tables[0]]
    oldest = [one["ts"].cast("int64").to_numpy().min() for one in tables[0]]
    assert all(after - before > -2_000_000 for before, after in zip(newest, oldest[1:], strict=False))
    times = [path.stat().st_mtime for path in sorted((tmp_path / "first").glob("*.parquet"))]
    assert all(before < after for before, after in pairwise(times)), "a file source takes the oldest first"
