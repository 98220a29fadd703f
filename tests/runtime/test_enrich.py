"""Calls to the outside: bounded, in order, tried again, and what becomes of a row without an answer. Without Spark."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from epochal.operators.enrich_rows import EnrichCall
from epochal.protocol.faults import FixedBy, fault_of
from epochal.runtime.errors import PipelineError, UnavailableError

ADDED = pa.schema({"double": pa.int64()})
RESULT = pa.schema({"n": pa.int64(), "double": pa.int64(), "__error": pa.string()})


def called(function: Any, numbers: int = 20, **options: Any) -> list[tuple[Any, ...]]:
    """Rows that come out of two Arrow batches."""
    settings: dict[str, Any] = {
        "concurrency": 4, "timeout": 60.0, "retries": 0, "retry_delay": 0.0, "ordered": True, "on_error": "fail",
    }  # fmt: skip
    call = EnrichCall(function=function, added=ADDED, result=RESULT, **(settings | options))
    halves = [range(numbers // 2), range(numbers // 2, numbers)]
    batches = call(iter([pa.record_batch({"n": list(half)}) for half in halves]))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def doubled(numbers: Any) -> list[tuple[Any, ...]]:
    return [(number, 2 * number, None) for number in numbers]


def test_order_is_kept_although_later_rows_are_answered_first() -> None:
    async def slow_first(row: dict[str, Any]) -> dict[str, Any]:
        for _ in range(100 - 5 * row["n"]):
            await asyncio.sleep(0)
        return {"double": 2 * row["n"]}

    assert called(slow_first) == doubled(range(20))
    any_order = called(slow_first, ordered=False)
    assert any_order != doubled(range(20))
    assert sorted(any_order) == doubled(range(20))


def test_no_more_calls_at_a_time_than_allowed() -> None:
    under_way, most = 0, 0

    async def watched(row: dict[str, Any]) -> dict[str, Any]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(5):
            await asyncio.sleep(0)
        under_way -= 1
        return {"double": 2 * row["n"]}

    assert called(watched, concurrency=3) == doubled(range(20))
    assert most == 3


def test_plain_functions_run_in_threads_side_by_side() -> None:
    together = threading.Barrier(4, timeout=60)

    def meet(row: dict[str, Any]) -> dict[str, Any]:
        together.wait()
        return {"double": 2 * row["n"]}

    assert called(meet, 8) == doubled(range(8))


def test_a_call_is_made_again_so_often_and_no_more() -> None:
    tries: Counter[int] = Counter()

    async def moody(row: dict[str, Any]) -> dict[str, Any]:
        tries[row["n"]] += 1
        if row["n"] == 3 or tries[row["n"]] < 3:
            raise ConnectionError("gone")
        return {"double": 2 * row["n"]}

    answers = called(moody, 6, retries=2, on_error="null")
    assert answers == [*doubled(range(3)), (3, None, "ConnectionError: gone"), *doubled(range(4, 6))]
    assert set(tries.values()) == {3}


async def odd_ones_fail(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["n"] % 2:
        raise ValueError("odd")
    return None if row["n"] == 2 else {"double": 2 * row["n"]}


def test_what_becomes_of_a_row_without_an_answer() -> None:
    failed = [(number, None, "ValueError: odd") for number in (1, 3)]
    assert called(odd_ones_fail, 4, on_error="null") == [(0, 0, None), failed[0], (2, None, None), failed[1]]
    assert called(odd_ones_fail, 4, on_error="drop") == [(0, 0, None), (2, None, None)]
    with pytest.raises(ValueError, match="odd"):
        called(odd_ones_fail, 4)


def test_a_call_that_takes_for_ever_is_given_up() -> None:
    async def never(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(UnavailableError, match=r"no answer within 0.01 s, 2 times") as caught:
        called(never, 2, timeout=0.01, retries=1)
    assert fault_of(caught.value).fixed_by is FixedBy.TIME, "an outage is no mistake of the job"


def test_a_time_limit_of_the_function_itself_is_told_in_its_words() -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        raise TimeoutError("the socket timed out")

    with pytest.raises(TimeoutError, match="the socket timed out") as caught:
        called(slow, 2)
    assert fault_of(caught.value).fixed_by is FixedBy.TIME


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (7, "gave a int: give a dict of the columns to add, or None"),
        ({"triple": 3}, "a row has the columns 'triple'; the schema has double"),
        ({"double": "x"}, "a row does not fit the schema"),
    ],
)
def test_an_answer_that_cannot_be_used_is_not_asked_for_again(answer: Any, message: str) -> None:
    asked = 0

    async def wrong(row: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        return answer

    with pytest.raises(PipelineError, match=message):
        called(wrong, 2, retries=5, concurrency=1)
    assert asked == 1


def test_a_class_is_opened_and_closed_once() -> None:
    seen: list[str] = []

    class Client:
        async def open(self) -> None:
            seen.append("open")

        async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return {"double": 2 * row["n"]}

        def close(self) -> None:
            seen.append("close")

    assert called(Client) == doubled(range(20))
    assert seen == ["open", "close"]
