"""Abort against commit, in every order: an epoch fails or becomes real, and what outlives its epoch touches nothing."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import CheckpointReport, CheckpointRequest, CheckpointState, Refusal, RefusalReason
from epochal.protocol.documents import GenerationRecord, Manifest, RunPart
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation
from epochal.protocol.errors import ObjectMissingError
from epochal.protocol.paths import JobPaths, StateName
from epochal.protocol.publish import publish
from epochal.protocol.resolve import read_epoch
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import open_store
from epochal.runtime.checkpoint import checkpointer as module
from epochal.runtime.checkpoint.checkpointer import Checkpointer, JobIdentity
from epochal.runtime.checkpoint.committer import Committer
from epochal.runtime.checkpoint.patience import Patience
from epochal.runtime.dataflow import source_log
from epochal.runtime.dataflow.checkpoint_attempt import EpochRun
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.dataflow.source import BoundSource, SourceTask
from epochal.runtime.dataflow.task import Task
from epochal.runtime.dataflow.two_phase_sink import BoundSink, SinkOperator
from epochal.runtime.spark.background import Background
from epochal.runtime.state.table_manager import OperatorSnapshot, TableSnapshot
from epochal.runtime.state.tables import Run
from tests.connectors.commits import Commits

PATHS = JobPaths("test", "job")
LONGEST = 30.0
STATES = list(CheckpointState)


class Rows(Run):
    """A run without Spark, which knows whether anybody holds it."""

    def __init__(self, rows: int = 1) -> None:
        super().__init__(cast(Any, None), rows=rows)
        self.released = False

    def _let_go(self) -> None:
        self.released = True


class Gated:
    """Writes runs as a name each, when their epoch's gate is open."""

    def __init__(self) -> None:
        self.closed: dict[int, threading.Event] = {}
        self.waiting: dict[int, threading.Event] = {}

    def close(self, epoch: int) -> None:
        self.closed[epoch], self.waiting[epoch] = threading.Event(), threading.Event()

    def write(self, runs: list[Run], latest: object, *, epoch: int, number: int, **_: object) -> tuple[RunPart, ...]:
        if gate := self.closed.get(epoch):
            self.waiting[epoch].set()
            assert gate.wait(LONGEST)
        return (RunPart(object=written(epoch, number), rows=sum(run.rows for run in runs), bytes=1),)


def written(epoch: int, number: int) -> str:
    name = StateName(operator="out", table="pending", epoch=Epoch(epoch), generation=Generation(1), run=number, part=0)
    return PATHS.state_object(name)


class Kept(SinkOperator):
    needs_frame = False

    def __init__(self) -> None:
        self.commits: dict[int, list[str]] = {}

    def commit(self, epoch: int, frame: object, objects: list[str], ctx: OperatorContext) -> None:
        self.commits[epoch] = objects


