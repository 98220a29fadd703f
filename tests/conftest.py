"""Fixtures that any test may ask for."""

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from tests.support.gobuild import ensure_built
from tests.support.s3 import VERSITYGW, S3Bucket, S3Server


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks for the S3 server is marked `s3`: a forgotten marker cannot slow down the fast tests."""
    for item in items:
        if "s3_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.s3)


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
