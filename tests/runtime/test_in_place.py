"""The next generation goes on in the process of one that lost its state: what is waited for, and what is fenced.
Executors that are killed are in ``tests/exactly_once/test_in_place.py``."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    EXIT_DRAINED,
    EXIT_FAILED,
    EXIT_MISCONFIGURED,
    EXIT_STOPPED,
    CheckpointRequest,
    CheckpointState,
    DriverConfig,
    DriverPhase,
    PipelineConfig,
    Refusal,
    RefusalReason,
    StorageConfig,
)
from epochal.protocol.documents import GenerationRecord
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import claim_generation, publish
from epochal.runtime import in_place
from epochal.runtime.checkpoint import checkpointer
from epochal.runtime.dataflow.graph import Graph
from epochal.runtime.errors import OperatorError
from epochal.runtime.in_place import DriverEngines
from epochal.runtime.state.homes import StateLostError
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.persistence import store_of
from tests.runtime.bad_data import Files, Gate, ids

LONGEST = 120.0


class Job:
    """One driver, in this process."""

    def __init__(self, spark: SparkSession, build: Callable[[Pipeline], None], directory: Path, **options: Any) -> None:
        self.spark, self.build = spark, build
        self.storage = StorageConfig(uri=(directory / "store").as_uri())
        config = DriverConfig(
            namespace="test",
            job="job",
            generation=Generation(1),
            storage=self.storage,
            pipeline=PipelineConfig(module="in-process"),
            work_dir=str(directory / "work"),
            in_place=True,
        )
        self.driver = DriverEngines(replace(config, **options))
        self.thread = threading.Thread(target=self.driver.run, args=(spark, self.describe), daemon=True)
        self.thread.start()

    def describe(self) -> Graph:
        pipeline = Pipeline(self.spark, self.storage)
        self.build(pipeline)
        return pipeline.graph

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LONGEST
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.driver.status()}"
            time.sleep(0.02)

    def runs(self, generation: int, rows: int) -> None:
        def there() -> bool:
            status = self.driver.status()
            running = status.generation == generation and status.phase is DriverPhase.RUNNING
            return running and sum(source.rows for source in status.sources) >= rows

        self.wait(there, f"{rows} rows in generation {generation}")

    def barrier(self, epoch: int, *, then_stop: bool = False) -> None:
        barrier = CheckpointBarrier(epoch=Epoch(epoch), min_epoch=Epoch(1), timestamp=1, then_stop=then_stop)
        generation = self.driver.status().generation
        answer = self.driver.start_checkpoint(CheckpointRequest(generation=generation, barrier=barrier))
        assert not isinstance(answer, Refusal), answer

    def checkpoint(self, epoch: int, *, then_stop: bool = False) -> None:
        self.barrier(epoch, then_stop=then_stop)

        def ready() -> bool:
            report = self.driver.checkpoint(Epoch(epoch))
            return report is not None and report.finished is not None

        self.wait(ready, f"epoch {epoch}")
        report = self.driver.checkpoint(Epoch(epoch))
        assert report is not None
        assert report.state is CheckpointState.READY, report.message

    def lose(self) -> None:
        """As when a batch finds that an executor is gone."""
        self.driver.engine._on_error(OperatorError("totals", StateLostError(["1"])))

    def join(self) -> int | None:
        self.thread.join(timeout=LONGEST)
        assert not self.thread.is_alive()
        return self.driver.engine.exit_code


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.driver.stop("the test is over")
    for job in started:
        # On its way to the next generation it frees all that this session holds, also what another test needs.
        job.join()


@pytest.fixture
def job(spark: SparkSession, files: Files, tmp_path: Path, jobs: list[Job]) -> Job:
    """With two rows, and epoch 1."""

    def build(p: Pipeline) -> None:
        rows = files.read(p)
        rows.aggregate("totals", keys=["id"], aggregates={"n": F.count("*")}).to_parquet("sums", str(tmp_path / "sums"))
        rows.to_parquet("out", str(tmp_path / "out"))

    files.add(1, 2)
    job = Job(spark, build, tmp_path)
    jobs.append(job)
    job.runs(1, rows=2)
    job.checkpoint(1)
    return job


def test_the_next_generation_goes_on(spark: SparkSession, job: Job, files: Files, tmp_path: Path) -> None:
    files.add(3)
    job.runs(1, rows=3)
    engine = job.driver.engine
    job.lose()
    status = job.driver.status()
    assert (status.generation, status.phase, status.restored_epoch) == (2, DriverPhase.STARTING, None)
    assert status.message == "an executor was lost: generation 2 goes on in the same driver"
    job.runs(2, rows=1)
    assert job.driver.status().restored_epoch == 1
    assert job.driver.engine is not engine
    refused = engine.start_checkpoint(
        CheckpointRequest(
            generation=Generation(1),
            barrier=CheckpointBarrier(epoch=Epoch(2), min_epoch=Epoch(1), timestamp=1, then_stop=False),
        )
    )
    assert isinstance(refused, Refusal)
    assert refused.reason is RefusalReason.NOT_RUNNING
    metrics = job.driver.engine.metrics.registry
    assert metrics.get_sample_value("epochal_recovery_in_place_seconds_count") == 1
    assert metrics.get_sample_value("epochal_generation") == 2
    assert metrics.get_sample_value("epochal_restored_epoch") == 1
    job.checkpoint(2)
    files.add(4)
    job.runs(2, rows=2)
    job.lose()
    job.runs(3, rows=1)
    job.checkpoint(3, then_stop=True)
    assert job.join() == EXIT_STOPPED
    assert ids(spark, tmp_path / "out") == [1, 2, 3, 4]
    assert list((tmp_path / "work").glob("**/sources/rows")) == [tmp_path / "work/generation-3/sources/rows"]


def test_a_loss_before_an_epoch_ends_the_driver(job: Job, files: Files) -> None:
    job.lose()
    files.add(3)
    job.runs(2, rows=1)
    job.lose()
    assert job.join() == EXIT_FAILED
    assert job.driver.status().phase is DriverPhase.FAILED
    assert "an executor was lost" in job.driver.status().message


def test_a_loss_while_the_job_stops_ends_the_driver(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    publishing, go_on = hold_publishing(monkeypatch)
    job.barrier(2, then_stop=True)
    assert publishing.wait(LONGEST)
    job.lose()
    go_on.set()
    assert job.join() == EXIT_FAILED


@pytest.mark.parametrize("options", [{"in_place": False}, {"spark_conf": {"spark.epochal.recoverInPlace": "false"}}])
def test_a_driver_that_is_not_to_go_on_ends(
    spark: SparkSession, files: Files, tmp_path: Path, jobs: list[Job], options: dict[str, Any]
) -> None:
    files.add(1)
    job = Job(spark, lambda p: files.read(p).to_parquet("out", str(tmp_path / "out")), tmp_path, **options)
    jobs.append(job)
    job.runs(1, rows=1)
    job.checkpoint(1)
    job.lose()
    assert job.join() == EXIT_FAILED
    assert job.driver.status().generation == 1


def test_a_setting_that_cannot_be_is_refused(
    spark: SparkSession, files: Files, tmp_path: Path, jobs: list[Job]
) -> None:
    wrong = {"spark.epochal.recoverInPlace": "maybe"}
    job = Job(spark, lambda p: files.read(p).to_console("out"), tmp_path, spark_conf=wrong)
    jobs.append(job)
    assert job.join() == EXIT_MISCONFIGURED
    assert job.driver.status().message == "spark.epochal.recoverInPlace is 'maybe': give true or false"


def hold_publishing(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Epochs that are being published wait; the events are that one does, and that it may go on."""
    publishing, go_on = threading.Event(), threading.Event()

    def held(*args: Any) -> Any:
        publishing.set()
        go_on.wait(LONGEST)
        return publish(*args)

    monkeypatch.setattr(checkpointer, "publish", held)
    return publishing, go_on


