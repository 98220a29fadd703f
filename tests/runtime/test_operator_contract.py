"""What holds for every operator: descriptions never change, and what is bound is complete."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from epochal import MAIN, Batch, BatchStats, BindContext, BoundOperator, Collector, KeyedTimeTable, Operator, Pipeline
from epochal import operators as built_in
from epochal.operators.window import WindowOperator
from epochal.protocol.control import StorageConfig
from epochal.runtime import dataflow
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.errors import PipelineError
from epochal.runtime.state.tables import Run
from tests.runtime.streaming import FedJob, at

ROOT = Path(built_in.__file__).parent.parent
SCHEMA = "id long, at timestamp"


def described() -> list[type[Operator]]:
    """Every description of ours but those of sinks."""
    modules = [
        importlib.import_module(one.name)
        for package in (built_in, dataflow)
        for one in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    ]
    kinds = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    found = [kind for kind in kinds if issubclass(kind, Operator) and not inspect.isabstract(kind)]
    return sorted((kind for kind in found if not issubclass(kind, SinkOperator)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", described(), ids=lambda kind: kind.__name__)
def test_a_description_never_changes(kind: type[Operator]) -> None:
    assert cast(Any, kind).__dataclass_params__.frozen


def test_no_description_is_left_out() -> None:
    assert len(described()) >= 14


@pytest.mark.parametrize("name", ["handle_checkpoint", "process", "on_watermark"])
def test_a_method_that_nobody_would_call_is_refused(name: str) -> None:
    with pytest.raises(PipelineError, match=f"Mine.{name} would never be called: define {name} on the BoundOperator"):
        type("Mine", (Operator,), {name: lambda *_: None})


def test_a_context_is_not_for_others_to_fill_in() -> None:
    for kind in (OperatorContext, BindContext, Batch, BatchStats):
        assert cast(Any, kind).__dataclass_params__.frozen


@pytest.mark.parametrize("folder", ["operators", "runtime"])
def test_nothing_waits_for_a_field_to_be_set(folder: str) -> None:
    """What is bound is complete: there is no call that has to come before another."""
    files = (ROOT / folder).rglob("*.py")
    assert [path.name for path in files if re.search(r"assert self\._\w+ is not None", path.read_text())] == []


class Bound(BoundOperator):
    """Keeps ids, and promises to count."""

    counts_input = True

    def __init__(self, rows: StructType, tells: bool, kept: list[Collector]) -> None:
        self._seen = KeyedTimeTable("seen", rows)
        self._tells = tells
        self._kept = kept
        super().__init__({MAIN: rows}, [self._seen])

    def process(self, batch: Batch, out: Collector) -> BatchStats | None:
        self._kept.append(out)
        assert batch.counting
        added = self._seen.append(batch.frame)
        out.emit(added.frame)
        return BatchStats(rows=added.rows * 10) if self._tells else None


@dataclasses.dataclass(frozen=True)
class Counts(Operator):
    tells: bool
    collectors: list[Collector] = dataclasses.field(default_factory=list)

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return Bound(inputs[0], self.tells, self.collectors)


@dataclasses.dataclass(frozen=True)
class Gives(Operator):
    """Is bound to whatever a test says."""

    bound: Callable[[StructType], Any]

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        return cast(BoundOperator, self.bound(inputs[0]))


def refusal(spark: SparkSession, tmp_path: Path, operator: Operator) -> str:
    pipeline = Pipeline(spark, StorageConfig(uri=tmp_path.as_uri()))
    stream = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    pipeline.source("rows", stream).apply("own", operator).to_parquet("out", str(tmp_path / "out"))
    with pytest.raises(PipelineError) as caught:
        pipeline.graph.bind(spark)
    return str(caught.value)


@pytest.mark.spark
def test_what_is_bound_wrongly_is_told_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    nothing = refusal(spark, tmp_path, Gives(lambda _: None))
    assert nothing == "operator 'own': bind must return a BoundOperator, not NoneType"
    twice = Gives(lambda rows: BoundOperator({MAIN: rows}, [KeyedTimeTable("seen"), KeyedTimeTable("seen")]))
    assert refusal(spark, tmp_path, twice) == "operator 'own': it has two tables named 'seen': state is kept by name"


@pytest.mark.spark
def test_bound_twice_it_has_tables_of_its_own(spark: SparkSession) -> None:
    window = WindowOperator(event_time="at", size=1, slide=None, keys=["id"], aggregates={"n": F.count("*")})
    rows, ctx = spark.createDataFrame([], SCHEMA).schema, BindContext(name="own", spark=spark)
    one, other = window.bind([rows], ctx), window.bind([rows], ctx)
    assert one.outputs == other.outputs
    assert [table.name for table in one.tables] == [table.name for table in other.tables] == ["panes"]
    assert one.tables[0] is not other.tables[0]


@pytest.mark.spark
@pytest.mark.parametrize(("tells", "rows"), [(True, 20), (False, 2)])
def test_a_source_is_told_or_counts_by_itself(spark: SparkSession, tmp_path: Path, tells: bool, rows: int) -> None:
    counts = Counts(tells)

    def build(p: Pipeline, job: FedJob) -> None:
        job.collect("out", job.source(p, "rows", SCHEMA, event_time="at").apply("own", counts))

    job = FedJob(spark, build, tmp_path)
    job.start()
    job.feed("rows", [(1, at(0)), (2, at(1))])
    assert job._source_task("rows").report().rows == rows
    with pytest.raises(RuntimeError, match="operator 'own' emits outside of process"):
        counts.collectors[0].emit(cast(Any, None))
    job.crash()


class Alone(Collector):
    """A collector that is a test's: no job, no task and no graph are needed to call an operator."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def emit(self, frame: Any, port: str = MAIN, *, of: Run | None = None) -> None:
        self.rows += frame.collect()

    def is_read(self, port: str) -> bool:
        return port == MAIN

    def for_this_batch(self, frame: Any, metrics: Any = None) -> Run:
        return Run.materialise(frame).hold()

    def release_later(self, run: Run) -> None:
        """Until the test ends."""

    def later(self, job: Callable[[], None]) -> None:
        job()


@pytest.mark.spark
def test_what_is_bound_can_be_called_without_a_job(spark: SparkSession) -> None:
    columns: Mapping[str, Any] = {"n": F.count("*")}
    window = WindowOperator(event_time="at", size=10**6, slide=None, keys=[], aggregates=dict(columns))
    frame = spark.createDataFrame([(1, at(0)), (2, at(0.5))], SCHEMA)
    bound, out = window.bind([frame.schema], BindContext(name="own", spark=spark)), Alone()
    assert bound.process(Batch(frame=frame), out) == BatchStats()
    counted = bound.process(Batch(frame=frame, counting=True), out)
    assert counted is not None
    assert counted.rows == 2
    assert out.rows == []
    bound.on_watermark(2**62, None, out)
    assert [row.n for row in out.rows] == [4]
    assert bound.outputs[MAIN]["n"].dataType == LongType()
