"""HTTP: requests that can be told apart, made again when that may help, and not when it cannot."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.connectors.http.sink import HttpRefusedError, HttpSink, HttpTarget
from epochal.runtime.errors import PipelineError
from tests.connectors.commits import Commits
from tests.connectors.receiver import Receiver
from tests.runtime.streaming import FedJob


def values(count: int) -> list[dict[str, Any]]:
    return [{"value": json.dumps({"n": number, "none": None})} for number in range(count)]


def sink_of(receiver: Receiver, commits: Commits, *, patience: float = 20.0) -> HttpSink:
    headers = {"Authorization": "Bearer s3cret"}
    target = HttpTarget(url=receiver.url, headers=headers, rows_per_request=2, patience=patience)
    return HttpSink(target, commits.storage)


def test_parts_are_the_same_when_the_commit_is_made_again(receiver: Receiver, commits: Commits) -> None:
    sink, ctx, objects = sink_of(receiver, commits), commits.context(), commits.objects(values(3), values(2))
    sink.open(ctx)
    sink.commit(7, None, objects, ctx)
    first, receiver.requests = receiver.requests, []
    assert [key for key, _ in first] == [f"test/job/out/7/{part}" for part in range(3)]
    assert [row["n"] for _, body in first for row in body] == [0, 1, 2, 0, 1]
    assert first[0][1][0] == {"n": 0, "none": None}
    sink.commit(7, None, objects, ctx)
    assert receiver.requests == first
    assert receiver.headers[0]["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("answer", [500, 503, 429, 408, None], ids=str)
def test_what_may_work_later_is_tried_again(receiver: Receiver, commits: Commits, answer: int | None) -> None:
    receiver.answers = [answer, answer]
    sink_of(receiver, commits).commit(1, None, commits.objects(values(1)), commits.context())
    assert [key for key, _ in receiver.requests] == ["test/job/out/1/0"] * 3


@pytest.mark.parametrize("answer", [400, 401, 404, 302], ids=str)
def test_what_never_works_is_told(receiver: Receiver, commits: Commits, answer: int) -> None:
    receiver.answers = [answer]
    with pytest.raises(HttpRefusedError, match=rf"http://127.0.0.1:\d+/rows answered {answer} .*as you see") as caught:
        sink_of(receiver, commits).commit(1, None, commits.objects(values(1)), commits.context())
    assert len(receiver.requests) == 1
    assert "s3cret" not in str(caught.value)


def test_patience_ends(receiver: Receiver, commits: Commits) -> None:
    receiver.answers = [503] * 1000
    with pytest.raises(Exception, match=r"/rows answered 503") as caught:
        sink_of(receiver, commits, patience=0.5).commit(1, None, commits.objects(values(1)), commits.context())
    assert "s3cret" not in str(caught.value)


def test_a_column_may_have_any_name(spark: SparkSession, receiver: Receiver, tmp_path: Path) -> None:
    """Only JSON is held, so it need not be a name that state can have."""

    def build(p: Pipeline, job: FedJob) -> None:
        ids = job.source(p, "ids", "id long")
        ids.transform("renamed", lambda rows: rows.withColumnRenamed("id", "a.b")).to_http("out", receiver.url)

    job = FedJob(spark, build, tmp_path)
    job.start()
    job.feed("ids", [(7,)])
    job.finish()
    assert [body for _, body in receiver.requests] == [[{"a.b": 7}]]


@pytest.mark.parametrize("url", ["", "somewhere", "ftp://host/x", "http://", "http://host:s3cret/x"])
def test_a_bad_address_is_told(url: str) -> None:
    with pytest.raises(PipelineError, match="not a web address: give http://HOST/PATH") as caught:
        HttpTarget(url=url)
    assert "s3cret" not in str(caught.value)
