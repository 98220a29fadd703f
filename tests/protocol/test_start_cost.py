"""What a start costs does not grow with the number of generations that a job has ever had."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import obstore
import pytest
from msgspec.structs import replace
from obstore.store import MemoryStore

from epochal.control.job import JobSpec, PipelineSpec
from epochal.control.reconcile import rebuild
from epochal.protocol.documents import GenerationRecord, decode, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.generations import END, Generations, newest_generation, newest_number
from epochal.protocol.publish import Fenced, claim_generation, newer_generation
from epochal.protocol.resolve import Found, uncommitted_epoch
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import PAGE, ObjectInfo, Store
from tests.protocol.making import PATHS, generation_record, manifest, put_epoch

EVER = (10, 1_000, 100_000)
SPEC = JobSpec(namespace="team", name="orders", pipeline=PipelineSpec(file="x.py"))


@dataclass
class Cost:
    requests: int
    names: int
    answer: Any = field(compare=False)


class CountingStore(Store):
    names = 0

    def list_objects(self, prefix: str, *, after: str | None = None) -> list[ObjectInfo]:
        found = super().list_objects(prefix, after=after)
        self.names += len(found)
        return found

    def list_page(self, prefix: str, *, after: str | None = None) -> list[str]:
        found = super().list_page(prefix, after=after)
        self.names += len(found)
        return found


def new_store() -> CountingStore:
    store = CountingStore(MemoryStore(), uri="memory:///")
    for epoch in (1, 2):
        put_epoch(store, manifest(epoch))
    return store


def with_generations(ever: int, **newest: Any) -> CountingStore:
    """Generation 1 made two epochs, none of the others did. Nobody reads the records in between: they hold nothing."""
    store = new_store()
    for generation in range(1, ever):
        obstore.put(store._backend, PATHS.generation(Generation(generation)), b"")
    last = replace(generation_record(ever, claim="last"), issued=Epoch(2), last_turn=Generation(0), **newest)
    store.create(PATHS.generation(last.generation), encode(last))
    return store


def start(store: Store, generation: int, **record: Any) -> Any:
    made = generation_record(generation, claim=f"driver-{generation}", **record)
    return start_generation(store, PATHS, StartRequest(record=made, known=Epoch(2), issued=Epoch(2)))


def cost(store: CountingStore, act: Any, *args: Any, **kwargs: Any) -> Cost:
    store.requests.clear()
    store.names = 0
    answer = act(store, *args, **kwargs)
    return Cost(store.requests.total(), store.names, answer)


@pytest.fixture(scope="module")
def measured() -> dict[int, dict[str, Cost]]:
    found: dict[int, dict[str, Cost]] = {}
    for ever in EVER:
        store = with_generations(ever)
        found[ever] = {
            "the operator looks before it rests": cost(
                store, lambda at, near: uncommitted_epoch(at, PATHS, known=Epoch(2), near=near), Generation(ever)
            ),
            "a zombie looks at the fence": cost(store, newer_generation, PATHS, Generation(2)),
            "a start": cost(store, start, ever + 1),
            "a start that goes back": cost(store, start, ever + 2, back_to=1),
            "a start after that": cost(store, start, ever + 3),
            "a start of one long past": cost(store, start, 3),
            "a lost record": cost(store, rebuild, PATHS, SPEC, 0.0),
            "a start that thousands before did not come to": cost(store, start, ever + 200_000),
        }
    return found


BY_SEARCH = {"a lost record": 1, "a start that thousands before did not come to": 4, "a start of one long past": 4}
"""Where nobody knows a number near by, the newest is searched for: so many times."""

EXPECTED = {"a start": 2, "a start that goes back": 1, "a start after that": 1}


def test_a_start_costs_the_same_however_many_there_were(measured: dict[int, dict[str, Cost]]) -> None:
    for name in measured[EVER[0]]:
        few, some, many = (measured[ever][name] for ever in EVER)
        looks = 15  # twice the logarithm of 100 pages, and one
        said = f"{name}: {few}, {some}, {many}"
        if name in BY_SEARCH:
            assert max(some.requests, many.requests) <= few.requests + looks * BY_SEARCH[name], said
            assert max(some.names, many.names) <= few.names + looks * BY_SEARCH[name] * PAGE, said
        elif name == "a zombie looks at the fence":
            assert few.requests == some.requests == many.requests == 1, said
            assert max(some.names, many.names) <= PAGE, said
        else:
            assert few == some == many, said


def test_and_it_is_right(measured: dict[int, dict[str, Cost]]) -> None:
    for ever, costs in measured.items():
        for name, epoch in EXPECTED.items():
            answer = costs[name].answer
            assert isinstance(answer, Found), f"{name} of {ever}: {answer}"
            assert answer.manifest.epoch == epoch, name
        assert isinstance(costs["a start of one long past"].answer, Fenced)
        assert isinstance(costs["a zombie looks at the fence"].answer, Fenced)
        record = costs["a lost record"].answer
        assert record.checkpoints.generation == ever + 3
        assert record.went_back == "epoch:1"


def test_a_driver_that_keeps_dying_while_it_goes_back_costs_no_more_each_time() -> None:
    """Each of them is told to go back; only the last one of them matters."""
    store = new_store()
    start(store, 1)
    costs = [cost(store, start, generation, back_to=1) for generation in range(2, 12)]
    assert costs[1] == costs[-1], costs
    start(store, 12)
    assert cost(store, start, 13) == cost(store, start, 14)
    assert rebuild(store, PATHS, SPEC, 0.0).went_back == "epoch:1"


def test_records_of_earlier_releases_are_read_once() -> None:
    store = new_store()
    for generation in range(1, 31):
        store.create(PATHS.generation(Generation(generation)), encode(generation_record(generation)))
    first, second, third = (cost(store, start, generation) for generation in (31, 32, 33))
    assert first.requests > 30
    assert second.requests < 20
    assert second == third


def test_a_record_that_cannot_be_read_is_doubtful_until_somebody_deletes_it() -> None:
    """Each later record names it, so it is not searched for. Without it, what stands below it is read again."""
    store = new_store()
    start(store, 1)
    start(store, 2, back_to=1)
    damaged = PATHS.generation(Generation(3))
    obstore.put(store._backend, damaged, b"{")
    made = generation_record(4, claim="4")
    assert claim_generation(store, PATHS, made) is None
    assert decode("", store.get(PATHS.generation(Generation(4))), GenerationRecord).last_turn == 3
    doubt = start(store, 5)
    assert "record cannot be read" in doubt.skipped[0].why
    store.delete([damaged])
    answer = start(store, 6)
    assert isinstance(answer, Found)
    assert answer.manifest.epoch == 1


@pytest.mark.parametrize("there", [(), (1,), (2,), (1, 2), (7, 9), (1, 999_999), (998_000, 999_998), range(1, 2_500)])
def test_the_newest_is_found(there: tuple[int, ...]) -> None:
    store = CountingStore(MemoryStore(), uri="memory:///")
    for generation in there:
        obstore.put(store._backend, PATHS.generation(Generation(generation)), b"")
    bounds = {1, 2, 3, *(number + more for number in list(there)[-3:] for more in (-1, 0, 1, 2, 1_001)), END}
    for before in sorted(bound for bound in bounds if 0 < bound <= END):
        expected = max((number for number in there if number < before), default=0)
        for near in (None, 1, 3, before - 1 or 1, 500_000):
            found = newest_generation(store, PATHS, near=Generation(near) if near else None, before=Generation(before))
            assert found == expected, f"before {before}, near {near}"


FOREIGN = {
    "a note before them all": ["0-notes.txt"],
    "a copy on the first page": ["000500.json.bak"],
    "copies on each page": [f"{number:06d}.json.bak" for number in range(1, 2_500, 7)],
    "pages of others": [f"000002.json.{number:06d}" for number in range(2 * PAGE + 1)],
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_what_others_have_put_between_the_generations_hides_none_of_them(foreign: list[str]) -> None:
    store = CountingStore(MemoryStore(), uri="memory:///")
    for name in foreign:
        obstore.put(store._backend, f"{PATHS.generations}{name}", b"")
    for generation in range(1, 2_500):
        obstore.put(store._backend, PATHS.generation(Generation(generation)), b"")
    for before, expected in ((END, 2_499), (Generation(2_000), 1_999), (Generation(3), 2)):
        for near in (None, Generation(1), Generation(2), Generation(1_500)):
            assert newest_generation(store, PATHS, near=near, before=before) == expected
    assert newer_generation(store, PATHS, Generation(2)) is not None, "the fence sees them, too"


def test_a_number_between_two_generations_is_used_up() -> None:
    """One record stands for all of them; a controller that lost its own does not give them out again."""
    store = new_store()
    start(store, 1)
    start(store, 5)
    assert store.list_names(PATHS.generations) == [PATHS.generation(Generation(number)) for number in (1, 2, 5)]
    for late in (2, 3, 4):
        assert isinstance(start(store, late, back_to=1), Fenced)
    store.delete([PATHS.generation(Generation(5))])  # it died before it had created that
    assert newest_number(store, PATHS) == 5
    for late in (3, 4):
        assert start(store, late, back_to=1).by == 5
    assert isinstance(start(store, 7), Found)
    names = [PATHS.generation(Generation(number)) for number in (1, 2, 5, 7)]
    assert store.list_names(PATHS.generations) == names


def test_turns_are_those_that_reading_every_record_finds() -> None:
    store = new_store()
    said: Counter[int] = Counter()
    backs = [None, 1, None, 2, 2, None, None, 1, 1, 1, None]
    for generation, back_to in enumerate(backs, start=1):
        start(store, generation, back_to=back_to)
    found = Generations(store, PATHS, Generation(len(backs)))
    for turn in found.turns():
        assert isinstance(turn, GenerationRecord)
        said[turn.back_to or 0] += 1
    assert said == {1: 2, 2: 1}, "of those that repeat each other, the newest"