class Driver:
    """A checkpointer with one sink. The test is what brings barriers to it."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = open_store("memory:///")
        record = GenerationRecord(generation=Generation(1), claim="me", created=1, writer="test")
        start_generation(self.store, PATHS, StartRequest(record=record))
        self.gated, self.sink, self.errors = Gated(), Kept(), list[BaseException]()
        context = Commits(tmp_path / "objects").context()
        task = Task("out", "sink", BoundSink(self.sink, StructType()), context, [None])
        task.run_start({}, restore_run=cast(Any, None), load_run=cast(Any, None))
        persistence, tasks = cast(Any, self.gated), {"out": task}
        self.checkpointer = Checkpointer(
            identity=JobIdentity(paths=PATHS, generation=Generation(1), claim="me"),
            spark=cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))),
            store=self.store,
            persistence=persistence,
            tasks=tasks,
            last=None,
            newest_number=NO_EPOCH,
            committer=Committer(
                store=self.store,
                paths=PATHS,
                generation=Generation(1),
                persistence=persistence,
                tasks=tasks,
                patience=Patience(),
            ),
            on_fenced=lambda _: None,
            on_error=self.errors.append,
            on_stopped=lambda: None,
            on_ended=lambda _: None,
        )
        self.checkpointer.running = True

    def start(self, epoch: int) -> EpochRun:
        barrier = CheckpointBarrier(epoch=Epoch(epoch), min_epoch=Epoch(1), timestamp=0, then_stop=False)
        answer = self.checkpointer.start(CheckpointRequest(generation=Generation(1), barrier=barrier))
        assert isinstance(answer, CheckpointReport), answer
        return self.checkpointer._runs[Epoch(epoch)]

    def freeze(self, run: EpochRun, *runs: Run) -> None:
        """The barrier has come: these runs are what the sink holds."""
        held = TableSnapshot("KeyedTime", [one.hold() for one in runs], as_one=True)
        run.finished_sync("out", OperatorSnapshot("out", {"pending": held}), None)

    def manifest(self, epoch: int) -> Manifest | None:
        try:
            found = read_epoch(self.store, PATHS, Epoch(epoch))
        except ObjectMissingError:
            return None
        assert isinstance(found, Manifest)
        return found

    def rows(self, epoch: int) -> int:
        found = self.manifest(epoch)
        assert found is not None
        return sum(part.rows for run in found.operators["out"].tables["pending"].runs for part in run.parts)

    def settle(self) -> None:
        """Wait until nothing is being persisted."""
        self.checkpointer._pool.shutdown(wait=True)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path)
    yield made
    made.checkpointer.close()


def an_epoch(state: CheckpointState) -> EpochRun:
    barrier = CheckpointBarrier(epoch=Epoch(1), min_epoch=Epoch(1), timestamp=0, then_stop=False)
    run = EpochRun(barrier, Generation(1), {"out": "sink"}, lambda *_: None, lambda _: None)
    match state:
        case CheckpointState.COMMITTING:
            run.try_commit_point()
        case CheckpointState.FAILED:
            run.abort("failed")
        case CheckpointState.READY:
            run.try_commit_point()
            run.ready()
        case _:
            pass
    assert run.state is state
    return run


LEGAL = {
    ("try_commit_point", CheckpointState.IN_PROGRESS): CheckpointState.COMMITTING,
    ("abort", CheckpointState.IN_PROGRESS): CheckpointState.FAILED,
    ("reject", CheckpointState.COMMITTING): CheckpointState.FAILED,
    ("ready", CheckpointState.COMMITTING): CheckpointState.READY,
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("way", ["try_commit_point", "abort", "reject", "ready"])
def test_there_are_four_ways_and_no_others(state: CheckpointState, way: str) -> None:
    run = an_epoch(state)
    moved = getattr(run, way)(*(("why",) if way in ("abort", "reject") else ()))
    assert moved is ((way, state) in LEGAL)
    assert run.state is LEGAL.get((way, state), state)
    assert run.done.is_set() is (run.state in (CheckpointState.READY, CheckpointState.FAILED))


def test_an_abort_that_comes_while_the_epoch_passes_its_commit_point(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at the state lets the publisher go on before it acts on what it saw."""
    looked, publishing = threading.Event(), threading.Event()
    aborting = threading.get_ident()

    class Racing(EpochRun):
        @property
        def state(self) -> CheckpointState:
            seen = self._seen
            if threading.get_ident() == aborting and seen is CheckpointState.IN_PROGRESS and self.armed:
                looked.set()
                publishing.wait(0.3)  # in vain if the look holds the lock: then the abort comes first
            return seen

        @state.setter
        def state(self, value: CheckpointState) -> None:
            self._seen = value
            if value is CheckpointState.COMMITTING:
                publishing.set()

        _seen = CheckpointState.IN_PROGRESS
        armed = False

    monkeypatch.setattr(module, "EpochRun", Racing)
    driver.gated.close(1)
    run, rows = cast(Racing, driver.start(1)), Rows()
    rows.hold()  # by its table
    driver.freeze(run, rows)
    assert driver.gated.waiting[1].wait(LONGEST)

    def publisher() -> None:
        looked.wait(LONGEST)
        driver.gated.closed[1].set()

    threading.Thread(target=publisher, daemon=True).start()
    run.armed = True
    report = driver.checkpointer.abort(Epoch(1))
    assert report is not None
    driver.settle()
    if report.state is CheckpointState.FAILED:
        assert driver.manifest(1) is None
        assert driver.sink.commits == {}
    else:
        assert run.state is CheckpointState.READY
        assert driver.sink.commits == {1: [written(1, 1)]}


