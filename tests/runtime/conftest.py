"""Fixtures of the runtime's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from epochal.protocol.control import StorageConfig
from tests.runtime.bad_data import Files
from tests.support.local_job import LocalJob
from tests.support.s3 import S3Bucket


@pytest.fixture(autouse=True)
def no_leftovers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sources of different tests have the same names: one that a failed test left running would fail the next, too."""
    yield
    if "spark" in request.fixturenames:
        spark: SparkSession = request.getfixturevalue("spark")
        for query in spark.streams.active:
            query.stop()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The input of a test's job."""
    return Files(tmp_path / "in")


@pytest.fixture
def s3_keys(spark: SparkSession, s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The S3 server's keys in the environment, of this process and of Spark's workers."""
    # Workers that run already have the environment of their start: with another one, new ones are started.
    server = s3_bucket.server
    for key, value in {"ACCESS_KEY_ID": server.access_key, "SECRET_ACCESS_KEY": server.secret_key}.items():
        monkeypatch.setenv(f"AWS_{key}", value)
        spark.sparkContext.environment[f"AWS_{key}"] = value


@pytest.fixture
def s3_job(spark: SparkSession, files: Files, tmp_path: Path, s3_bucket: S3Bucket, s3_keys: None) -> LocalJob:
    """A job that copies rows to Parquet, with its store on S3."""
    server = s3_bucket.server
    job = LocalJob(spark, lambda p: files.read(p).to_parquet("out", str(tmp_path / "out")), tmp_path)
    job.storage = StorageConfig(uri=f"s3://{s3_bucket.name}/jobs", endpoint=server.endpoint, region=server.region)
    return job
