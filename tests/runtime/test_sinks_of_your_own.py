"""Sinks of the user's own: the runtime holds their rows, and commits in one way, while running and when starting."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import exposition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from epochal import Stream
from epochal.control.driver_client import DriverClient
from epochal.operators.stateless import TransformOperator
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    EXIT_FAILED,
    EXIT_FENCED,
    EXIT_MISCONFIGURED,
    CheckpointState,
    DriverConfig,
    PipelineConfig,
    StorageConfig,
)
from epochal.protocol.documents import GenerationRecord, Manifest
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import claim_generation
from epochal.protocol.resolve import read_epoch
from epochal.runtime.dataflow.checkpoint_attempt import EpochRun
from epochal.runtime.dataflow.graph import SINK, Graph, Input, Node
from epochal.runtime.dataflow.operator import Batch, Collector, OperatorContext
from epochal.runtime.dataflow.source import BoundSource, SourceSpec, SourceTask
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.engine import Engine
from epochal.runtime.errors import PipelineError, UnavailableError
from epochal.runtime.http.control_server import ControlServer
from epochal.runtime.spark.background import Background
from epochal.runtime.state.persistence import store_of
from tests.connectors.commits import Commits
from tests.runtime.bad_data import Files
from tests.support.local_job import LocalJob

PATHS = JobPaths("test", "job")
SOURCE = SourceSpec(read=cast(Any, None), trigger={})


class Kept(SinkOperator):
    """Implements nothing but ``commit``, and does not call its base class. Fails at the given epochs, once each."""

    def __init__(self, *failing: int) -> None:
        self.epochs: dict[int, list[int]] = {}
        self.objects: dict[int, list[str]] = {}
        self._failing = set(failing)

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        if epoch in self._failing:
            self._failing.discard(epoch)
            raise OSError("the target is away")
        self.epochs[epoch] = [] if frame is None else sorted(row.id for row in frame.collect())
        self.objects[epoch] = objects


class ByObjects(Kept):
    needs_frame = False


@pytest.mark.parametrize("kind", [Kept, ByObjects])
def test_nothing_but_commit_is_needed_and_a_commit_that_failed_is_made_by_the_next_generation(
    spark: SparkSession, files: Files, tmp_path: Path, kind: type[Kept]
) -> None:
    sink = kind(2)
    job = LocalJob(spark, lambda p: files.read(p).to("out", sink), tmp_path)
    engine = job.start()

    def read(rows: int) -> None:
        job.wait(lambda: sum(source.rows for source in job._running().status().sources) == rows, "rows")

    files.add(1, 2)
    read(2)
    assert job.checkpoint().state is CheckpointState.READY
    files.add(3)
    read(3)
    job.checkpoint()
    job.wait(lambda: engine.exit_code is not None, "the failed commit")
    assert engine.exit_code == EXIT_FAILED
    assert "operator 'out' failed: the target is away" in engine.status().message
    assert 2 not in sink.epochs, "published, and not committed"
    job._join()
    engine = job.start()
    assert engine.status().restored_epoch == 2
    assert [one.rows_committed for one in engine.status().sinks] == [1]
    stored = read_epoch(store_of(job.storage), PATHS, Epoch(2))
    assert isinstance(stored, Manifest)
    assert sink.objects[2] == [
        part.object for run in stored.operators["out"].tables["pending"].runs for part in run.parts
    ]
    if sink.needs_frame:
        assert sink.epochs == {1: [1, 2], 2: [3]}
    files.add(4)
    read(1)
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert {epoch: len(objects) for epoch, objects in sink.objects.items()} == {1: 1, 2: 1, 3: 1}


class Slips(SinkOperator):
    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        forget({"id": epoch})


def forget(row: dict[str, int]) -> None:
    row["user"] += 1


def the_function(rows: Stream) -> None:
    rows.for_each_epoch("out", lambda _rows, epoch: forget({"id": epoch}))


def the_sink(rows: Stream) -> None:
    rows.to("out", Slips())


def the_transformation(rows: Stream) -> None:
    def forgets(some: DataFrame) -> DataFrame:
        if not some.isEmpty():  # while the pipeline is described there are no rows
            forget({})
        return some

    rows.transform("out", forgets).for_each_epoch("end", lambda _rows, _epoch: None)


@pytest.mark.parametrize("whose", [the_function, the_sink, the_transformation])
def test_a_slip_in_code_of_the_users_on_the_driver_is_no_outage(
    spark: SparkSession, files: Files, tmp_path: Path, whose: Callable[[Stream], None]
) -> None:
    job = LocalJob(spark, lambda p: whose(files.read(p)), tmp_path)
    files.add(1)
    engine = job.start()
    job.wait(lambda: engine.exit_code is not None or engine.status().sources[0].rows == 1, "the row")
    if engine.exit_code is None:
        job.checkpoint()
    job.wait(lambda: engine.exit_code is not None, "the driver to end")
    assert engine.exit_code == EXIT_MISCONFIGURED
    said = r"operator 'out' failed: KeyError: 'user' \(.*test_sinks_of_your_own\.py:\d+, in forget\)"
    assert re.fullmatch(said, engine.status().message)


class Overtaken(Kept):
    """While it waits for its target, the next generation begins."""

    calls = 0

    def __init__(self, job: StorageConfig) -> None:
        super().__init__()
        self._storage = job

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        self.calls += 1
        record = GenerationRecord(generation=Generation(2), claim="the next", created=0, writer="elsewhere")
        assert claim_generation(store_of(self._storage), PATHS, record) is None
        raise UnavailableError("the table is being moved")


def test_a_commit_that_waits_is_not_made_once_a_newer_generation_has_begun(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    sink = Overtaken(StorageConfig(uri=(tmp_path / "store").as_uri()))
    job = LocalJob(spark, lambda p: files.read(p).to("out", sink), tmp_path)
    engine = job.start()
    job.checkpoint()
    job.wait(lambda: engine.exit_code is not None, "the driver to see that it is fenced")
    assert (engine.exit_code, sink.calls) == (EXIT_FENCED, 1)
    assert engine.status().message == "generation 2 has taken over from generation 1"


def refusal(sink: Any) -> str:
    graph = Graph()
    graph.add(Node("rows", "source", (), SOURCE))
    with pytest.raises(PipelineError, match="operator 'out': ") as caught:
        graph.add(Node("out", SINK, (Input("rows"),), sink))
    return str(caught.value)


class NoCommit(SinkOperator):
    """Forgot something."""


class PlainOperator(TransformOperator):
    def __init__(self) -> None:
        super().__init__(lambda rows: rows)

    def commit(self, epoch: int, frame: Any, objects: list[str], ctx: Any) -> None:
        """Never called."""


class OwnTable(Kept):
    def on_start(self, ctx: OperatorContext) -> None:
        """Would keep rows of its own."""


class OwnProcess(Kept):
    def process(self, batch: Batch, out: Collector) -> None:
        """Rows end here."""


class Skipping(Kept):
    def handle_checkpoint(self, barrier: Any, ctx: OperatorContext, out: Collector) -> bool:
        return False


class Passing(Kept):
    def passed(self, frame: DataFrame) -> DataFrame | None:
        return frame


class AsyncCommit(SinkOperator):
    async def commit(self, epoch: int, frame: Any, objects: list[str], ctx: Any) -> None:  # type: ignore[override]
        """Nobody awaits it."""


class GeneratorCommit(SinkOperator):
    def commit(self, epoch: int, frame: Any, objects: list[str], ctx: Any) -> Any:
        yield epoch


class FewArguments(SinkOperator):
    def commit(self, epoch: int, frame: Any) -> None:  # type: ignore[override]
        """Cannot be called."""


class SaysSo(Kept):
    can_take_back = True


class OnTheObject(Kept):
    def __init__(self) -> None:
        super().__init__()
        vars(self)["process"] = print


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (NoCommit(), "NoCommit has no method commit(self, epoch, frame, objects, ctx): implement it"),
        (PlainOperator(), "a PlainOperator is not a sink: derive the class from epochal.SinkOperator"),
        (Kept, "the class Kept is not a sink"),
        (None, "a NoneType is not a sink"),
        (OwnTable(), "OwnTable has a on_start of its own"),
        (OwnProcess(), "put what starts it into open(self, ctx), what changes rows into encode(self, frame)"),
        (Skipping(), "Skipping has a handle_checkpoint of its own"),
        (Passing(), "Passing has a passed of its own"),
        (OnTheObject(), "OnTheObject has a process of its own"),
        (AsyncCommit(), "AsyncCommit.commit is async or a generator, so calling it would do nothing"),
        (GeneratorCommit(), "GeneratorCommit.commit is async or a generator"),
        (FewArguments(), "FewArguments.commit must take 4 arguments: epoch, frame, objects, ctx"),
        (SaysSo(), "SaysSo sets can_take_back but has no method take_back(self, after, ctx)"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_what_does_not_fit_is_refused_while_the_pipeline_is_described(sink: Any, message: str) -> None:
    assert message in refusal(sink)


def test_a_sink_is_the_end_and_belongs_to_one_node() -> None:
    graph, sink = Graph(), Kept()
    graph.add(Node("rows", "source", (), SOURCE))
    graph.add(Node("out", SINK, (Input("rows"),), sink))
    with pytest.raises(PipelineError, match="'more' reads from 'out', which is a sink and has no output"):
        graph.add(Node("more", "transform", (Input("out"),), TransformOperator(lambda rows: rows)))
    with pytest.raises(PipelineError, match="operators 'out' and 'again' are the same object: make one for each"):
        graph.add(Node("again", SINK, (Input("rows"),), sink))


def test_a_part_that_cannot_report_does_not_silence_the_driver(tmp_path: Path) -> None:
    config = DriverConfig(
        namespace="test",
        job="job",
        generation=Generation(1),
        storage=StorageConfig(uri=tmp_path.as_uri()),
        pipeline=PipelineConfig(module="nothing"),
        work_dir=str(tmp_path),
    )
    engine, nothing = Engine(config), BoundSource(cast(Any, None), cast(Any, None), StructType())
    context = Commits(tmp_path / "store").context(name="rows")
    broken, well = (SourceTask(name, nothing, context, tmp_path, Background()) for name in ("broken", "well"))
    del broken._rate
    engine._tasks = {task.name: task for task in (broken, well)}
    server = ControlServer(engine, token="t").start()
    try:
        status = DriverClient(server.address, "t").status()
    finally:
        server.stop()
    scraped = exposition.generate_latest(engine.metrics.registry)
    assert [source.name for source in status.sources] == ["well"]
    assert status.message == (
        "no report of operator 'broken': AttributeError: 'SourceTask' object has no attribute '_rate'"
    )
    assert b'epochal_source_rows_total{source="well"}' in scraped
    engine.fail(RuntimeError("why it ended"))
    assert engine.status().message == "why it ended", "what matters more comes first"


def test_an_epoch_ends_although_its_report_fails() -> None:
    """Otherwise it would be in flight for ever, and every later barrier refused."""

    def fail(_: object) -> None:
        raise RuntimeError("no report")

    barrier = CheckpointBarrier(epoch=Epoch(1), min_epoch=Epoch(1), timestamp=0, then_stop=False)
    run = EpochRun(barrier, Generation(1), {}, lambda *_: None, fail)
    assert run.abort("given up")
    assert run.done.is_set()
