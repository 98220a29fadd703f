"""A commit waits for a target that is away, for so long and no longer, and not when the driver is to end."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from epochal.protocol.control import StorageConfig
from epochal.protocol.epochs import Generation
from epochal.protocol.store import open_store
from epochal.runtime.checkpoint.committer import Committer
from epochal.runtime.checkpoint.patience import Patience
from epochal.runtime.dataflow.graph import SINK
from epochal.runtime.dataflow.operator import JobRef, OperatorContext
from epochal.runtime.dataflow.task import Task
from epochal.runtime.dataflow.two_phase_sink import COMMIT_PATIENCE, START_PATIENCE, BoundSink, SinkOperator
from epochal.runtime.errors import FencedError, OperatorError, OutsideError, UnavailableError
from epochal.runtime.state.persistence import Persistence
from tests.protocol.making import PATHS, manifest


class Clock(threading.Event):
    """Waiting lets time pass, and nothing else; ``until`` is when the driver is asked to end."""

    def __init__(self, until: float = float("inf")) -> None:
        super().__init__()
        self.now = 0.0
        self.until = until
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.now += timeout
        if self.now >= self.until:
            self.set()
        return self.is_set()


class Target:
    """Away until a moment."""

    def __init__(self, clock: Clock, until: float, error: Callable[[], Exception]) -> None:
        self.clock, self.until, self.error = clock, until, error
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.clock.now < self.until:
            raise self.error()
        return "done"


def away() -> Exception:
    return UnavailableError("the table is being moved")


def patience(clock: Clock, said: list[str]) -> Patience:
    return Patience(clock, said.append, lambda: clock.now)


def test_it_waits_with_growing_pauses_and_says_so_until_it_is_over() -> None:
    clock, said, waits = Clock(), list[str](), list[str]()
    target = Target(clock, 300.0, away)
    assert patience(clock, said).call("sink 'out'", target, seconds=600.0, on_wait=waits.append) == "done"
    assert said[0] == "sink 'out' waits, and tries again for 600 s: the table is being moved"
    assert said == waits
    assert said[-1] == "", "it waits no longer"
    assert max(clock.pauses) <= 30.0
    assert target.calls < 40


def test_it_ends_after_its_time_with_the_error() -> None:
    clock, said = Clock(), list[str]()
    with pytest.raises(UnavailableError, match="being moved"):
        patience(clock, said).call("sink 'out'", Target(clock, 1e9, away), seconds=600.0)
    assert clock.now == pytest.approx(600.0)
    assert said[-1] == ""


def test_it_ends_when_the_driver_is_to_end() -> None:
    clock = Clock(until=20.0)
    with pytest.raises(UnavailableError):
        patience(clock, []).call("sink 'out'", Target(clock, 1e9, away), seconds=600.0)
    assert clock.now < 60.0


@pytest.mark.parametrize("error", [OutsideError("there is no table"), RuntimeError("whatever")], ids=str)
def test_what_a_moment_does_not_mend_is_not_waited_for(error: Exception) -> None:
    clock, said = Clock(), list[str]()
    target = Target(clock, 1e9, lambda: error)
    with pytest.raises(type(error)):
        patience(clock, said).call("sink 'out'", target, seconds=600.0)
    assert (target.calls, said) == (1, [])


def test_before_each_retry_it_looks_whether_the_call_may_still_be_made() -> None:
    clock, looks = Clock(), list[float]()
    target = Target(clock, 1e9, away)

    def look() -> None:
        looks.append(clock.now)
        if len(looks) == 1:
            raise UnavailableError("the store is away, too")  # so nobody knows: it is another try that failed
        if len(looks) == 3:
            raise FencedError("generation 2 has taken over from generation 1")

    with pytest.raises(FencedError):
        patience(clock, []).call("sink 'out'", target, seconds=600.0, before_retry=look)
    assert target.calls == 2, "the first time, and the one time that it might"
    assert looks[0] > 0.0


def test_no_time_is_no_wait() -> None:
    clock = Clock()
    target = Target(clock, 1e9, away)
    with pytest.raises(UnavailableError):
        patience(clock, []).call("sink 'out'", target, seconds=0.0)
    assert target.calls == 1


class Away(SinkOperator):
    """A sink whose target never answers."""

    needs_frame = False

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        raise away()


@pytest.mark.parametrize(("held", "seconds"), [({}, COMMIT_PATIENCE), (None, START_PATIENCE)], ids=["running", "start"])
def test_a_driver_that_starts_waits_less_than_it_is_waited_for(held: dict[str, Any] | None, seconds: float) -> None:
    clock, no_spark = Clock(), cast(Any, None)
    context = OperatorContext(name="out", job=JobRef(name="job", generation=1, newest_epoch=1), spark=no_spark)
    committer = Committer(
        store=open_store("memory:///"),
        paths=PATHS,
        generation=Generation(1),
        persistence=Persistence(no_spark, StorageConfig(uri="memory:///"), PATHS, Generation(1)),
        tasks={"out": Task("out", SINK, BoundSink(Away(), StructType()), context)},
        patience=patience(clock, []),
    )
    with pytest.raises(OperatorError, match="being moved"):
        committer.commit(manifest(1, pending={"out": 0}), held=held)
    assert clock.now == pytest.approx(seconds)
