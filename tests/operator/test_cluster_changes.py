"""Edits of a job's spec, and of what belongs to it, against a real API server."""

import time

import pytest

from epochal_operator.kubernetes.pod_state import keys_of
from epochal_operator.names import PLURAL, RESTART_ANNOTATION
from tests.operator.fake_kubelet import FakeKubelet, wait_until
from tests.operator.harness import Bench, JobHandle

pytestmark = pytest.mark.usefixtures("operator")


def test_a_change_that_needs_a_new_driver_stops_the_old_one_with_a_last_checkpoint(bench: Bench) -> None:
    job = bench.apply(sparkConf={"spark.sql.shuffle.partitions": "4"})
    job.wait_epoch(2)
    job.patch(sparkConf={"spark.sql.shuffle.partitions": "8"})
    status = job.wait(lambda status: status["generation"] == 2 and status["phase"] == "Running")
    assert status["observedGeneration"] == 2
    assert status["restarts"]["total"] == 0, "a wanted restart is none that counts"
    stop = next(entry for entry in status["history"] if entry["generation"] == 1)
    assert stop["state"] == "Ready"
    wait_until(lambda: any(reason == "SpecChanged" for reason, _ in bench.events()))
    job.wait_epoch(status["epoch"] + 1)
    job.assert_exactly_once()


def test_the_interval_is_edited_without_a_restart(bench: Bench) -> None:
    job = bench.apply(checkpoint={"interval": "1h"})
    job.wait_phase("Running")
    job.patch(checkpoint={"interval": "200ms"}, driver={"unreachableTimeout": "90s"})
    status = job.wait_epoch(3)
    assert status["generation"] == 1
    assert status["observedGeneration"] == 2


def test_the_restart_annotation_restarts_a_running_job(bench: Bench) -> None:
    job = bench.apply()
    job.wait_epoch(1)
    job.annotate(RESTART_ANNOTATION, "now")
    job.wait(lambda status: status["generation"] == 2 and status["phase"] == "Running")
    job.assert_exactly_once()


def test_a_job_that_is_finished_stays_finished(bench: Bench) -> None:
    job = bench.apply(script={"rows": 50})
    status = job.wait_phase("Finished")
    time.sleep(0.5)
    assert job.status["generation"] == status["generation"] == 1
    job.assert_exactly_once()
    job.delete()
    job.wait_gone()


def test_a_spec_that_cannot_be_run_waits_for_what_is_missing(bench: Bench) -> None:
    job = bench.apply(pipeline={"configMap": {"name": "program"}})
    stalled = job.wait_condition("Stalled", "True", "SpecNotAccepted")
    assert "ConfigMap program does not exist" in stalled["message"]
    assert not bench.names("pods")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}, "data": {"pipeline.py": ""}}
    bench.api.create("configmaps", bench.namespace, body)
    job.wait_epoch(1)
    assert job.condition("Stalled")["status"] == "False"


def test_a_spec_that_cannot_be_run_leaves_a_running_job_as_it_is(bench: Bench) -> None:
    job = bench.apply()
    job.wait_epoch(1)
    job.patch(serviceAccount="nobody")
    stalled = job.wait_condition("Stalled", "True", "SpecNotAccepted")
    assert "ServiceAccount nobody does not exist" in stalled["message"]
    epoch = job.status["epoch"]
    status = job.wait_epoch(epoch + 2)
    assert (status["generation"], status["phase"]) == (1, "Running")
    job.patch(serviceAccount=None)
    job.wait_condition("Stalled", "False")
    assert job.status["generation"] == 1


def test_missing_credentials_are_named(bench: Bench) -> None:
    storage = {"uri": "s3://bucket/prefix", "credentialsSecret": {"name": "keys"}}
    job = bench.apply(checkpoint={"storage": storage})
    assert "Secret keys does not exist" in job.wait_condition("Stalled", "True", "SpecNotAccepted")["message"]


def test_a_deleted_service_and_configuration_come_back(bench: Bench) -> None:
    job = bench.apply()
    job.wait_phase("Running")
    bench.delete("services", "job-driver")
    bench.delete("configmaps", "job-driver-1")
    wait_until(lambda: "job-driver" in bench.names("services"))
    wait_until(lambda: "job-driver-1" in bench.names("configmaps"))
    assert job.status["generation"] == 1
    # The Secret goes with its ConfigMap.
    wait_until(lambda: sum(reason == "Repaired" for reason, _ in bench.events()) == 3)
    assert bench.names("secrets") == [keys_of(bench.api.get("pods", bench.namespace, "job-driver-1"))]


def test_a_pod_that_waits_for_a_deleted_secret_gets_it_again(bench: Bench, kubelet: FakeKubelet) -> None:
    job = bench.apply(script={"starting": 0.5})
    job.wait_phase("Running")
    bench.delete("secrets", keys_of(bench.api.get("pods", bench.namespace, "job-driver-1")))
    kubelet.crash(bench.namespace, "job-driver-1")
    job.wait(lambda status: status["generation"] == 2 and status["phase"] == "Running")
    assert keys_of(bench.api.get("pods", bench.namespace, "job-driver-2")) in bench.names("secrets")


def test_a_record_that_somebody_wiped_is_rebuilt_from_the_store(bench: Bench) -> None:
    job = bench.apply()
    epoch = job.wait_epoch(3)["epoch"]
    _wipe(job)
    status = job.wait(lambda status: status["generation"] == 2 and status["epoch"] > epoch)
    assert status["record"]["checkpoints"]["issued"] >= status["epoch"]
    job.assert_exactly_once()


def _wipe(job: JobHandle) -> None:
    def once() -> bool:
        body = job.get()
        body["status"] = {}
        try:
            job.bench.api.replace_status(PLURAL, job.bench.namespace, job.name, body)
        except Exception:
            return False
        return True

    wait_until(once)


def test_nothing_is_written_while_nothing_happens(bench: Bench) -> None:
    job = bench.apply(checkpoint={"interval": "1h"})
    job.wait_phase("Running")
    time.sleep(0.5)
    before = job.get()["metadata"]["resourceVersion"]
    time.sleep(2)
    assert job.get()["metadata"]["resourceVersion"] == before
