"""A restore that failed is not a damaged epoch: only stored bytes that are missing or wrong make a job go back."""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.protocol import store as protocol_store
from epochal.protocol.control import (
    EXIT_FAILED,
    EXIT_MISCONFIGURED,
    EXIT_NOTHING_TO_RESTORE,
    EXIT_REFUSED,
    StorageConfig,
)
from epochal.protocol.documents import Manifest, encode
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import list_epochs, read_epoch
from epochal.runtime.engine import Engine
from epochal.runtime.state.persistence import store_of
from tests.runtime.bad_data import Files, ids
from tests.support.local_job import LocalJob
from tests.support.s3 import S3Bucket

PATHS = JobPaths("test", "job")
WORKER_MEMORY = "PYSPARK_EXECUTOR_MEMORY_MB"


class Keys:
    """A pipeline whose windows are grouped by what a test says."""

    def __init__(self, files: Files, output: Path) -> None:
        self.names = ["id"]
        self._files = files
        self._output = output

    def __call__(self, p: Pipeline) -> None:
        rows = self._files.read(p).transform("both", lambda frame: frame.withColumn("other", F.col("id")))
        rows.aggregate("counts", keys=["id"], aggregates={"n": F.count("*")}).to_parquet("out", str(self._output))
        windows = rows.window("panes", size="1 day", keys=self.names, aggregates={"n": F.count("*")})
        windows.to_parquet("windows", str(self._output.with_name("windows")))


@pytest.fixture
def keys(files: Files, tmp_path: Path) -> Keys:
    return Keys(files, tmp_path / "out")


def with_two_epochs(job: LocalJob, files: Files) -> None:
    """Each has a row of its own, in both kinds of tables."""
    engine = job.start()
    for number in (1, 2):
        files.add(number)
        job.wait(lambda number=number: engine.status().sources[0].rows == number, "a row")  # type: ignore[misc]
        job.checkpoint()
    job.crash()


def newest(job: LocalJob) -> Manifest:
    document = read_epoch(store_of(job.storage), PATHS, Epoch(2))
    assert isinstance(document, Manifest)
    return document


def objects_of_newest(job: LocalJob, table: str) -> list[str]:
    """What only epoch 2 needs."""
    older = read_epoch(store_of(job.storage), PATHS, Epoch(1))
    assert isinstance(older, Manifest)
    return sorted(name for name in newest(job).objects() - older.objects() if table in name)


def damaged(job: LocalJob) -> set[Epoch]:
    return list_epochs(store_of(job.storage), PATHS).damaged


def failed(engine: Engine, job: LocalJob, code: int) -> str:
    job.wait(lambda: engine.exit_code is not None, "the driver to end")
    assert engine.exit_code == code, engine.status().message
    return engine.status().message


# --- damage -----------------------------------------------------------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink()


def with_a_flipped_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.unlink()  # a sink's file may be a second name of these bytes
    path.write_bytes(bytes(data))


def cut_off(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("harm", "table", "said"),
    [
        (missing, "/panes/", "is missing"),
        (with_a_flipped_bit, "/counts/", "CRC-32 differs"),
        (cut_off, "/panes/", "bytes, not the"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_damage_is_noted_and_the_next_generation_takes_an_older_epoch(
    spark: SparkSession,
    files: Files,
    keys: Keys,
    tmp_path: Path,
    harm: Callable[[Path], None],
    table: str,
    said: str,
) -> None:
    job = LocalJob(spark, keys, tmp_path)
    with_two_epochs(job, files)
    name = objects_of_newest(job, table)[0]
    harm(tmp_path / "store" / name)
    message = failed(job.start(), job, EXIT_FAILED)
    assert message.startswith(f"epoch 2 cannot be restored: {name} "), message
    assert said in message
    assert damaged(job) == {2}
    message = failed(job.start(back_to=Epoch(2)), job, EXIT_NOTHING_TO_RESTORE)
    assert said in message, "asked for by name it is refused, with the reason"
    engine = job.start()
    assert engine.exit_code is None, engine.status().message
    assert engine.status().restored_epoch == 1
    assert said in engine.status().skipped_epochs["2"]
    job.crash()


def with_another_value(path: Path) -> None:
    """One bit, and still Parquet with as many rows."""
    data = path.read_bytes()
    rows = pq.read_table(io.BytesIO(data))
    for place in range(len(data)):
        changed = bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]])
        try:
            found = pq.read_table(io.BytesIO(changed))
        except Exception:  # PyArrow's errors for this are many
            continue
        if found.schema == rows.schema and len(found) == len(rows) and found != rows:
            path.unlink()
            path.write_bytes(changed)
            return
    raise AssertionError("no bit of it is in a value")


