"""The command line with its checkpoints on a real S3 server: credentials come from the environment."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.processes import free_port
from epochal.protocol import store as protocol_store
from tests.cli.support import Job, finished
from tests.cli.test_commands import ok, refused
from tests.support.s3 import S3Bucket, S3Server

PIPELINE = """
from pyspark.sql import functions as F

def build(p):
    stream = p.spark.readStream.schema("id long, at timestamp").json(p.parameters["input"])
    rows = p.source("rows", stream, event_time="at", bounded=True)
    counted = rows.aggregate("counted", keys=["id"], aggregates={"n": F.count("*")})
    counted.to_parquet("out", p.parameters["output"])
"""


QUICK = protocol_store.RetryPolicy(tries=2, first_pause=0.01)


@pytest.fixture
def keys(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)


@pytest.fixture
def job(
    tmp_path: Path, s3_server: S3Server, s3_bucket: S3Bucket, keys: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Job]:
    monkeypatch.chdir(tmp_path)
    storage = {"uri": f"s3://{s3_bucket.name}/jobs", "endpoint": s3_server.endpoint, "region": s3_server.region}
    job = Job(tmp_path, checkpoint={"interval": "200ms", "timeout": "20s", "storage": storage})
    yield job
    job.end()


def on_store(job: Job) -> list[str]:
    """The job by its store instead of by its manifest."""
    storage = yaml.safe_load(job.manifest.read_text())["spec"]["checkpoint"]["storage"]
    return [storage["uri"], "--endpoint", storage["endpoint"], "--region", storage["region"]]


def test_a_job_runs_stops_and_goes_on(job: Job, s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    code, output = job.run("--until-epoch", "2")
    assert code == 0, output
    first = job.epoch()
    code, output = job.run("--until-epoch", str(first + 2))
    assert code == 0, output
    assert f"restored from epoch {first}" in output
    job.assert_exactly_once()
    kept = list((s3_server.data_dir / s3_bucket.name / "jobs/default/numbers/epochs").iterdir())
    assert kept, "epochs are on the server"
    assert not (job.path / ".epochal" / "store").exists(), "and not on this disk"
    assert f"epoch {job.epoch()}" in ok("status", str(job.manifest))


def test_every_command_works_by_manifest_and_by_uri(job: Job) -> None:
    code, output = job.run("--until-epoch", "3")
    assert code == 0, output
    newest = job.epoch()
    for target in ([str(job.manifest)], on_store(job)):
        assert ok("checkpoints", *target).splitlines()[1].split()[0] == str(newest)
        assert f"Epoch {newest} of default/numbers" in ok("inspect", *target)
        assert "count" in ok("inspect", *target, "--sql", "SELECT key FROM total.sums", "--format", "csv")
    assert f"keeps epoch {newest}" in ok("savepoint", "create", *on_store(job)[:1], "kept", *on_store(job)[1:])
    assert "kept" in ok("savepoint", "list", str(job.manifest))
    assert "Deleted" in ok("cleanup", *on_store(job), "--job", "numbers", "--min-epoch", str(newest))
    assert len(ok("checkpoints", *on_store(job)).splitlines()) == 2
    assert "count" in ok("inspect", str(job.manifest), "--savepoint", "kept", "--operator", "total")
    assert "is deleted" in ok("savepoint", "delete", str(job.manifest), "kept")


COMMANDS = {
    "checkpoints": ["checkpoints", "URI", "--job", "numbers"],
    "inspect": ["inspect", "URI", "--job", "numbers"],
    "savepoint list": ["savepoint", "list", "URI", "--job", "numbers"],
    "savepoint create": ["savepoint", "create", "URI", "name", "--job", "numbers"],
    "cleanup": ["cleanup", "URI", "--job", "numbers", "--min-epoch", "1"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_mistakes_are_told_apart(
    command: str, s3_server: S3Server, s3_bucket: S3Bucket, keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol_store, "RetryPolicy", lambda: QUICK)
    options = ["--endpoint", s3_server.endpoint, "--region", s3_server.region]

    def said(uri: str, *given: str) -> str:
        arguments = [uri if word == "URI" else word for word in COMMANDS[command]]
        return refused(*arguments, *(given or options))

    good = f"s3://{s3_bucket.name}/jobs"
    assert "there is no such bucket: create it, or correct the URI" in said("s3://no-such-bucket/jobs")
    dead = f"http://127.0.0.1:{free_port()}"
    assert "does not answer: check the endpoint" in said(good, "--endpoint", dead, "--region", s3_server.region)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    message = said(good)
    assert "does not accept the credentials: check access key and secret" in message
    assert "not-the-secret" not in message
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "does not accept the credentials: check access key and secret" in said(good)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", dead)
    assert "found no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said(good)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "does not accept the credentials"),
        ({"bucket": "no-such-bucket"}, "there is no such bucket"),
    ],
)
def test_run_tells_what_is_wrong_with_the_store(
    job: Job, change: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in change.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
        else:
            storage = job.checkpoint["storage"]
            assert isinstance(storage, dict)
            storage["uri"] = f"s3://{value}/jobs"
            job.write()
    code, output = job.run()
    assert code == 2, output
    assert said in output
    assert "Traceback" not in output


@pytest.mark.spark
@pytest.mark.slow
def test_the_real_driver_has_its_state_and_its_output_on_s3(job: Job, s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    job.driver_module = "epochal.driver"
    source = job.path / "in"
    source.mkdir()
    rows = [{"id": number % 3, "at": f"2026-01-01T00:00:{number:02d}Z"} for number in range(30)]
    (source / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    (job.path / "pipeline.py").write_text(PIPELINE)
    document = yaml.safe_load(job.manifest.read_text())
    parameters = {"input": str(source), "output": f"s3://{s3_bucket.name}/out"}
    document["spec"]["pipeline"] = {"file": "pipeline.py", "parameters": parameters}
    document["spec"]["checkpoint"] |= {"interval": "1s", "timeout": "2m"}
    document["spec"]["sparkConf"] = {"spark.master": "local[1]"}
    job.manifest.write_text(yaml.safe_dump(document))
    code, output = finished(job.start("--plain"), timeout=250)
    assert code == 0, output
    assert list((s3_server.data_dir / s3_bucket.name / "out").glob("epoch-*.parquet"))
    overview = ok("inspect", str(job.manifest))
    assert "counted" in overview
    tables = [line.split()[1] for line in overview.splitlines() if line.startswith("counted")]
    assert ok(
        "inspect", str(job.manifest), "--sql", f"SELECT count(*) AS n FROM counted.{tables[0]}", "--format", "csv"
    )
