"""The loop against a real API server: what a job lives through on a cluster."""

import pytest

from epochal_operator.api import NotFoundError
from epochal_operator.names import FINALIZER
from tests.operator.fake_kubelet import wait_until
from tests.operator.harness import Bench

pytestmark = pytest.mark.usefixtures("operator")


def test_a_job_runs_checkpoints_stops_goes_on_and_is_deleted(bench: Bench) -> None:
    job = bench.apply()
    status = job.wait_epoch(3)
    assert status["phase"] == "Running"
    assert status["observedGeneration"] == 1
    assert job.condition("Ready")["status"] == "True"
    assert job.get()["metadata"]["finalizers"] == [FINALIZER]
    job.patch(state="Suspended")
    stopped = job.wait_phase("Stopped")
    assert job.condition("Ready")["status"] == "False"
    assert stopped["history"][0]["epoch"] == stopped["epoch"]
    job.patch(state="Running")
    going_on = job.wait_epoch(stopped["epoch"] + 2)
    assert going_on["generation"] == 2
    job.delete()
    job.wait_gone()
    job.assert_exactly_once()
    # What belongs to it goes with it; the cluster's garbage collector learns of a new kind every 30 s.
    for kind in ("pods", "services", "secrets"):
        wait_until(lambda kind=kind: not bench.names(kind), seconds=60)


def test_pods_are_restricted_and_owned(bench: Bench) -> None:
    job = bench.apply()
    job.wait_phase("Running")
    pod = bench.api.get("pods", bench.namespace, "job-driver-1")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["metadata"]["ownerReferences"][0]["uid"] == job.get()["metadata"]["uid"]
    service = bench.api.get("services", bench.namespace, "job-driver")
    assert service["spec"]["clusterIP"] == "None"
    with pytest.raises(NotFoundError):
        bench.api.get("pods", bench.namespace, "job-driver-2")
