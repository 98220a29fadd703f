"""HTTP: requests that can be told apart, made again when that may help, and not when it cannot."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from epochal import Pipeline
from epochal.connectors.http.sink import HttpRefusedError, HttpSink, HttpTarget
from epochal.protocol.control import EXIT_DRAINED
from epochal.runtime.checkpoint.patience import Patience
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.errors import PipelineError
from tests.connectors.commits import Commits
from tests.connectors.receiver import Receiver
from tests.runtime.streaming import FedJob
from tests.runtime.test_patience import Clock
from tests.support.local_job import LocalJob


def values(count: int) -> list[dict[str, Any]]:
    return [{"value": json.dumps({"n": number, "none": None})} for number in range(count)]


def sink_of(receiver: Receiver, commits: Commits, *, patience: float = 20.0) -> HttpSink:
    headers = {"Authorization": "Bearer s3cret"}
    target = HttpTarget(url=receiver.url, headers=headers, rows_per_request=2, patience=patience)
    return HttpSink(target, commits.storage)


def commit(sink: HttpSink, objects: list[str], ctx: OperatorContext, clock: Clock | None = None) -> None:
    """As the runtime does: again while waiting helps."""
    clock = clock or Clock()
    Patience(clock, clock=lambda: clock.now).call(
        "sink 'out'",
        lambda: sink.commit(7, None, objects, ctx),
        seconds=sink.commit_patience,
        progress=lambda: sink.commit_progress,
    )


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
    commit(sink_of(receiver, commits), commits.objects(values(1)), commits.context())
    assert [key for key, _ in receiver.requests] == ["test/job/out/7/0"] * 3


def test_no_request_that_was_taken_is_made_again(receiver: Receiver, commits: Commits) -> None:
    """And waiting begins anew with each request: a server that is slow all the time is not given up."""
    receiver.answers = [200, *[503] * 6, 200, *[503] * 6]
    clock = Clock()
    commit(sink_of(receiver, commits, patience=20.0), commits.objects(values(5)), commits.context(), clock)
    parts = [int(key.rpartition("/")[2]) for key, _ in receiver.requests]
    assert parts == [0, *[1] * 7, *[2] * 7]
    assert clock.now > 20.0


def test_a_server_that_says_when_is_not_asked_before(receiver: Receiver, commits: Commits) -> None:
    receiver.answers, receiver.retry_after = [429], 15
    clock = Clock()
    commit(sink_of(receiver, commits), commits.objects(values(1)), commits.context(), clock)
    assert clock.pauses == [15.0]


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
        commit(sink_of(receiver, commits), commits.objects(values(1)), commits.context())
    assert "s3cret" not in str(caught.value)
    assert len(receiver.requests) < 20


def test_a_driver_that_waits_for_a_server_ends_when_it_is_asked_to(
    spark: SparkSession, receiver: Receiver, tmp_path: Path
) -> None:
    """While it runs, and while it starts with an epoch whose rows were not posted."""

    def build(p: Pipeline, job: FedJob) -> None:
        job.source(p, "ids", "id long").to_http("out", receiver.url)

    def waits() -> bool:
        return job.engine is not None and "sink 'out' waits" in job.engine.status().message

    job = FedJob(spark, build, tmp_path)
    first = job.start()
    job.feed("ids", [(7,)])
    receiver.answers = [503] * 1000
    LocalJob.checkpoint(job, wait=False)
    job.wait(waits, "the server")
    job.crash()
    job.completed = job.issued  # it is published
    threading.Thread(target=LocalJob.start, args=(job,), daemon=True).start()
    job.wait(lambda: job.engine is not first and waits(), "the server, at the start")
    began = time.monotonic()
    assert job.engine is not None
    job.engine.drain("asked to end", 600.0)
    job._join()
    assert time.monotonic() - began < 30.0
    assert job.engine.exit_code == EXIT_DRAINED
    receiver.answers = []
    job.start()
    job.finish()
    assert receiver.requests[-1] == ("test/job/out/1/0", [{"id": 7}])


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
