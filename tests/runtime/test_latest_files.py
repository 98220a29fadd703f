"""The files of a latest table: what was written last of a key is found, however runs are merged."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from epochal.runtime.errors import lost_state
from epochal.runtime.state import latest_files
from epochal.runtime.state.latest_files import (
    HASH,
    OLDER,
    PARTITION,
    Place,
    StateNotHereError,
    add_any,
    add_checked,
    adding,
    filing,
    finding,
    greatest,
    greatest_struct,
    keeping_new,
    later_than,
    least,
    least_struct,
    merged,
    merging,
    reading,
    same_values,
    united,
    writing,
)

KEY = "__key"
VALUES = pa.schema([("value", pa.int64())])


@dataclass
class Task:
    partition: int = 0


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    here = Task()
    monkeypatch.setattr(latest_files, "partition", lambda: here.partition)
    return here


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path), "totals")


def hash_of(key: Any) -> int:
    """Few hashes, spread over all whole numbers: many keys share one."""
    return random.Random(hash(key) % 50).randrange(-(2**63), 2**63)


def batch(rows: dict[Any, int], *, kind: pa.DataType | None = None) -> pa.RecordBatch:
    keys = pa.array(list(rows), kind)
    return pa.RecordBatch.from_pydict(
        {
            HASH: pa.array([hash_of(key) for key in rows], pa.int64()),
            KEY: pa.StructArray.from_arrays([keys], ["key"]),
            "value": pa.array(list(rows.values()), pa.int64()),
        }
    )


def write(place: Place, run: int, rows: dict[Any, int]) -> None:
    list(writing(place, run, [KEY, "value"])(iter([batch(rows)] if rows else [])))


def content(batches: Iterable[pa.RecordBatch], column: str = "value") -> dict[Any, Any]:
    rows = [row for one in batches for row in one.to_pylist()]
    found = {row[KEY]["key"]: row[column] for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_newest_run_that_has_a_key_is_what_is_known_of_it(place: Place) -> None:
    write(place, 1, {1: 10, 2: 20, 3: 30})
    write(place, 2, {2: 21, 4: 40})
    found = finding(place, [2, 1], KEY, VALUES, [])(iter([batch({1: 0, 2: 0, 4: 0, 5: 0})]))
    assert content(found, OLDER + "value") == {1: 10, 2: 21, 4: 40, 5: None}


@pytest.mark.parametrize("seed", range(20))
def test_many_keys_of_few_hashes_in_many_runs(place: Place, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_files, "SLICE", 16)
    chance = random.Random(seed)
    known: dict[int, int] = {}
    runs: list[int] = []
    for run in range(1, 12):
        rows = {chance.randrange(200): chance.randrange(1000) for _ in range(chance.randrange(60))}
        if chance.random() < 0.3 and len(runs) > 1:
            newest = runs[-chance.randrange(2, len(runs) + 1) :]
            list(merging(place, newest[::-1], 100 + run, KEY, None)(iter([])))
            runs = [*runs[: -len(newest)], 100 + run]
        write(place, run, rows)
        runs.append(run)
        known |= rows
    asked = batch(dict.fromkeys(chance.sample(range(250), 100), 0))
    found = content(finding(place, runs[::-1], KEY, VALUES, [])(iter([asked])), OLDER + "value")
    assert found == {key: known.get(key) for key in found}
    assert content(reading(place, runs[::-1], KEY, lambda rows: rows)(iter([]))) == known


def test_what_is_added_is_a_run_by_itself(place: Place) -> None:
    write(place, 1, {1: 10, 2: 20})
    new = adding(place, [1], 2, KEY, {"value": add_checked}, [])(iter([batch({2: 5, 3: 7})]))
    assert content(new) == {2: 25, 3: 7}
    assert content(reading(place, [2, 1], KEY, lambda rows: rows)(iter([]))) == {1: 10, 2: 25, 3: 7}


def test_a_sum_that_overflows_is_told(place: Place) -> None:
    write(place, 1, {1: 2**63 - 1})
    with pytest.raises(OverflowError, match="cast it to decimal"):
        list(adding(place, [1], 2, KEY, {"value": add_checked}, [])(iter([batch({1: 1})])))


def test_what_fails_leaves_no_file(place: Place) -> None:
    write(place, 1, {1: 2**63 - 1})
    with pytest.raises(OverflowError):
        list(adding(place, [1], 2, KEY, {"value": add_checked}, [])(iter([batch({1: 1})])))
    assert [path.name for path in place.folder().iterdir()] == ["1-0.arrow"]


def arriving(rows: list[tuple[int, int | None]]) -> list[pa.RecordBatch]:
    """Keys and values as they arrive, a few to a batch."""
    numbered = [(key, value, place) for place, (key, value) in enumerate(rows)]
    return [
        pa.RecordBatch.from_pydict(
            {
                HASH: pa.array([hash_of(key) for key, _, _ in some], pa.int64()),
                KEY: pa.StructArray.from_arrays([pa.array([key for key, _, _ in some])], ["key"]),
                "value": pa.array([value for _, value, _ in some], pa.int64()),
                "arrival": pa.array([place for _, _, place in some], pa.int64()),
                "row": pa.array([place for _, _, place in some], pa.int64()),
            }
        )
        for some in (numbered[begin : begin + 7] for begin in range(0, len(numbered), 7))
    ]


def keep_new(place: Place, rows: list[tuple[int, int | None]], *, late: int | None, since: int | None) -> list[int]:
    """Which rows go on, by the place they came at."""
    step = keeping_new(place, [1], 2, KEY, time="value", arrival="arrival", late=late, since=since, gone=[])
    found = list(step(iter(arriving(rows))))
    assert all(one.schema.names == [KEY, "value", "row"] for one in found)
    return sorted(row for one in found for row in one.column("row").to_pylist())


def test_only_keys_that_are_new_or_forgotten_go_on(place: Place) -> None:
    write(place, 1, {1: 10, 2: 20})
    assert keep_new(place, [(1, 30), (2, 30), (3, 30)], late=None, since=15) == [0, 2]
    assert content(reading(place, [2, 1], KEY, lambda rows: rows)(iter([]))) == {1: 30, 2: 20, 3: 30}


def test_rows_that_are_late_or_have_no_time_do_not_go_on(place: Place) -> None:
    write(place, 1, {})
    assert keep_new(place, [(1, 9), (1, None), (1, 11), (2, None), (3, 8), (4, 10)], late=10, since=0) == [2, 5]


@pytest.mark.parametrize("most", [latest_files.SLICE, 20], ids=["in memory", "in a file"])
@pytest.mark.parametrize("seed", range(10))
def test_of_each_key_the_first_row_by_time_and_arrival_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    monkeypatch.setattr(latest_files, "SLICE", most)
    chance = random.Random(seed)
    known = {key: chance.randrange(50) for key in chance.sample(range(300), 60)}
    write(place, 1, known)
    rows = [(chance.randrange(300), chance.choice([None, *range(50)])) for _ in range(400)]
    since = chance.choice([None, 25])
    first: dict[int, tuple[int, int]] = {}
    for number, (key, value) in enumerate(rows):
        if value is not None and value >= 5:
            first[key] = min(first.get(key, (value, number)), (value, number))
    new = {key: one for key, one in first.items() if key not in known or (since is not None and known[key] < since)}
    assert keep_new(place, rows, late=5, since=since) == sorted(number for _, number in new.values())
    stored = {key: value for key, (value, _) in new.items()}
    assert content(reading(place, [2, 1], KEY, lambda rows: rows)(iter([]))) == known | stored
    assert sorted(path.name for path in place.folder().iterdir()) == ["1-0.arrow", "2-0.arrow"]


def test_a_merge_may_leave_rows_out(place: Place) -> None:
    write(place, 1, {1: 10, 2: 20})
    write(place, 2, {1: 15, 3: 5})
    told = list(merging(place, [2, 1], 3, KEY, later_than("value", 15))(iter([])))
    assert told[0].to_pylist() == [{"rows": 2}]
    assert content(reading(place, [3], KEY, lambda rows: rows)(iter([]))) == {1: 15, 2: 20}


def test_files_of_runs_that_are_gone_are_deleted_by_the_next_batch(place: Place) -> None:
    write(place, 1, {1: 10})
    write(place, 2, {1: 11})
    list(finding(place, [2], KEY, VALUES, [1])(iter([batch({1: 0})])))
    assert [path.name for path in place.folder().iterdir()] == ["2-0.arrow"]


def test_an_empty_run_is_not_a_lost_one(place: Place) -> None:
    write(place, 1, {})
    found = finding(place, [1], KEY, VALUES, [])(iter([batch({1: 0})]))
    assert content(found, OLDER + "value") == {1: None}


def test_a_lost_file_is_lost_state(place: Place) -> None:
    with pytest.raises(StateNotHereError) as caught:
        list(finding(place, [1], KEY, VALUES, [])(iter([batch({1: 0})])))
    assert lost_state(caught.value)


def test_rows_of_another_partition_are_refused(place: Place, task: Task) -> None:
    rows = batch({1: 0}).append_column(PARTITION, pa.array([3], pa.int32()))
    with pytest.raises(RuntimeError, match="adaptive"):
        list(writing(place, 1, [KEY, "value"])(iter([rows])))
    task.partition = 3
    assert content(writing(place, 1, [KEY, "value"])(iter([rows]))) == {1: 0}


def test_a_task_on_another_executor_neither_reads_nor_writes(
    place: Place, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = replace(place, homes=("blockmgr-a", "blockmgr-b"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/executor/blockmgr-b,/data/executor/blockmgr-c")
    steps = [
        finding(place, [], KEY, VALUES, []),
        writing(place, 1, [KEY, "value"]),
        filing(place, 1),
        adding(place, [], 1, KEY, {"value": add_any}, []),
        merging(place, [], 1, KEY, None),
    ]
    for step in steps[1:]:
        with pytest.raises(StateNotHereError) as caught:
            list(step(iter([])))
        assert lost_state(caught.value)
    assert not place.folder().exists()
    task.partition = 1
    for step in steps:
        list(step(iter([])))
    assert [path.name for path in place.folder().iterdir()] == ["1-1.arrow"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1, None, None], [1, None, 2], [True, True, False]),
        ([float("nan"), 1.0, None], [float("nan"), 2.0, None], [True, False, True]),
        (["a", "", None], ["a", None, None], [True, False, True]),
        ([[1, None], [], None], [[1, None], None, None], [True, False, True]),
        ([{"a": 1, "b": None}, None], [{"a": 1, "b": None}, {"a": None, "b": None}], [True, False]),
    ],
)
def test_null_is_null_and_not_a_number_is_itself(one: list[Any], other: list[Any], same: list[bool]) -> None:
    kind = pa.array([*one, *other]).type
    assert same_values(pa.array(one, kind), pa.array(other, kind)).tolist() == same


def test_least_and_greatest_pass_over_null() -> None:
    one, other = pa.array([1, None, 3, None]), pa.array([2, 2, None, None], pa.int64())
    assert least(one, other).to_pylist() == [1, 2, 3, None]
    assert greatest(one, other).to_pylist() == [2, 2, 3, None]


def test_merging_nothing_gives_nothing() -> None:
    assert list(merged([], KEY)) == []


def test_runs_that_say_null_and_never_null_are_merged(place: Place) -> None:
    rows = batch({1: 10})
    strict = pa.struct([pa.field("key", pa.int64(), nullable=False)])
    never = pa.schema([pa.field(HASH, pa.int64(), nullable=False), pa.field(KEY, strict), ("value", pa.int64())])
    list(filing(place, 1)(iter([rows.cast(never)])))
    write(place, 2, {2: 20})
    list(merging(place, [2, 1], 3, KEY, None)(iter([])))
    assert content(reading(place, [3], KEY, lambda rows: rows)(iter([]))) == {1: 10, 2: 20}


def test_structs_are_ordered_by_their_first_field_that_differs_and_null_is_least() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.timestamp("us"))])
    fields = [(None, 9), (1, None), (1, 2), (1, 3), (2, 1)]
    ordered = pa.array([None, *({"a": a, "b": b} for a, b in fields)], kind).to_pylist()
    pairs = [(one, other) for one in range(len(ordered)) for other in range(len(ordered))]
    ones = pa.array([ordered[one] for one, _ in pairs], kind)
    others = pa.array([ordered[other] for _, other in pairs], kind)
    assert greatest_struct(ones, others).to_pylist() == [ordered[max(pair)] for pair in pairs]
    # Nothing is no value to choose.
    assert least_struct(ones, others).to_pylist() == [ordered[min(pair) or max(pair)] for pair in pairs]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
@pytest.mark.parametrize("rows", [1, 50])
def test_lists_are_united_value_by_value(kind: pa.DataType, rows: int) -> None:
    chance = random.Random(rows)

    def lists() -> list[list[Any] | None]:
        values = [chance.sample(range(20), chance.randint(0, 9)) for _ in range(rows)]
        return [[one if kind == pa.int64() else str(one) for one in some] for some in values]

    ones, others = lists(), lists()
    ones[0] = None
    # Slices of longer arrays, as a record batch has them.
    one = pa.array([[None], *ones], pa.list_(kind)).slice(1)
    found = united(one, pa.array(others, pa.list_(pa.field("element", kind, nullable=False)))).to_pylist()
    assert [sorted(some) for some in found] == [
        sorted({*(a or []), *(b or [])}) for a, b in zip(ones, others, strict=True)
    ]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.list_(pa.float64()), pa.struct([("f", pa.float64())])])
def test_zero_and_not_a_number_are_one_key_each(kind: pa.DataType) -> None:
    def keys(*values: float | None) -> pa.Array:
        return pa.array([_inside(value, kind) for value in values], kind)

    odd = np.frombuffer(b"\x01\x00\x00\x00\x00\x00\xf8\xff", np.float64)[0]
    ours, theirs = keys(0.0, float("nan"), None, 1.0, 0.0), keys(-0.0, float(odd), None, 2.0, None)
    assert same_values(ours, theirs).tolist() == [True, True, True, False, False]


def _inside(value: float | None, kind: pa.DataType) -> Any:
    return [value] if pa.types.is_list(kind) else {"f": value} if pa.types.is_struct(kind) else value
