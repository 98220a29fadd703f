"""Rounds of one controller in this process, against a real API server, with a clock that can be set."""

import base64
import json
import time
from collections.abc import Callable

import pytest

from epochal.control.events import EventReason
from epochal.control.job import JobSpec
from epochal.protocol.control import SECRETS_VARIABLE
from epochal.protocol.epochs import Generation
from epochal_operator.api import ApiError, JsonObject
from epochal_operator.controller import Controller
from epochal_operator.kubernetes.backend import FORCE_AFTER, Cluster
from epochal_operator.kubernetes.dependents import KEYS_CHECK_EVERY
from epochal_operator.kubernetes.manifests import resources
from epochal_operator.kubernetes.manifests.resources import driver_pod
from epochal_operator.kubernetes.nodes import Nodes
from epochal_operator.kubernetes.pod_state import keys_of
from epochal_operator.kubernetes.watch_cache import Watched
from epochal_operator.names import FINALIZER, PLURAL, RESTART_ANNOTATION
from epochal_operator.reporting.metrics import OperatorMetrics
from epochal_operator.stores.store_access import StoreRules, Stores
from tests.operator.fake_kubelet import FakeKubelet, wait_until
from tests.operator.harness import Bench, JobHandle, Rounds


def running(epoch: int = 0) -> Callable[[JsonObject], object]:
    return lambda status: status.get("phase") == "Running" and status["epoch"] >= epoch


def with_finalizer(bench: Bench, **changes: object) -> JobHandle:
    """As kopf would have made it."""
    body = bench.manifest(**changes)  # type: ignore[arg-type]
    body["metadata"]["finalizers"] = [FINALIZER]
    bench.api.create(PLURAL, bench.namespace, body)
    return JobHandle(bench, "job")


def release(job: JobHandle) -> None:
    body = job.get()
    body["metadata"]["finalizers"] = []
    job.bench.api._send(
        "PUT", PLURAL, f"/apis/epochal.dev/v1alpha1/namespaces/{job.bench.namespace}/streamingjobs/job", body=body
    )


def keys_of_driver(bench: Bench, driver: str) -> JsonObject:
    name = keys_of(bench.api.get("pods", bench.namespace, driver))
    return bench.api.get("secrets", bench.namespace, name)


