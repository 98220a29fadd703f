"""A namespace is deleted with a job in it: nothing holds it up, and nobody has to take a finalizer away."""

from collections.abc import Callable

from examples.cluster.live_job import Cluster, LiveJob

AT_MOST = 120
"""Seconds: a driver has 60 for its last checkpoint. A deletion by the operator's own limit would take 10 minutes."""


def test_a_namespace_goes_with_its_job(make_job: Callable[..., LiveJob], cluster: Cluster) -> None:
    job = make_job("going")
    job.apply()
    job.wait_ready()
    cluster.kubectl("delete", "namespace", job.namespace, f"--timeout={AT_MOST}s")
    found = cluster.get("namespaces")["items"]
    assert job.namespace not in [one["metadata"]["name"] for one in found]