@pytest.mark.parametrize(("harm", "said"), [(missing, "is missing"), (with_another_value, "CRC-32 differs")])
def test_pending_rows_that_are_gone_or_changed_are_damage_too(
    spark: SparkSession, files: Files, keys: Keys, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    """Also for a sink that takes its rows from the objects: it never shows what was not written."""
    job = LocalJob(spark, keys, tmp_path)
    with_two_epochs(job, files)
    store_of(job.storage).delete([PATHS.committed(Epoch(2))])
    for path in (tmp_path / "out").glob("epoch-0000000002-*"):
        path.unlink()
    harm(tmp_path / "store" / objects_of_newest(job, "/out/pending/")[0])
    message = failed(job.start(), job, EXIT_FAILED)
    assert ("/out/pending/" in message, said in message) == (True, True), message
    assert damaged(job) == {2}
    assert not list((tmp_path / "out").glob("epoch-0000000002-*"))


# --- everything else --------------------------------------------------------------------------------------------------


@contextmanager
def cancelling(spark: SparkSession) -> Iterator[None]:
    """Somebody cancels whatever job runs."""
    over = threading.Event()

    def cancel() -> None:
        while not over.wait(0.01):
            spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


@contextmanager
def little_memory(spark: SparkSession) -> Iterator[None]:
    """Python workers are given less memory than they need: those that are started with this."""
    spark.sparkContext.environment[WORKER_MEMORY] = "200"
    yield
    del spark.sparkContext.environment[WORKER_MEMORY]


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """The disk gives an error that is not "there is none"."""
    aside = path.with_suffix(".aside")
    path.rename(aside)
    path.symlink_to(path.name)  # which leads to itself
    yield
    path.unlink()
    aside.rename(path)


def test_what_is_no_damage_is_tried_again_with_the_same_epoch(
    spark: SparkSession, files: Files, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = protocol_store.RetryPolicy(tries=2, first_pause=0.01)
    monkeypatch.setattr(protocol_store, "RetryPolicy", lambda: impatient)
    job = LocalJob(spark, keys, tmp_path)
    with_two_epochs(job, files)
    with cancelling(spark):
        assert "cancelled" in failed(job.start(), job, EXIT_FAILED)
    with little_memory(spark):
        failed(job.start(), job, EXIT_FAILED)
    with unreadable(tmp_path / "store" / objects_of_newest(job, "/panes/")[0]):
        failed(job.start(), job, EXIT_FAILED)
    keys.names = ["other"]
    message = failed(job.start(), job, EXIT_MISCONFIGURED)
    assert "'panes'" in message, "a changed key is told"
    keys.names = ["id"]
    assert not damaged(job)
    engine = job.start()
    assert engine.exit_code is None, engine.status().message
    assert engine.status().restored_epoch == 2
    assert not engine.status().skipped_epochs
    job.crash()


def test_keys_that_the_store_does_not_take_any_more_are_no_damage(
    spark: SparkSession, files: Files, keys: Keys, tmp_path: Path, s3_bucket: S3Bucket, s3_keys: None
) -> None:
    server = s3_bucket.server
    job = LocalJob(spark, keys, tmp_path)
    job.storage = StorageConfig(uri=f"s3://{s3_bucket.name}/jobs", endpoint=server.endpoint, region=server.region)
    with_two_epochs(job, files)
    secret = spark.sparkContext.environment["AWS_SECRET_ACCESS_KEY"]
    spark.sparkContext.environment["AWS_SECRET_ACCESS_KEY"] = "expired"
    assert "does not accept the credentials" in failed(job.start(), job, EXIT_REFUSED)
    spark.sparkContext.environment["AWS_SECRET_ACCESS_KEY"] = secret
    assert not damaged(job)
    engine = job.start()
    assert engine.exit_code is None, engine.status().message
    assert engine.status().restored_epoch == 2
    job.crash()
    assert ids(spark, tmp_path / "out") == [1, 2]


def test_an_epoch_of_the_release_before_is_restored(
    spark: SparkSession, files: Files, keys: Keys, tmp_path: Path
) -> None:
    """Its manifest has no checksums."""
    job = LocalJob(spark, keys, tmp_path)
    with_two_epochs(job, files)
    document = newest(job)
    operators = {
        name: replace(
            state,
            tables={
                table: replace(
                    content,
                    runs=tuple(
                        replace(run, parts=tuple(replace(part, crc32=None) for part in run.parts))
                        for run in content.runs
                    ),
                )
                for table, content in state.tables.items()
            },
        )
        for name, state in document.operators.items()
    }
    (tmp_path / "store" / PATHS.manifest(Epoch(2))).write_bytes(encode(replace(document, operators=operators)))
    engine = job.start()
    assert engine.exit_code is None, engine.status().message
    assert engine.status().restored_epoch == 2
    job.crash()
