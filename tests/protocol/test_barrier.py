"""The barrier on the wire: what goes in comes out, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.protocol.barrier import CheckpointBarrier, barrier_to_builtins, decode_barrier, encode_barrier
from epochal.protocol.epochs import MAX_EPOCH, MAX_GENERATION, Epoch, Generation, next_epoch, next_generation
from epochal.protocol.errors import InvalidBarrierError

GOOD = b'{"epoch":7,"min_epoch":4,"timestamp":1,"then_stop":true}'


@given(
    epochs=st.tuples(st.integers(1, MAX_EPOCH), st.integers(1, MAX_EPOCH)),
    timestamp=st.integers(0, 2**62),
    then_stop=st.booleans(),
)
def test_every_barrier_survives_the_wire(epochs: tuple[int, int], timestamp: int, then_stop: bool) -> None:
    barrier = CheckpointBarrier(
        epoch=Epoch(max(epochs)), min_epoch=Epoch(min(epochs)), timestamp=timestamp, then_stop=then_stop
    )
    assert decode_barrier(encode_barrier(barrier)) == barrier


def test_a_barrier_as_plain_values_has_all_its_fields() -> None:
    assert barrier_to_builtins(decode_barrier(GOOD)) == {"epoch": 7, "min_epoch": 4, "timestamp": 1, "then_stop": True}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (GOOD[:-1], "truncated"),
        (GOOD + b"x", "trailing characters"),
        (b"[]", "Expected `object`"),
        (b"\xff", "malformed"),
        (b'{"epoch":' + b"[" * 100_000, "Expected `int`"),
        (GOOD.replace(b'"epoch":7,', b""), "missing required field `epoch`"),
        (GOOD.replace(b":7", b':"7"'), "Expected `int`, got `str`"),
        (GOOD.replace(b":7", b":7.0"), "Expected `int`, got `float`"),
        (GOOD.replace(b":7", b":0"), ">= 1"),
        (GOOD.replace(b":7", b":10000000000"), "<= 9999999999"),
        (GOOD.replace(b":7", b":3"), "not min_epoch 4 and epoch 3"),
        (GOOD.replace(b":1,", b":-1,"), ">= 0"),
        (GOOD.replace(b"true", b"1"), "Expected `bool`"),
    ],
)
def test_anything_else_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(InvalidBarrierError, match=message):
        decode_barrier(data)


def test_a_barrier_that_contradicts_itself_cannot_be_made() -> None:
    with pytest.raises(InvalidBarrierError, match="not min_epoch 5 and epoch 4"):
        CheckpointBarrier(epoch=Epoch(4), min_epoch=Epoch(5), timestamp=0, then_stop=False)
    with pytest.raises(InvalidBarrierError, match="before 1970"):
        CheckpointBarrier(epoch=Epoch(4), min_epoch=Epoch(4), timestamp=-1, then_stop=False)


def test_numbers_end_where_names_do() -> None:
    assert next_epoch(Epoch(1)) == 2
    assert next_generation(Generation(1)) == 2
    with pytest.raises(OverflowError, match="start a new job"):
        next_epoch(Epoch(MAX_EPOCH))
    with pytest.raises(OverflowError, match="start a new job"):
        next_generation(Generation(MAX_GENERATION))
