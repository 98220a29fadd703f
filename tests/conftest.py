"""Fixtures that any test may ask for."""

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.gobuild import ensure_built
from tests.support.s3 import VERSITYGW, S3Bucket, S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine is slow at times: that says nothing about the code.
settings.register_profile("epochal", deadline=None)
settings.load_profile("epochal")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks for the S3 server is marked `s3`: a forgotten marker cannot slow down the fast tests."""
    for item in items:
        if "s3_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.s3)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One Spark for all tests of a process, set up as a driver sets it up."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from epochal.driver import SPARK_DEFAULTS

    builder = SparkSession.builder.master("local[2]").appName("tests")
    for key, value in SPARK_DEFAULTS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    """A real S3 server, shared by the tests of one process. A test that stops it starts it again."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    # The first build takes minutes: let its progress through to the person who waits.
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        ensure_built(VERSITYGW)
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> S3Bucket:
    """A bucket that no other test knows."""
    return s3_server.make_bucket(f"test-{uuid.uuid4().hex[:12]}")