def test_past_its_commit_point_an_epoch_is_not_aborted(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    publishing, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        publishing.set()
        assert go_on.wait(LONGEST)
        return publish(*arguments)

    monkeypatch.setattr(module, "publish", slow)
    run, rows = driver.start(1), Rows()
    driver.freeze(run, rows)
    assert publishing.wait(LONGEST)
    report = driver.checkpointer.abort(Epoch(1))
    assert report is not None
    assert report.state is CheckpointState.COMMITTING
    assert not rows.released, "its sinks are yet to commit"
    go_on.set()
    assert run.done.wait(LONGEST)
    assert run.state is CheckpointState.READY
    assert driver.sink.commits == {1: [written(1, 1)]}
    assert rows.released


def test_a_persist_that_outlives_its_epoch_does_not_touch_what_the_next_one_shares(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, real = threading.Event(), EpochRun.written

    def noting(self: EpochRun, runs: Any) -> bool:
        noted = real(self, runs)
        if self.barrier.epoch == 1:
            late.set()
        return noted

    monkeypatch.setattr(EpochRun, "written", noting)
    first, second, third = (Rows().hold() for _ in range(3))  # by their table
    driver.gated.close(1)
    aborted = driver.start(1)
    driver.freeze(aborted, first, second)
    assert driver.gated.waiting[1].wait(LONGEST)
    driver.checkpointer.abort(Epoch(1))
    following = driver.start(2)
    driver.freeze(following, first, second, third)
    assert following.done.wait(LONGEST)
    assert following.state is CheckpointState.READY
    driver.gated.closed[1].set()
    assert late.wait(LONGEST)
    last = driver.start(3)
    driver.freeze(last, first, second, third)
    assert last.done.wait(LONGEST)
    driver.settle()
    assert [driver.rows(epoch) for epoch in (2, 3)] == [3, 3], "each row once"
    assert driver.manifest(1) is None
    assert {run.persisted for run in (first, second, third)} == {2}


def test_what_is_frozen_after_the_abort_is_released(driver: Driver) -> None:
    run, rows = driver.start(1), Rows()
    assert driver.checkpointer.abort(Epoch(1)) is not None
    driver.freeze(run, rows)
    assert rows.released
    assert driver.checkpointer.report(Epoch(1)) == run.report()


def test_an_abort_of_a_later_epoch_lets_none_begin_beside_the_one_in_flight(driver: Driver) -> None:
    driver.gated.close(1)
    run = driver.start(1)
    driver.freeze(run, Rows())
    assert driver.gated.waiting[1].wait(LONGEST)
    report = driver.checkpointer.abort(Epoch(2))
    assert report is not None
    assert report.state is CheckpointState.FAILED, "its barrier may still be on its way"
    barrier = CheckpointBarrier(epoch=Epoch(3), min_epoch=Epoch(1), timestamp=0, then_stop=False)
    answer = driver.checkpointer.start(CheckpointRequest(generation=Generation(1), barrier=barrier))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalReason.CHECKPOINT_IN_FLIGHT
    driver.gated.closed[1].set()
    assert run.done.wait(LONGEST)
    assert run.state is CheckpointState.READY
    driver.start(3)


@pytest.mark.parametrize("published", [False, True])
def test_an_error_while_publishing_is_no_failed_epoch(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    """It may be real: a driver that called it failed would commit its rows with the next epoch, too."""

    def breaking(*arguments: Any) -> Any:
        if published:
            publish(*arguments)
        raise RuntimeError("a mistake in here")

    monkeypatch.setattr(module, "publish", breaking)
    run = driver.start(1)
    driver.freeze(run, Rows())
    driver.settle()
    assert [str(error) for error in driver.errors] == ["a mistake in here"]
    assert run.state is CheckpointState.COMMITTING
    report = driver.checkpointer.abort(Epoch(1))
    assert report is not None
    assert report.state is CheckpointState.COMMITTING


def test_a_source_goes_on_whenever_its_last_epoch_is_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of the barrier: whether the source is held is not to be remembered beside the epoch."""
    context = Commits(tmp_path / "store").context(name="rows")
    bound = BoundSource(cast(Any, None), cast(Any, None), StructType())
    source = SourceTask("rows", bound, context, tmp_path, Background())
    barrier = CheckpointBarrier(epoch=Epoch(1), min_epoch=Epoch(1), timestamp=0, then_stop=True)
    run = EpochRun(barrier, Generation(1), {"rows": "source"}, lambda *_: None, lambda _: None)
    monkeypatch.setattr(source_log, "capture", lambda *_: None)
    monkeypatch.setattr(source, "cut", lambda *_: run.abort("given up"))
    source.inject(barrier, run)
    assert not source._held()
