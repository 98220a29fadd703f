"""State and timers of one key, without Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from epochal.operators.keyed_rows import Output
from epochal.operators.keyed_state import KeyContext, Now, StateSpec, Timer, list_state, map_state, value_state
from epochal.runtime.errors import PipelineError

SECOND = 1_000_000
SPECS: dict[str, StateSpec] = {
    "value": value_state("long", ttl="10 seconds"),
    "list": list_state("long", ttl="10 seconds"),
    "map": map_state("string", "long", ttl="10 seconds"),
    "kept": value_state("long"),
}


def moment(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def context(
    clock: float = 0, stored: dict[str, Any] | None = None, *, watermark: float | None = None, ended: bool = False
) -> KeyContext:
    mark = None if watermark is None else round(watermark * SECOND)
    return KeyContext(("k",), SPECS, Now(round(clock * SECOND), mark, ended), stored)


def test_state_comes_back_until_it_expires() -> None:
    first = context(0)
    first.value("value").update(1)
    first.list("list").extend([1, 2])
    first.map("map")["a"] = 5
    second = context(9, first.to_store())
    assert (second.value("value").get(), second.list("list").get(), dict(second.map("map"))) == (1, [1, 2], {"a": 5})
    second.list("list").append(3)
    third = context(11, second.to_store())
    assert (third.value("value").get("gone"), third.list("list").get(), dict(third.map("map"))) == ("gone", [3], {})


def test_what_did_not_change_is_not_written() -> None:
    stored = context(0)
    stored.value("kept").update(1)
    row = stored.to_store()
    again = context(1, row)
    assert again.value("kept").get() == 1
    assert again.to_store() is None
    assert context(1).to_store() is None


def test_a_key_without_state_is_a_row_that_has_expired() -> None:
    stored = context(0)
    stored.value("kept").update(1)
    stored.register_timer(moment(5))
    row = stored.to_store()
    assert row is not None
    assert row["expires"] is None
    cleared = context(1, row)
    cleared.clear()
    gone = cleared.to_store()
    assert gone is not None
    assert (gone["expires"], gone["event_timers"]) == (0, None)
    passing = context(0)
    passing.value("kept").update(1)
    passing.clear()
    assert passing.to_store() is None


def test_timers_fire_in_order_and_let_others_follow() -> None:
    ctx = context(watermark=10)
    for second in (7, 3, 12, 3):
        ctx.register_timer(moment(second))
    ctx.delete_timer(moment(7))
    fired = []
    for timer in ctx.due("event"):
        fired.append(timer)
        if timer.at == moment(3):
            ctx.register_timer(moment(8))
            ctx.register_timer(moment(2))  # is over: waits for the next watermark
    assert fired == [Timer(moment(3)), Timer(moment(8))]
    assert ctx.timers() == (moment(2), moment(12))


def test_at_the_end_of_the_input_timers_that_register_the_next_one_come_to_an_end() -> None:
    ctx = context(watermark=2**62 / SECOND, ended=True)
    ctx.register_timer(moment(1))
    for timer in ctx.due("event"):
        ctx.register_timer(timer.at + timedelta(seconds=1))
    assert ctx.timers() == (moment(2),)
    assert ctx.watermark == datetime.max.replace(tzinfo=UTC)


def test_timers_by_the_clock_fire_once_a_round() -> None:
    ctx = context(10)
    ctx.register_timer(moment(9), kind="processing")
    ctx.register_timer(moment(11), kind="processing")
    for _ in ctx.due("processing"):
        ctx.register_timer(ctx.now, kind="processing")
    assert ctx.timers("processing") == (moment(10), moment(11))
    assert list(ctx.due("event")) == []


def test_state_that_was_not_declared_is_told() -> None:
    with pytest.raises(PipelineError, match=r"no ValueState 'list' here: state= declares value \(ValueState\), list"):
        context().value("list")


WRONG: dict[str, tuple[Any, str]] = {
    "a number": (1, "gave a int: give Arrow tables, record batches, or a dict for a row"),
    "a list of numbers": ([1], "gave a int"),
    "another column": ({"m": 1}, "a row has the columns 'm'; the schema has n"),
    "another type": ({"n": "x"}, "a row does not fit the schema"),
    "a table without it": (pa.table({"m": [1]}), "gave the columns m; the schema has n"),
    "a table of another type": (pa.table({"n": ["x"]}), "does not fit its schema"),
}


@pytest.mark.parametrize("what", WRONG)
def test_output_that_does_not_fit_is_told(what: str) -> None:
    given, message = WRONG[what]
    output = Output(pa.schema({"n": pa.int64()}))

    def taken() -> None:
        output.add(0, given)
        output.table()

    with pytest.raises(PipelineError, match=message):
        taken()


def test_output_keeps_its_order_and_whose_it_is() -> None:
    output = Output(pa.schema({"n": pa.int64()}))
    output.add(0, {"n": 1})
    output.add(1, iter([pa.table({"n": [2, 3]}), {"n": 4}, pa.record_batch({"n": [5]})]))
    output.add(2, None)
    table, owners = output.table()
    assert (table["n"].to_pylist(), owners.to_pylist()) == ([1, 2, 3, 4, 5], [0, 1, 1, 1, 1])


def test_a_map_has_one_zero_and_one_not_a_number() -> None:
    specs = {"map": map_state("double", "long")}
    first = KeyContext(("k",), specs, Now(0, None, False), None)
    counts = first.map("map")
    for key in (0.0, -0.0, float("nan"), float("nan"), 1.0):
        counts[key] = counts.get(key, 0) + 1
    kept = KeyContext(("k",), specs, Now(0, None, False), first.to_store()).map("map")
    assert [kept[key] for key in (-0.0, float("nan"), 1.0)] == [2, 2, 1]
    assert [str(key) for key in kept] == ["0.0", "nan", "1.0"]
    del kept[float("nan")]
    assert len(kept) == 2
