"""One cluster, one operator, and one job that all tests share that leave it running; the others have jobs of their own.

What a test that failed has left is in build/e2e/<test>/.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.node import Node
from examples.cluster.live_job import PATIENCE, Cluster, LiveJob
from tests.e2e.evidence import gather

ORDER = (
    "test_first_run",
    "test_bad_jobs",
    "test_interval",
    "test_cleanup",
    "test_operator_away",
    "test_store_away",
    "test_driver_lost",
    "test_suspend_and_resume",
    "test_damaged_manifest",
    "test_delete",
    # With jobs of their own, now that the shared one is gone.
    "test_sql",
    "test_executor_lost",
    "test_three_executors",
    "test_secrets",
    "test_waiting",
    "test_memory",
    "test_drain",
    "test_namespace_gone",
    "test_zombie",
    "test_checkpoint_timeout",
    "test_several_jobs",
    "test_tutorial",
)
"""Cheap ones first; those of the shared job in an order in which each finds it running."""

LIMIT = 1200
"""Seconds for one test. All of them together take a fraction of that on a machine that has nothing else to do."""

PREFIX = "e2e-"

JVM = "-XX:TieredStopAtLevel=1 -XX:SharedArchiveFile=/opt/spark-classes.jsa -Xlog:cds=off -Xlog:cds+dynamic=off"
"""As the image has it, but without the second compiler: a test's drivers do not live long enough to gain by it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in ours:
        item.add_marker(pytest.mark.timeout(LIMIT))
    ours.sort(key=lambda item: ORDER.index(item.path.stem))
    chosen = set(ours)
    places = [place for place, item in enumerate(items) if item in chosen]
    for place, item in zip(places, ours, strict=True):
        items[place] = item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.failed:
        gather(item.name)
    return report


@pytest.fixture(scope="session")
def cluster(node: Node) -> Cluster:
    """The cluster with the operator installed, and without what an earlier run may have left."""
    cluster = Cluster()
    cluster.install_operator()
    cluster.operator("scale", "--replicas=1")
    found = cluster.get("namespaces")["items"]
    for namespace in (item["metadata"]["name"] for item in found if item["metadata"]["name"].startswith(PREFIX)):
        end_namespace(cluster, namespace)
    return cluster


def end_namespace(cluster: Cluster, namespace: str) -> None:
    """Its jobs first, while the operator is there to let them go."""
    where = f"--namespace={namespace}"
    cluster.kubectl("delete", where, "streamingjobs", "--all", "--wait=false")
    # Nobody needs a last checkpoint of these.
    cluster.kubectl("delete", where, "pods", "--all", "--grace-period=0", "--force", "--wait=false")
    cluster.kubectl("delete", where, "streamingjobs", "--all", f"--timeout={PATIENCE:.0f}s")
    cluster.kubectl("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="session")
def make_namespace(cluster: Cluster) -> Iterator[Callable[[str], str]]:
    """Namespaces of this run: no two runs share a name, so that none waits for another's to be gone."""
    run, made = f"{int(time.time()) % 1_000_000:06d}", []

    def make(name: str) -> str:
        namespace = f"{PREFIX}{name}-{run}"
        if namespace not in made:
            made.append(namespace)
            cluster.make_namespace(namespace)
        return namespace

    yield make
    for namespace in made:
        end_namespace(cluster, namespace)


@pytest.fixture(scope="session")
def make_job(cluster: Cluster, make_namespace: Callable[[str], str]) -> Callable[..., LiveJob]:
    """A small job, not applied yet: all in its driver, checkpoints every 2 seconds. Its batches leave the cores to
    others."""

    def make(namespace: str, name: str = "orders", *, executors: int = 0, **given: Any) -> LiveJob:
        job = LiveJob(cluster, make_namespace(namespace), name, **given)
        job.spec["pipeline"]["parameters"].update(join="false", trigger="2 seconds")
        job.spec["checkpoint"]["interval"] = "2s"
        job.spec["driver"]["memory"] = "512m"
        job.spec["env"] = [{"name": "JAVA_TOOL_OPTIONS", "value": JVM}]
        if not executors:
            del job.spec["executor"]
            job.spec["sparkConf"] = {"spark.master": "local[1]"}
        return job

    return make


@pytest.fixture(scope="session")
def job(make_job: Callable[..., LiveJob]) -> LiveJob:
    """The shared job. It is applied here; tests that need it to run ask for ``running``."""
    job = make_job("shared")
    job.apply()
    return job


@pytest.fixture
def running(job: LiveJob) -> LiveJob:
    """The shared job, as healthy as it should be after whatever was done to it before."""
    job.wait_ready()
    if not job.epoch:
        job.wait_epochs(1)
    return job
