"""The operator is away for minutes; the job runs on, and then checkpoints go on with the same driver."""

import time

from examples.cluster.live_job import OPERATOR, PATIENCE, RELEASE_NAMESPACE, Cluster, LiveJob, until
from tests.e2e.driver_api import driver_status


def test_the_job_runs_on_while_the_operator_is_away(running: LiveJob, cluster: Cluster) -> None:
    generation = running.generation
    cluster.operator("scale", "--replicas=0")
    until("the operator to be gone", lambda: not _operator_pods(cluster))
    batch = driver_status(running).sources[0].batch
    before = running.epoch
    time.sleep(120)
    until("more batches", lambda: driver_status(running).sources[0].batch > batch)
    assert running.epoch == before, "somebody makes checkpoints without an operator"
    cluster.operator("scale", "--replicas=1")
    running.wait_epochs(2)
    assert running.generation == generation
    running.check_output()


def test_an_upgrade_of_the_operator_leaves_jobs_alone(running: LiveJob, cluster: Cluster) -> None:
    generation, pod = running.generation, _driver_uid(running)
    where = (f"--namespace={RELEASE_NAMESPACE}", OPERATOR)
    cluster.kubectl("rollout", "restart", *where)
    cluster.kubectl("rollout", "status", *where, f"--timeout={PATIENCE:.0f}s")
    running.wait_epochs(2)
    assert running.generation == generation
    assert _driver_uid(running) == pod
    running.check_output()


def _driver_uid(job: LiveJob) -> str:
    return job.kubectl("get", "pod", job.driver, "--output=jsonpath={.metadata.uid}")


def _operator_pods(cluster: Cluster) -> list[object]:
    return list(cluster.get(f"--namespace={RELEASE_NAMESPACE}", "pods")["items"])