def test_whoever_still_publishes_ends_the_process(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "LONGEST_END", 1.0)
    publishing, go_on = hold_publishing(monkeypatch)
    job.barrier(2)
    assert publishing.wait(LONGEST)
    job.lose()
    assert job.join() == EXIT_FAILED
    status = job.driver.status()
    assert (status.generation, status.phase) == (1, DriverPhase.FAILED)
    go_on.set()


def test_what_is_published_late_is_fenced(
    job: Job, files: Files, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nobody waits for it."""
    monkeypatch.setattr(in_place, "await_end", lambda *_: None)
    publishing, go_on = hold_publishing(monkeypatch)
    files.add(3)
    job.runs(1, rows=3)
    job.barrier(2)
    assert publishing.wait(LONGEST)
    before = job.driver.engine
    made = before._checkpointer
    assert made is not None
    job.lose()
    job.runs(2, rows=1)
    go_on.set()
    job.wait(lambda: made.report(Epoch(2)).finished is not None, "the late epoch")  # type: ignore[union-attr]
    report = made.report(Epoch(2))
    assert report is not None
    assert report.state is CheckpointState.FAILED
    assert report.message == "generation 2 has taken over from generation 1"
    job.checkpoint(3, then_stop=True)
    assert job.join() == EXIT_STOPPED
    assert ids(spark, tmp_path / "out") == [1, 2, 3]


def test_whoever_else_claims_the_next_generation_fences_the_driver(job: Job) -> None:
    record = GenerationRecord(generation=Generation(2), claim="another", created=1, writer="test")
    assert claim_generation(store_of(job.storage), JobPaths("test", "job"), record) is None
    job.lose()
    assert job.join() == 3
    assert "generation 2 has a driver already" in job.driver.status().message


def test_a_driver_that_is_asked_to_end_does_not_go_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def slow(*_: Any) -> None:
        waiting.set()
        go_on.wait(LONGEST)

    monkeypatch.setattr(in_place, "await_end", slow)
    job.lose()
    assert waiting.wait(LONGEST)
    job.driver.drain("ended by SIGTERM", 1.0)
    go_on.set()
    assert job.join() == EXIT_FAILED
    assert job.driver.status().generation == 1


def test_a_generation_in_place_is_drained_as_any(job: Job, files: Files) -> None:
    job.lose()
    files.add(3)
    job.runs(2, rows=1)
    job.driver.drain("ended by SIGTERM", 0.1)
    assert job.join() == EXIT_DRAINED


def test_objects_that_have_seen_the_generation_before_end_the_process(
    spark: SparkSession, files: Files, tmp_path: Path, jobs: list[Job]
) -> None:
    gate = Gate()
    files.add(1)
    job = Job(spark, lambda p: files.read(p).apply("gate", gate).to_parquet("out", str(tmp_path / "out")), tmp_path)
    jobs.append(job)
    job.runs(1, rows=1)
    job.checkpoint(1)
    job.lose()
    assert job.join() == EXIT_FAILED
    assert "operators 'gate' are the same objects as before an executor was lost" in job.driver.status().message


def test_what_fails_in_the_next_generation_is_tried_by_a_new_process(
    spark: SparkSession, files: Files, tmp_path: Path, jobs: list[Job]
) -> None:
    described: list[int] = []

    def build(p: Pipeline) -> None:
        described.append(1)
        if len(described) > 1:
            raise ValueError("only once")
        files.read(p).to_parquet("out", str(tmp_path / "out"))

    files.add(1)
    job = Job(spark, build, tmp_path)
    jobs.append(job)
    job.runs(1, rows=1)
    job.checkpoint(1)
    job.lose()
    assert job.join() == EXIT_FAILED, "and not a mistake that only an edit fixes"
    assert job.driver.status().generation == 2


def test_only_the_loss_of_state_is_gone_on_after(job: Job) -> None:
    job.driver.engine._on_error(OperatorError("totals", RuntimeError("something else")))
    job.join()
    assert job.driver.status().generation == 1


def test_a_loss_is_seen_without_a_batch(job: Job) -> None:
    tables = [table for task in job.driver.engine._tasks.values() for table in task.operator.tables]
    [table] = [table for table in tables if isinstance(table, LatestTable)]
    assert table.runs
    table.homes = dataclasses.replace(table.homes, executors=("7", "driver"))
    job.wait(lambda: job.driver.status().generation == 2, "the next generation")
