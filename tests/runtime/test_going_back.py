"""Going back past committed output, on Spark: what sinks have in the end is there once."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline, Stream
from epochal.protocol.control import EXIT_FAILED, EXIT_WOULD_REPEAT
from epochal.protocol.documents import Manifest
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import read_epoch
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.state.persistence import store_of
from tests.runtime.bad_data import Files, ids
from tests.support.local_job import LocalJob

PATHS = JobPaths("test", "job")


class Kept(SinkOperator):
    """A sink of somebody's own, which can take back; and fails at it as often as it is told to."""

    can_take_back = True

    def __init__(self) -> None:
        self.epochs: dict[int, list[int]] = {}
        self.failures = 0
        self.calls: list[int] = []

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        self.epochs[epoch] = [] if frame is None else [row["id"] for row in frame.collect()]

    def take_back(self, after: int, ctx: OperatorContext) -> int:
        self.calls.append(after)
        newer = [epoch for epoch in self.epochs if epoch > after]
        for epoch in newer[:1] if self.failures else newer:
            del self.epochs[epoch]
        if self.failures:
            self.failures -= 1
            raise ConnectionError("cut off in the middle")
        return len(newer)

    @property
    def ids(self) -> list[int]:
        return sorted(number for numbers in self.epochs.values() for number in numbers)


def counting(files: Files, output: Path, other: Callable[[Stream], None]) -> Callable[[Pipeline], None]:
    """Each id once, to files and to another sink."""

    def build(p: Pipeline) -> None:
        counts = files.read(p).aggregate("counts", keys=["id"], aggregates={"n": F.count("*")})
        counts.to_parquet("out", str(output))
        other(counts)

    return build


def with_three_epochs(job: LocalJob, files: Files) -> None:
    engine = job.start()
    for number in (1, 2, 3):
        files.add(number)
        job.wait(lambda number=number: engine.status().sources[0].rows == number, "a row")  # type: ignore[misc]
        job.checkpoint()
    job.crash()


def lose_state_of_newest(job: LocalJob) -> None:
    store = store_of(job.storage)
    newest, older = (read_epoch(store, PATHS, Epoch(epoch)) for epoch in (3, 2))
    assert isinstance(newest, Manifest)
    assert isinstance(older, Manifest)
    store.delete([name for name in newest.objects() - older.objects() if "/counts/" in name])


def go_on(job: LocalJob, rows: int) -> None:
    """Until so many rows were read again and are committed."""
    engine = job.engine
    assert engine is not None
    assert engine.exit_code is None, engine.status().message
    job.wait(lambda: engine.status().sources[0].rows == rows, "the rows since then")
    job.checkpoint()
    job.crash()


def ended(job: LocalJob, code: int) -> str:
    engine = job.engine
    assert engine is not None
    job.wait(lambda: engine.exit_code is not None, "the driver to end")
    assert engine.exit_code == code, engine.status().message
    return engine.status().message


def test_output_of_a_damaged_epoch_is_taken_back_and_comes_once(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    out, kept = tmp_path / "out", Kept()
    job = LocalJob(spark, counting(files, out, lambda counts: counts.to("own", kept)), tmp_path)
    with_three_epochs(job, files)
    assert ids(spark, out) == kept.ids == [1, 2, 3]
    lose_state_of_newest(job)
    job.start()
    assert "epoch 3 cannot be restored" in ended(job, EXIT_FAILED)
    assert kept.ids == [1, 2, 3], "nothing is taken back before the next generation has begun"
    kept.failures = 1
    job.start()
    assert "cut off in the middle" in ended(job, EXIT_FAILED)
    engine = job.start()
    assert engine.status().restored_epoch == 2, engine.status().message
    assert engine.status().message == (
        "going back to epoch 2 leaves epoch 3 behind; taken back: what sink 'out', sink 'own' wrote in epoch 3"
    )
    assert ids(spark, out) == kept.ids == [1, 2]
    go_on(job, 1)
    assert ids(spark, out) == kept.ids == [1, 2, 3]
    kept.calls.clear()
    job.start()
    assert kept.calls == [], "the new line's output stays"
    job.crash()
    assert ids(spark, out) == kept.ids == [1, 2, 3]


def test_a_function_has_no_way_back_so_the_job_waits(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    out, given = tmp_path / "out", list[int]()

    def take(rows: DataFrame, epoch: int) -> None:
        given.extend(row["id"] for row in rows.collect())

    job = LocalJob(spark, counting(files, out, lambda counts: counts.for_each_epoch("function", take)), tmp_path)
    with_three_epochs(job, files)
    job.start(back_to=Epoch(1))
    message = ended(job, EXIT_WOULD_REPEAT)
    assert message.startswith("going back to epoch 1 would leave epochs 2 to 3 behind, whose output is committed")
    assert "2 rows of sink 'function': " in message
    assert "sink 'out' would take back" in message
    assert ids(spark, out) == [1, 2, 3], "nothing is done before somebody has chosen"
    assert not store_of(job.storage).exists(PATHS.generation(Generation(job.generation)))
    job.start(back_to=Epoch(1), repeat=True)
    go_on(job, 2)
    assert ids(spark, out) == [1, 2, 3]
    assert sorted(given) == [1, 2, 2, 3, 3], "as it was chosen"
