"""The contract of a checkpoint in the driver: barriers, alignment, handle_checkpoint, abort, and what is restored."""

import time
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.protocol.barrier import CheckpointBarrier
from epochal.protocol.control import (
    EXIT_FAILED,
    EXIT_MISCONFIGURED,
    EXIT_STOPPED,
    CheckpointReport,
    CheckpointRequest,
    CheckpointState,
    DriverPhase,
    OperatorEvent,
    Refusal,
    RefusalReason,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import read_epoch, uncommitted_epoch
from epochal.protocol.savepoints import Pinned, pin
from epochal.runtime.state.persistence import store_of
from tests.runtime.bad_data import Counting, Files, Gate, ids, through
from tests.runtime.test_definitions import rewrite_states
from tests.support.local_job import LocalJob
from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Server

PATHS = JobPaths("test", "job")


def request(epoch: int, *, generation: int = 1, then_stop: bool = False) -> CheckpointRequest:
    barrier = CheckpointBarrier(epoch=Epoch(epoch), min_epoch=Epoch(1), timestamp=0, then_stop=then_stop)
    return CheckpointRequest(generation=Generation(generation), barrier=barrier)


def rows_read(job: LocalJob) -> int:
    assert job.engine is not None
    return sum(source.rows for source in job.engine.status().sources)


def test_barriers_are_taken_once_and_only_if_they_are_for_this_driver(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    gate = Gate()
    job = LocalJob(
        spark, lambda p: files.read(p).apply("gate", gate).to_parquet("out", str(tmp_path / "out")), tmp_path
    )
    engine = job.start()

    def refused(asked: CheckpointRequest) -> RefusalReason:
        answer = engine.start_checkpoint(asked)
        assert isinstance(answer, Refusal)
        return answer.reason

    assert refused(request(1, generation=7)) is RefusalReason.STALE_GENERATION
    gate.open.clear()
    files.add(1)
    job.wait(gate.waiting.is_set, "a batch in flight")
    first = engine.start_checkpoint(request(3))
    assert isinstance(first, CheckpointReport)
    assert first.state is CheckpointState.IN_PROGRESS, "the barrier waits for the batch"
    again = engine.start_checkpoint(request(3))
    assert isinstance(again, CheckpointReport)
    assert again.started == first.started, "the same barrier twice is one checkpoint"
    assert refused(request(4)) is RefusalReason.CHECKPOINT_IN_FLIGHT
    assert refused(request(2)) is RefusalReason.STALE_EPOCH
    gate.open.set()
    job.issued = Epoch(3)
    assert job.wait_for_epoch(Epoch(3)).state is CheckpointState.READY
    job.crash()
    assert ids(spark, tmp_path / "out") == [1]


def test_an_input_that_has_delivered_waits_for_the_others(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    slow, gate = Files(tmp_path / "slow"), Gate()

    def build(p: Pipeline) -> None:
        left = files.read(p, "fast")
        right = slow.read(p, "slow").apply("gate", gate)
        left.union("both", right).to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    job.start()
    gate.open.clear()
    slow.add(1)
    job.wait(gate.waiting.is_set, "the slow source to be in the middle of a batch")
    job.checkpoint(wait=False)

    def aligning() -> bool:
        assert job.engine is not None
        report = job.engine.checkpoint(Epoch(1))
        assert report is not None
        return any(o.name == "both" and OperatorEvent.STARTED_ALIGNMENT in o.events for o in report.operators)

    job.wait(aligning, "the fast source's barrier")
    files.add(2)  # comes after the barrier on the fast input: it must not get into epoch 1
    time.sleep(2)
    assert rows_read(job) == 0, "the batch behind the barrier is blocked"
    gate.open.set()
    report = job.wait_for_epoch(Epoch(1))
    assert report.state is CheckpointState.READY
    events = {operator.name: operator.events for operator in report.operators}["both"]
    order = [
        OperatorEvent.STARTED_ALIGNMENT,
        OperatorEvent.STARTED_CHECKPOINTING,
        OperatorEvent.FINISHED_OPERATOR_SETUP,
        OperatorEvent.FINISHED_SYNC,
        OperatorEvent.COMPLETED,
    ]
    assert [events[event] for event in order] == sorted(events[event] for event in order)
    assert len(ids(spark, tmp_path / "out")) == 1, "epoch 1 holds the slow row only"
    job.wait(lambda: rows_read(job) == 2, "the blocked batch to go on")
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert len(ids(spark, tmp_path / "out")) == 2


def test_a_last_checkpoint_that_failed_was_not_the_last(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    gate = Gate()
    job = LocalJob(
        spark, lambda p: files.read(p).apply("gate", gate).to_parquet("out", str(tmp_path / "out")), tmp_path
    )
    engine = job.start()
    gate.open.clear()
    files.add(1)
    job.wait(gate.waiting.is_set, "a batch in flight")
    job.checkpoint(then_stop=True, wait=False)
    assert engine.status().phase is DriverPhase.STOPPING
    engine.abort(Epoch(1))
    assert engine.status().phase is DriverPhase.RUNNING, "it can be asked to stop again"
    gate.open.set()
    job.wait(lambda: rows_read(job) == 1, "the row")
    assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert len(ids(spark, tmp_path / "out")) == 1


def test_a_generation_that_only_commits_reads_nothing_and_needs_no_other_state(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    seen: list[tuple[int, list[int]]] = []
    counting, failing = Counting(), [True]

    def write(rows: DataFrame, epoch: int) -> None:
        if failing[0]:
            raise OSError("the target is away")
        seen.append((epoch, [row["id"] for row in rows.collect()]))

    job = LocalJob(spark, lambda p: files.read(p).apply("counting", counting).for_each_epoch("out", write), tmp_path)
    engine = job.start()
    files.add(1)
    job.wait(lambda: rows_read(job) == 1, "the row")
    job.checkpoint(then_stop=True)
    assert (engine.exit_code, seen) == (EXIT_FAILED, [])
    assert "operator 'out' failed: the target is away" in engine.status().message
    files.add(2)
    # What is not needed for a commit does not stand in its way.
    for lost in (tmp_path / "store").rglob("counting/seen/*.parquet"):
        lost.unlink()
    again = job.start(commit_only=True)
    assert again.exit_code == EXIT_FAILED, "it failed again, and says so"
    failing[0] = False
    committer = job.start(commit_only=True)
    assert (committer.exit_code, committer.status().phase) == (EXIT_STOPPED, DriverPhase.STOPPED)
    assert committer.status().message == "stopped: the output of epoch 1 is committed"
    assert committer.last_report_read.is_set(), "it would wait for somebody who never asks"
    assert seen == [(1, [1])]
    assert uncommitted_epoch(store_of(job.storage), PATHS) is None
    # Nothing is left to do, and it is done once more: also right.
    assert job.start(commit_only=True).exit_code == EXIT_STOPPED
    assert seen == [(1, [1])]
    # A sink that is gone cannot commit: that is told, and nothing is dropped.
    (tmp_path / "store" / PATHS.committed(Epoch(1))).unlink()
    job.build = lambda p: files.read(p).apply("counting", counting).for_each_epoch("renamed", write)
    refused = job.start(commit_only=True)
    assert refused.exit_code == EXIT_MISCONFIGURED
    assert "'out'" in refused.status().message


def test_rows_of_an_aborted_epoch_come_with_the_next(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    gate = Gate()
    job = LocalJob(
        spark, lambda p: files.read(p).apply("gate", gate).to_parquet("out", str(tmp_path / "out")), tmp_path
    )
    engine = job.start()
    gate.open.clear()
    files.add(1)
    job.wait(gate.waiting.is_set, "a batch in flight")
    job.checkpoint(wait=False)
    aborted = engine.abort(Epoch(1))
    assert aborted is not None
    assert aborted.state is CheckpointState.FAILED
    gate.open.set()
    job.wait(lambda: rows_read(job) == 1, "the row")
    unseen = engine.abort(Epoch(2))
    assert unseen is not None
    assert unseen.state is CheckpointState.FAILED
    job.issued = Epoch(2)
    assert isinstance(late := engine.start_checkpoint(request(2)), CheckpointReport)
    assert late.state is CheckpointState.FAILED, "it was given up before its barrier came"
    assert ids(spark, tmp_path / "out") == []
    assert job.checkpoint().state is CheckpointState.READY
    assert ids(spark, tmp_path / "out") == [1]
    job.crash()


def test_an_operator_that_skips_carries_its_tables_forward(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    takes_part = [True]
    counting = Counting(lambda: takes_part[0])
    build = lambda p: files.read(p).apply("counting", counting).to_parquet("out", str(tmp_path / "out"))  # noqa: E731
    job = LocalJob(spark, build, tmp_path)
    job.start()
    files.add(1, 2)
    job.wait(lambda: rows_read(job) == 2, "the rows")
    job.checkpoint()
    takes_part[0] = False
    files.add(3)
    job.wait(lambda: rows_read(job) == 3, "one more row")
    job.checkpoint()
    job.crash()

    store = store_of(job.storage)
    first, second = (read_epoch(store, PATHS, Epoch(epoch)) for epoch in (1, 2))
    state, carried = (manifest.operators["counting"] for manifest in (first, second))  # type: ignore[union-attr]
    assert carried.tables == state.tables
    assert carried.carried_from == 1
    # Restored, it has what it had at its last checkpoint; that is what skipping means.
    takes_part[0] = True
    job.start()
    assert (counting.total, counting.restored_ids) == (2, 2)
    job.crash()


def test_one_can_go_back_to_an_epoch_and_to_a_savepoint(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    counting = Counting()
    build = lambda p: files.read(p).apply("counting", counting).to_parquet("out", str(tmp_path / "out"))  # noqa: E731
    job = LocalJob(spark, build, tmp_path)
    job.start()
    for number in (1, 2, 3):
        files.add(number)
        job.wait(lambda number=number: rows_read(job) == number, "a row")  # type: ignore[misc]
        job.checkpoint()
    assert isinstance(pin(store_of(job.storage), PATHS, "before", Epoch(1)), Pinned)
    job.crash()
    job.start(back_to=Epoch(2))
    assert counting.restored_ids == 2
    job.crash()
    job.start(back_to=Epoch(1), savepoint="before")
    assert counting.restored_ids == 1
    job.wait(lambda: rows_read(job) == 2, "the two rows after it again")
    job.crash()


def test_a_renamed_operator_is_refused_rather_than_emptied(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    def build(name: str) -> LocalJob:
        job.build = lambda p: files.read(p).apply(name, Counting()).to_parquet("out", str(tmp_path / "out"))
        return job

    job = LocalJob(spark, lambda _: None, tmp_path)
    build("counting").start()
    files.add(1)
    job.wait(lambda: rows_read(job) == 1, "the row")
    job.checkpoint()
    job.crash()
    engine = build("renamed").start()
    job.wait(lambda: engine.exit_code is not None, "the refusal")
    assert engine.exit_code == EXIT_MISCONFIGURED
    assert "'counting'" in engine.status().message
    # Nor is an older epoch, or none, taken if the newest one is of a newer release.
    newest = tmp_path / "store" / PATHS.manifest(Epoch(1))
    ours = newest.read_bytes()
    newest.write_bytes(ours.replace(b'"version":1', b'"version":3'))
    engine = build("counting").start(allow_empty=True)
    assert engine.exit_code == EXIT_MISCONFIGURED
    assert "which knows version 2 (version 3): use Epochal" in engine.status().message
    newest.write_bytes(ours)
    assert build("counting").start().exit_code is None
    job.crash()


def test_a_transformation_that_raises_ends_the_driver_with_its_name(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    def build(p: Pipeline) -> None:
        failing = files.read(p).transform(
            "failing", lambda frame: frame if frame.isEmpty() else frame.select("nothing")
        )
        failing.to_parquet("out", str(tmp_path / "out"))

    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    files.add(1)
    job.wait(lambda: engine.exit_code is not None, "the failure")
    assert engine.exit_code == EXIT_MISCONFIGURED
    assert "operator 'failing' failed" in engine.status().message


def test_nothing_is_asked_of_the_store_between_two_epochs(
    spark: SparkSession, files: Files, tmp_path: Path, s3_server: S3Server, s3_job: LocalJob
) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        job = through(proxy, s3_job)
        job.start()
        files.add(0)
        job.wait(lambda: rows_read(job) == 1, "the first row")
        assert job.checkpoint().state is CheckpointState.READY
        assert proxy.requests, "the epoch goes to the store"
        proxy.reset()
        for number in range(1, 9):
            files.add(number)
            job.wait(lambda number=number: rows_read(job) == number + 1, "a row")  # type: ignore[misc]
        assert not proxy.requests, "eight micro-batches, and nobody asked for anything"
        assert job.checkpoint(then_stop=True).state is CheckpointState.READY
    assert len(ids(spark, tmp_path / "out")) == 9


def test_state_that_a_changed_operator_does_not_use_is_not_dropped(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    def build(aggregate: Column) -> None:
        job.build = lambda p: (
            files.read(p).aggregate("counts", keys=["id"], aggregates={"n": aggregate}).to_parquet("out", out)
        )

    out = str(tmp_path / "out")
    job = LocalJob(spark, lambda _: None, tmp_path)
    build(F.count("*"))
    job.start()
    files.add(1)
    job.wait(lambda: rows_read(job) == 1, "a row")
    job.checkpoint()
    job.crash()
    # As an older release leaves it: whoever knows what state means is refused before that.
    rewrite_states(job, definition=None)
    build(F.size(F.collect_list("id")))
    engine = job.start()
    job.wait(lambda: engine.exit_code is not None, "the refusal")
    assert engine.exit_code == EXIT_MISCONFIGURED
    assert "has state of operator 'counts' in table 'totals', which it does not use any more" in engine.status().message
    assert job.start(allow_empty=True).exit_code is None
    job.crash()


def test_rows_of_one_partition_find_their_state_in_several(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    def build(p: Pipeline) -> None:
        together = files.read(p, bounded=True).transform("together", lambda rows: rows.coalesce(1))
        tens = together.transform("tens", lambda rows: rows.select((F.col("id") % 10).alias("ten")))
        counts = tens.aggregate("counts", keys=["ten"], aggregates={"n": F.count("*")})
        counts.to_parquet("out", str(tmp_path / "out"))

    for _ in range(3):
        files.add(*range(20))
    LocalJob(spark, build, tmp_path).run_to_the_end()
    found = spark.read.parquet(str(tmp_path / "out")).groupBy("ten").agg(F.max("n").alias("n")).collect()
    assert sorted((row["ten"], row["n"]) for row in found) == [(ten, 6) for ten in range(10)]