def test_each_generation_has_secrets_of_its_own_that_go_with_its_configuration(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    rounds.until(job, running(1))
    first = keys_of_driver(bench, "job-driver-1")
    job.annotate(RESTART_ANNOTATION, "1")
    rounds.until(job, lambda status: status["generation"] == 2 and status["phase"] == "Running")
    second = keys_of_driver(bench, "job-driver-2")
    assert set(first["data"]) == set(second["data"])
    assert all(len(base64.b64decode(value)) >= 32 for value in first["data"].values())
    assert not set(first["data"].values()) & set(second["data"].values()), "nothing is used twice"
    assert second["immutable"] is True
    config = bench.api.get("configmaps", bench.namespace, "job-driver-2")
    [owner] = second["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ConfigMap", config["metadata"]["uid"])
    told = json.dumps([bench.objects(kind) for kind in ("configmaps", "pods", "services")] + [job.get()])
    for value in second["data"].values():
        assert value not in told
        assert base64.b64decode(value).decode() not in told
    # Kubernetes deletes the first with its ConfigMap: the operator has no right to.
    wait_until(lambda: bench.names("secrets") == [second["metadata"]["name"]])


def test_deleted_secrets_come_back_as_they_were(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    rounds.until(job, running(1))
    before = keys_of_driver(bench, "job-driver-1")
    bench.delete("secrets", before["metadata"]["name"])
    epoch = job.status["epoch"]
    rounds.ahead += KEYS_CHECK_EVERY + 1
    reasons = rounds.until(job, running(epoch + 1))
    assert EventReason.REPAIRED in reasons
    assert keys_of_driver(bench, "job-driver-1")["data"] == before["data"]
    assert job.status["generation"] == 1


def test_a_driver_whose_image_does_not_know_of_tls_is_asked_without(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply(image="old:1")
    rounds.until(job, running(2))
    assert job.status["generation"] == 1
    job.assert_exactly_once()


def test_a_driver_that_an_operator_before_tls_has_started_is_taken_over(
    bench: Bench, rounds: Rounds, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one Secret for the whole job, with nothing in it but a token."""

    def as_before(spec: JobSpec, owner: JsonObject, generation: Generation, keys: str) -> JsonObject:
        token = {"metadata": {"name": "job-token"}, "data": {"token": base64.b64encode(b"x" * 43).decode()}}
        bench.api.create("secrets", bench.namespace, {"apiVersion": "v1", "kind": "Secret", **token})
        pod = driver_pod(spec, owner, generation, "job-token")
        container = pod["spec"]["containers"][0]
        pod["spec"]["volumes"] = [one for one in pod["spec"]["volumes"] if one["name"] != "epochal-secrets"]
        container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "epochal-secrets"]
        container["env"] = [one for one in container["env"] if one["name"] != SECRETS_VARIABLE]
        return pod

    with monkeypatch.context() as patched:
        patched.setattr(resources, "driver_pod", as_before)
        job = bench.apply()
        rounds.until(job, running())
    rounds.until(job, running(2))
    assert job.status["generation"] == 1
    bench.delete("secrets", "job-token")
    rounds.ahead += KEYS_CHECK_EVERY + 1
    assert EventReason.REPAIRED in rounds.until(job, running(job.status["epoch"] + 1))
    job.annotate(RESTART_ANNOTATION, "1")
    rounds.until(job, lambda status: status["generation"] == 2 and status["phase"] == "Running")
    assert "ca.crt" in keys_of_driver(bench, "job-driver-2")["data"]


def test_a_pod_on_a_lost_node_is_given_up_and_the_job_goes_on(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply(env=[{"name": "FAKE_NODE", "value": "lost"}])
    rounds.until(job, running(1))
    bench.delete("pods", "job-driver-1", grace=1)
    job.patch(env=[])
    rounds.until(job, lambda status: status["phase"] == "Stopping" or status["record"]["checkpoints"]["stopped"])
    rounds.ahead += FORCE_AFTER + 100
    rounds.until(job, lambda status: status["generation"] == 2 and status["phase"] == "Running")
    job.assert_exactly_once()


def test_a_deletion_makes_a_last_checkpoint(bench: Bench, rounds: Rounds, kubelet: FakeKubelet) -> None:
    job = with_finalizer(bench, checkpoint={"interval": "1h"})
    rounds.until(job, running())
    job.delete()
    assert rounds.delete(job) == [EventReason.STOPPED]
    assert job.status["epoch"] == 1
    assert not kubelet.alive(bench.namespace)
    rounds.controller.forget(job.get())
    assert not rounds.metrics.tick_ages()
    release(job)
    job.assert_exactly_once()


def test_a_job_in_a_namespace_that_is_being_deleted_is_let_go_although_its_last_output_is_not_committed(
    bench: Bench, rounds: Rounds, kubelet: FakeKubelet
) -> None:
    job = with_finalizer(bench, script={"die": "published"}, checkpoint={"interval": "1h"})
    rounds.until(job, running())
    bench.api._send("DELETE", "pods", f"/api/v1/namespaces/{bench.namespace}")
    job.delete()
    began = time.monotonic()
    rounds.delete(job)
    assert time.monotonic() - began < 30, "not only when the time for a deletion is over"
    assert not kubelet.alive(bench.namespace)
    assert len(bench.names("pods")) == 1
    release(job)


def test_an_api_server_that_refuses_is_left_alone_for_as_long_as_it_asks(
    bench: Bench, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = bench.apply(checkpoint={"interval": "1h"})
    rounds.until(job, running())
    refused = 0

    def refuse(*_: object) -> JsonObject:
        nonlocal refused
        refused += 1
        raise ApiError("too many requests", 429, retry_after=20)

    monkeypatch.setattr(bench.api, "replace_status", refuse)
    job.patch(checkpoint={"interval": "1s"})
    while not refused:
        rounds.controller.tick(job.get())
    body = job.get()
    assert rounds.controller.quiet(body), "also for what has just changed"
    monkeypatch.undo()
    rounds.ahead += 21
    assert not rounds.controller.quiet(body)
    rounds.until(job, running(1))


def test_a_deletion_does_not_wait_for_ever(bench: Bench, rounds: Rounds, kubelet: FakeKubelet) -> None:
    job = with_finalizer(bench, script={"hang": "barrier@1"}, checkpoint={"interval": "1h", "timeout": "1h"})
    rounds.until(job, running())
    job.delete()
    gone, _ = rounds.controller.delete_step(job.get())
    assert not gone
    rounds.ahead += 101
    assert EventReason.STOP_FORCED in rounds.delete(job)
    release(job)


def test_a_deletion_waits_until_the_last_output_is_committed(bench: Bench, rounds: Rounds) -> None:
    script = {"die": "published@1", "generation": 1}
    job = with_finalizer(bench, script=script, checkpoint={"interval": "1h"})
    rounds.until(job, running())
    job.delete()
    assert rounds.delete(job)[-2:] == [EventReason.STARTING, EventReason.STOPPED]
    assert (job.status["generation"], job.status["epoch"], job.status["phase"]) == (2, 1, "Stopped")
    release(job)
    job.assert_exactly_once()


def test_a_deletion_says_what_was_never_committed(bench: Bench, rounds: Rounds) -> None:
    policy = {"backoff": "100ms", "maxBackoff": "100ms", "maxRestarts": 1}
    job = with_finalizer(bench, script={"sink": 1}, checkpoint={"interval": "1h"}, restartPolicy=policy)
    rounds.until(job, running())
    job.delete()
    end = time.monotonic() + 60
    while (job.get().get("status") or {})["phase"] != "Failed":
        assert not rounds.controller.delete_step(job.get())[0]
        assert time.monotonic() < end, job.status
        time.sleep(0.05)
    assert not rounds.controller.delete_step(job.get())[0], "somebody may still mend the sink"
    assert "the output of epoch 1 is not committed" in job.condition("Stalled")["message"]
    rounds.ahead += 101
    gone, events = rounds.controller.delete_step(job.get())
    assert gone
    assert "operator 'files' failed: told to fail" in events[-1].message
    release(job)


def test_a_job_that_was_never_started_is_deleted_at_once(bench: Bench, rounds: Rounds) -> None:
    job = with_finalizer(bench, serviceAccount="nobody")
    rounds.controller.tick(job.get())
    job.delete()
    assert rounds.delete(job, seconds=5) == []
    release(job)


def test_no_job_runs_beside_the_operator(bench: Bench, rounds: Rounds) -> None:
    """A driver there could start a pod as the operator."""
    inside = Controller(rounds.controller._cluster, OperatorMetrics(), own_namespace=bench.namespace)
    job = with_finalizer(bench)
    assert [event.reason for event in inside.tick(job.get())] == [EventReason.SPEC_NOT_ACCEPTED]
    assert inside.tick(job.get()) == [], "told once"
    stalled = job.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "SpecNotAccepted")
    assert f"namespace {bench.namespace} is the operator's own" in stalled["message"]
    assert not bench.names("pods")
    assert not bench.names("secrets")
    job.delete()
    assert inside.delete_step(job.get())[0]
    release(job)


def test_a_job_beside_the_operator_that_runs_already_has_no_successor(bench: Bench, rounds: Rounds) -> None:
    """As after an update from a release that still started it."""
    job = bench.apply()
    rounds.until(job, running(1))
    rounds.controller = Controller(rounds.controller._cluster, OperatorMetrics(), own_namespace=bench.namespace)
    rounds.until(job, running(2))
    assert job.condition("Stalled")["reason"] == "SpecNotAccepted"
    bench.delete("pods", "job-driver-1", grace=0)
    rounds.until(job, lambda status: status["phase"] == "Restarting")
    # Long after the pause before a restart.
    rounds.ahead += 1000
    for _ in range(5):
        rounds.controller.tick(job.get())
    assert job.status["generation"] == 1
    assert bench.names("pods") == []
    assert "is the operator's own" in job.condition("Stalled")["message"]


def test_a_store_that_cannot_be_read_is_told_and_waited_for(bench: Bench, rounds: Rounds) -> None:
    bench.directory.joinpath("store").write_text("in the way")
    job = bench.apply()
    first = rounds.controller.tick(job.get())
    assert [event.reason for event in first] == [EventReason.STORE_UNAVAILABLE]
    assert rounds.controller.tick(job.get()) == [], "told once"
    stalled = job.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "StoreUnavailable")
    bench.directory.joinpath("store").unlink()
    rounds.until(job, running(1))
    assert job.condition("Stalled")["status"] == "False"


def test_somebody_elses_write_in_between_is_a_conflict_and_nothing_is_done(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    stale = job.get()
    job.annotate("by", "somebody")
    rounds.controller.tick(stale)
    assert not bench.names("pods")
    assert rounds.metrics.registry.get_sample_value("epochal_ticks_total", {"result": "conflict"}) == 1
    rounds.until(job, running(1))


def test_an_operator_that_sees_nothing_never_has_two_drivers(
    bench: Bench, rounds: Rounds, kubelet: FakeKubelet
) -> None:
    job = bench.apply()
    rounds.until(job, running())
    # As an operator that sees nothing yet of what the one before it has done.
    blind = Watched(bench.api, [bench.namespace])
    for kind in blind._kinds.values():
        kind.listed.set()
    stores = Stores(bench.api, StoreRules(local=True))
    nodes = Nodes(bench.api)
    cluster = Cluster(api=bench.api, watched=blind, nodes=nodes, clock=time.time, stores=stores, driver_timeout=0.5)
    other = Controller(cluster, OperatorMetrics())
    end = time.monotonic() + 3
    while time.monotonic() < end:
        other.tick(job.get())
        time.sleep(0.05)
    assert job.status["generation"] == 1, "before it takes the driver for lost it asks the API server"
    assert len(kubelet.alive(bench.namespace)) == 1
    assert not kubelet.overlaps


def test_a_job_is_quiet_until_something_is_due_or_changes(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply(checkpoint={"interval": "1h"})
    rounds.until(job, running())
    controller = rounds.controller

    def settled() -> JsonObject:
        body = job.get()
        for _ in range(20):
            controller.tick(body)
            if controller.quiet(body := job.get()):
                return body
        raise AssertionError("it is never quiet")

    body = settled()
    rounds.ahead += 0.4
    assert not controller.quiet(body), "the driver was not asked for a heartbeat"
    body = settled()
    job.annotate("by", "somebody")
    assert not controller.quiet(job.get()), "the job has changed"
    body = settled()
    bench.delete("services", "job-driver")
    wait_until(lambda: not controller.quiet(body), seconds=0.25)
    body = settled()
    rounds.ahead += 3600
    assert not controller.quiet(body), "a checkpoint is due"
    assert rounds.metrics.registry.get_sample_value("epochal_ticks_total", {"result": "quiet"})
