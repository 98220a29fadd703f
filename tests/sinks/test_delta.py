"""Delta Lake: an epoch is one Delta transaction; a commit made again, or by a driver that is too late, adds nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from epochal.runtime.errors import PipelineError
from epochal.sinks import delta
from epochal.sinks.delta import DeltaSink, DeltaTarget
from epochal.sinks.recorded import SinkFencedError
from tests.sinks.commits import SCHEMA, Commits, Cut, Described, rows
from tests.support.s3 import S3Bucket


def opened(
    uri: object, commits: Commits, *, partition_by: tuple[str, ...] = (), options: Mapping[str, str] | None = None
) -> DeltaSink:
    """A sink whose stream has been checked, as the engine does before the start."""
    sink = DeltaSink(DeltaTarget(uri=str(uri), partition_by=partition_by, options=options or {}), commits.storage)
    sink.schema_of([Described(SCHEMA)])
    return sink


def words(uri: object, **options: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(uri), storage_options=options).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["word"]) for row in found)


def test_a_commit_that_is_made_again_changes_nothing(tmp_path: Path, commits: Commits) -> None:
    sink, ctx, objects = opened(tmp_path / "t", commits), commits.context(), commits.objects(rows((1, "a"), (2, "b")))
    sink.on_start(ctx)
    assert sink.write(3, objects, ctx)
    assert not sink.write(3, objects, ctx)
    again, next_ctx = opened(tmp_path / "t", commits), commits.context(2)
    again.on_start(next_ctx)
    assert not again.write(3, objects, next_ctx)
    assert again.write(4, commits.objects(rows((3, "c")), rows((1, "a"))), next_ctx)
    assert words(tmp_path / "t") == [(1, "a"), (1, "a"), (2, "b"), (3, "c")]
    assert DeltaTable(str(tmp_path / "t")).transaction_version("epochal/test/job/out") == 4


def test_a_driver_that_ends_before_or_after_the_commit(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, ctx, objects = opened(tmp_path / "t", commits), commits.context(), commits.objects(rows((1, "a")))
    sink.on_start(ctx)
    real = deltalake.write_deltalake
    for after in (False, True):

        def cutting(*arguments: Any, after: bool = after, **named: Any) -> None:
            if after:
                real(*arguments, **named)
            raise Cut

        monkeypatch.setattr(delta, "write_deltalake", cutting)
        with pytest.raises(Cut):
            sink.write(1, objects, ctx)
        assert words(tmp_path / "t") == ([(1, "a")] if after else [])
    monkeypatch.setattr(delta, "write_deltalake", real)
    assert not sink.write(1, objects, ctx)
    assert words(tmp_path / "t") == [(1, "a")]


@pytest.mark.parametrize("newer", [1, 2], ids=["same generation", "newer generation"])
def test_of_two_drivers_at_once_one_writes(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch, newer: int
) -> None:
    """The other one commits while this one is between looking and writing."""
    uri, objects = tmp_path / "t", commits.objects(rows((1, "a")))
    slow, ctx = opened(uri, commits), commits.context(1)
    slow.on_start(ctx)
    real, quick, quick_ctx = deltalake.write_deltalake, opened(uri, commits), commits.context(newer)

    def overtaken(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(delta, "write_deltalake", real)
        quick.on_start(quick_ctx)
        assert quick.write(1, objects, quick_ctx)
        real(*arguments, **named)

    monkeypatch.setattr(delta, "write_deltalake", overtaken)
    if newer == 1:
        assert not slow.write(1, objects, ctx)
    else:
        with pytest.raises(SinkFencedError, match="generation 2 of job test/job has taken over"):
            slow.write(1, objects, ctx)
    assert words(uri) == [(1, "a")]


def test_other_writers_of_the_table_are_no_trouble(tmp_path: Path, commits: Commits) -> None:
    sinks = [(opened(tmp_path / "t", commits), commits.context(name=name)) for name in ("one", "two")]
    for sink, ctx in sinks:
        sink.on_start(ctx)
    for epoch in (1, 2):
        for sink, ctx in sinks:
            assert sink.write(epoch, commits.objects(rows((epoch, ctx.name))), ctx)
    assert words(tmp_path / "t") == [(1, "one"), (1, "two"), (2, "one"), (2, "two")]


def test_a_job_begun_anew_is_told(tmp_path: Path, commits: Commits) -> None:
    sink, ctx = opened(tmp_path / "t", commits), commits.context(4)
    sink.on_start(ctx)
    sink.write(50, commits.objects(rows((1, "a"))), ctx)
    with pytest.raises(PipelineError, match="has epoch 50 of job test/job, and this job's store knows none above 3"):
        opened(tmp_path / "t", commits).on_start(commits.context(1, newest_epoch=3))


def test_partitions(tmp_path: Path, commits: Commits) -> None:
    sink, ctx = opened(tmp_path / "t", commits, partition_by=("word",)), commits.context()
    sink.on_start(ctx)
    sink.write(1, commits.objects(rows((1, "a"), (2, "b"))), ctx)
    assert sorted(path.name for path in (tmp_path / "t").glob("word=*")) == ["word=a", "word=b"]
    assert words(tmp_path / "t") == [(1, "a"), (2, "b")]


def test_tables_that_do_not_fit_are_told(tmp_path: Path, commits: Commits) -> None:
    opened(tmp_path / "t", commits).on_start(commits.context())
    long, text = T.StructField("id", T.LongType()), T.StructField("word", T.StringType())
    cases: list[tuple[list[T.StructField], tuple[str, ...], str]] = [
        ([long], (), "has the columns id, word, and the stream id"),
        ([long, text, T.StructField("more", T.LongType())], (), "and the stream id, word, more"),
        ([T.StructField("id", T.StringType()), text], (), "column id is string, and Delta table .* has it as long"),
        ([long, text], ("nope",), "partition_by names nope, and the stream has id, word"),
        ([long, text], ("word",), r"is partitioned by \[\], not by \['word'\]"),
    ]
    for fields, partition_by, message in cases:
        sink = DeltaSink(DeltaTarget(uri=str(tmp_path / "t"), partition_by=partition_by), commits.storage)
        with pytest.raises(PipelineError, match=message):
            sink.schema_of([Described(T.StructType(fields))])


def test_on_s3(s3_bucket: S3Bucket, commits: Commits) -> None:
    server = s3_bucket.server
    keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    place = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": server.region, "AWS_ALLOW_HTTP": "true"}
    uri, options = f"s3://{s3_bucket.name}/t", keys | place
    sink, ctx, objects = opened(uri, commits, options=options), commits.context(), commits.objects(rows((1, "a")))
    sink.on_start(ctx)
    for _ in range(2):
        sink.write(1, objects, ctx)
    assert words(uri, **options) == [(1, "a")]
    assert server.secret_key not in repr(sink._target)
