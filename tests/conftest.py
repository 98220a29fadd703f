"""Fixtures that any test may ask for."""

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from cluster.binaries import VERSITYGW
from cluster.control_plane import ControlPlane
from cluster.gobuild import BuildError, ensure_built
from cluster.layout import layout
from cluster.node import Node
from cluster.requirements import is_root
from tests.support.kafka.jars import CONNECTOR, FORMATS, jars
from tests.support.leftovers import end_leftovers
from tests.support.s3 import S3Bucket, S3Server
from tests.support.small import SMALL_DELTA, WITHOUT_COMPILING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_AS_IT_IS = "spark.databricks.delta.requiredSparkConfsCheck.enabled"
"""Delta wants its extension in every session that reads from it; reading does not need it, and other tests do without.
``tests/exactly_once/test_connectors.py`` runs with the extension."""

NO_JARS = "EPOCHAL_NO_JARS"
"""Set where Spark is of another version than the sources for Kafka and Delta are made for."""

CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Made by the Makefile. Where it is missing or does not fit, a JVM starts without it, only slower."""

# A test's JVM lives for seconds: compiling for speed takes longer than what it speeds up.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off",
)

# A busy machine is slow at times: that says nothing about the code.
settings.register_profile("epochal", deadline=None)
settings.load_profile("epochal")


LONGEST_FIRST = ("exactly_once", "nexmark", "operator", "runtime", "chart")
"""Directories whose tests take longest. Begun last, one of their files would go on when all the others are done."""


def _place(item: pytest.Item) -> int:
    directory = item.path.parent.name
    return LONGEST_FIRST.index(directory) if directory in LONGEST_FIRST else len(LONGEST_FIRST)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and (ended := end_leftovers()):
        print(f"ended {len(ended)} processes that an earlier run left behind when it was killed", file=sys.stderr)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks for the S3 server is marked `s3`: a forgotten marker cannot slow down the fast tests."""
    items.sort(key=_place)
    for item in items:
        if "s3_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.s3)
        if "node" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.node)
            # There is one cluster, and some tests kill parts of it: one after the other, by one worker.
            item.add_marker(pytest.mark.xdist_group("node"))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


def _jars() -> str:
    """Spark's sources for Kafka and Delta. Where they cannot be had, only the tests that read such sources fail."""
    if os.environ.get(NO_JARS):
        return ""
    try:
        return ",".join(str(jar) for each in (CONNECTOR, FORMATS) for jar in jars(each))
    except BuildError as error:
        print(error, file=sys.stderr)
        return ""


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One Spark for all tests of a process, set up as a driver sets it up. But it interprets plans; where compiled code
    is the point, ``tests.support.small.compiling``."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from epochal.driver import PARTITIONS, SPARK_DEFAULTS

    builder = SparkSession.builder.master("local[2]").appName("tests")
    given = {PARTITIONS: "2", "spark.jars": _jars(), DELTA_AS_IT_IS: "false", **SMALL_DELTA, **WITHOUT_COMPILING}
    for key, value in (SPARK_DEFAULTS | given).items():
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


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A real API server without nodes, shared by the tests of one process."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        plane = ControlPlane()
    with plane:
        yield plane


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> S3Bucket:
    """A bucket that no other test knows."""
    return s3_server.make_bucket(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """The real cluster of plain processes: one that runs already is left running, one made for the tests is ended."""
    if not is_root():
        pytest.skip("a cluster of plain processes needs root")
    node = Node(layout())
    was_there = node.runs
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def cluster(command: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            subprocess.run([sys.executable, "-m", "cluster", command, "--without-docker"], check=True)

    cluster("up")
    yield node
    if not was_there:
        cluster("down")
