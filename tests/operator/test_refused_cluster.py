"""An API server that refuses what a job needs, by each of the ways it has: the words are its own."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration

from epochal_operator.api import Api, ApiError, JsonObject, path
from epochal_operator.controller import Controller
from epochal_operator.names import ROLE_LABEL, Role
from epochal_operator.reporting.metrics import OperatorMetrics
from epochal_operator.reporting.status import load_record
from tests.operator.fake_kubelet import wait_until
from tests.operator.harness import Bench, JobHandle, Rounds, patch

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
IN_VAIN = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "a"}]}}


def probe(bench: Bench, role: str = Role.DRIVER) -> str:
    """What the API server says to a pod now; empty if it would take it."""
    metadata = {"name": "probe", "labels": {ROLE_LABEL: role}}
    try:
        bench.api.create_dry("pods", bench.namespace, IN_VAIN | {"metadata": metadata})
    except ApiError as error:
        return error.said
    return ""


@contextmanager
def made(bench: Bench, *objects: tuple[str, JsonObject]) -> Iterator[None]:
    """Objects that are there while the block runs: each with the path of its collection."""
    for where, body in objects:
        bench.api._send("POST", "pods", where, body=body)
    yield
    for where, body in reversed(objects):
        bench.api._send("DELETE", "pods", f"{where}/{body['metadata']['name']}")


@contextmanager
def quota(bench: Bench, **hard: str) -> Iterator[None]:
    where = f"/api/v1/namespaces/{bench.namespace}/resourcequotas"
    limits = {name.replace("_", "/", 1).replace("_", "."): value for name, value in hard.items()}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": limits}}
    with made(bench, (where, body)):
        # It counts once a controller has seen it.
        wait_until(lambda: bench.api._json("GET", "pods", f"{where}/none").get("status", {}).get("used"))
        yield


@contextmanager
def pod_security(bench: Bench) -> Iterator[None]:
    def enforce(level: str | None) -> None:
        labels = {"pod-security.kubernetes.io/enforce": level}
        patch(bench.api, f"/api/v1/namespaces/{bench.namespace}", {"metadata": {"labels": labels}})

    enforce("restricted")
    wait_until(lambda: probe(bench))
    yield
    enforce(None)


@contextmanager
def policy(bench: Bench, role: str = Role.DRIVER) -> Iterator[None]:
    name = f"{bench.namespace}-{role}"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    refuses = f"object.metadata.labels['{ROLE_LABEL}'] != '{role}'"
    spec: JsonObject = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": refuses, "message": "pods of this team must be signed"}],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    version = "admissionregistration.k8s.io/v1"
    kinds = ("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding)
    bodies = [{"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": it} for kind, it in kinds]
    collections = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"
    with made(bench, *zip(collections, bodies, strict=True)):
        wait_until(lambda: probe(bench, role=role))
        yield


@contextmanager
def webhook_down(bench: Bench) -> Iterator[None]:
    hook = {
        "name": "gone.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": bench.namespace},
        "webhooks": [hook],
    }
    with made(bench, (f"{ADMISSION}/validatingwebhookconfigurations", body)):
        wait_until(lambda: probe(bench))
        yield


class Front:
    """A plain server before the API server that passes everything on, but has no time for new pods."""

    def __init__(self, api: Api) -> None:
        front, pool, upstream = self, api._client.rest_client.pool_manager, api.configuration.host
        self.busy = True

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
                if front.busy and self.command == "POST" and self.path.endswith("/pods"):
                    self.finish_with(429, json.dumps({"kind": "Status", "message": "too many requests"}).encode())
                    return
                headers = {name: self.headers[name] for name in ("Content-Type", "Accept") if self.headers[name]}
                answer = pool.request(self.command, upstream + self.path, body=data, headers=headers)
                self.finish_with(answer.status, answer.data)

            def finish_with(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Retry-After", "1")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the standard library calls them so

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.api = Api(ApiClient(Configuration(host=f"http://127.0.0.1:{self._server.server_port}")))

    def __enter__(self) -> "Front":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def events(bench: Bench, job: JobHandle, rounds: Rounds, *, tries: int) -> list[str]:
    """Rounds until so many tries were refused, without waiting for the pauses between them."""
    told: list[str] = []
    end = time.monotonic() + 60
    while (job.status.get("refused") or {}).get("tries", 0) < tries:
        told += [event.reason for event in rounds.controller.tick(job.get())]
        rounds.ahead += 0.3
        assert time.monotonic() < end, job.status
    return told


def assert_waits_and_goes_on(bench: Bench, job: JobHandle, rounds: Rounds, told: list[str], *words: str) -> None:
    """After four tries that were refused; what refuses them is still there."""
    status = job.status
    assert status["generation"] == 1
    assert status["restarts"] == {"inARow": 0, "total": 0}
    assert told.count("FailedCreate") == 1
    stalled = job.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "FailedCreate")
    for word in words:
        assert word in stalled["message"]
    assert stalled["message"] == status["refused"]["message"]
    assert status["message"] == f"{stalled['message']}; next try at {status['refused']['notBefore']}"
    assert len([name for name in bench.names("configmaps") if name.startswith("job-")]) <= 1
    assert not bench.names("pods")


def assert_runs(job: JobHandle, rounds: Rounds) -> None:
    rounds.ahead += 10
    rounds.until(job, lambda status: status["phase"] == "Running" and status["epoch"] >= 1)
    assert job.status["generation"] == 1, "the same generation"
    assert job.condition("Stalled")["status"] == "False"
    assert job.status["refused"] == {"tries": 0}
    job.assert_exactly_once()


@pytest.mark.parametrize(
    ("hard", "word"),
    [
        ({"pods": "0"}, "pods=0"),
        ({"services": "0"}, "services=0"),
        ({"secrets": "0"}, "secrets=0"),
        ({"configmaps": "1"}, "configmaps=1"),
    ],
    ids=["pods", "services", "secrets", "configmaps"],
)
def test_a_quota(bench: Bench, rounds: Rounds, hard: dict[str, str], word: str) -> None:
    wait_until(lambda: bench.names("configmaps"))  # the one that every namespace has
    job = bench.apply()
    with quota(bench, **hard):
        told = events(bench, job, rounds, tries=4)
        assert_waits_and_goes_on(bench, job, rounds, told, "is forbidden: exceeded quota", word)
    assert_runs(job, rounds)


def test_pod_security(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply(driver={"podTemplate": {"spec": {"hostNetwork": True}}})
    with pod_security(bench):
        told = events(bench, job, rounds, tries=4)
        assert_waits_and_goes_on(bench, job, rounds, told, 'violates PodSecurity "restricted', "hostNetwork=true")
        job.patch(driver={"podTemplate": None})
        rounds.until(job, lambda status: status["phase"] == "Running")
        assert job.status["generation"] == 2, "an edit is tried at once, with a configuration of its own"
        assert job.condition("Stalled")["status"] == "False"


def test_a_policy(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    with policy(bench):
        told = events(bench, job, rounds, tries=4)
        assert_waits_and_goes_on(bench, job, rounds, told, "denied request: pods of this team must be signed")
    wait_until(lambda: not probe(bench))
    assert_runs(job, rounds)


def test_a_webhook_that_does_not_answer(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    with webhook_down(bench):
        told = events(bench, job, rounds, tries=4)
        assert_waits_and_goes_on(bench, job, rounds, told, "failed calling webhook", "gone.example.com")
    wait_until(lambda: not probe(bench))
    assert_runs(job, rounds)


def test_an_api_server_that_has_no_time(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    with Front(bench.api) as front:
        rounds.controller._cluster = replace(rounds.controller._cluster, api=front.api)
        told = events(bench, job, rounds, tries=4)
        assert_waits_and_goes_on(bench, job, rounds, told, "too many requests")
        front.busy = False
        assert_runs(job, rounds)


def test_somebody_elses_object_of_that_name(bench: Bench, rounds: Rounds) -> None:
    bench.api.create("pods", bench.namespace, IN_VAIN | {"metadata": {"name": "job-driver-1"}})
    job = bench.apply()
    told = events(bench, job, rounds, tries=3)
    assert told.count("FailedCreate") == 1
    assert "'job-driver-1' exists and does not belong to this job" in job.condition("Stalled")["message"]
    bench.delete("pods", "job-driver-1", grace=0)
    assert_runs(job, rounds)


def test_a_restart_of_the_operator_goes_on_with_the_same_generation(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    with quota(bench, pods="0"):
        events(bench, job, rounds, tries=2)
        rounds.controller = Controller(rounds.controller._cluster, OperatorMetrics())
        told = events(bench, job, rounds, tries=4)
        assert "FailedCreate" not in told, "it was told before"
        assert job.status["generation"] == 1
    assert_runs(job, rounds)


def test_what_a_lost_record_left_behind_is_not_what_a_driver_is_told(bench: Bench, rounds: Rounds) -> None:
    """The configuration of a try that was refused stays; the next one may want something else."""
    job = bench.apply()
    with quota(bench, pods="0"):
        events(bench, job, rounds, tries=1)
        status = f"{path('streamingjobs', bench.namespace, 'job')}/status"
        patch(bench.api, status, {"status": {"record": None, "refused": None}})
        job.patch(restore={"allowEmptyStart": True})
        events(bench, job, rounds, tries=1)
        assert job.status["generation"] == 1
        config = bench.api.get("configmaps", bench.namespace, "job-driver-1")
        assert '"allow_empty": true' in str(config["data"])
    rounds.ahead += 10
    rounds.until(job, lambda status: status["phase"] == "Running")


CLEANS = {"retention": {"keep": 1, "every": 1}}


def test_a_cleanup_that_is_refused_is_told_once_and_checkpoints_go_on(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply(checkpoint=CLEANS)
    with quota(bench, count_jobs_batch="0"):
        told = rounds.until(job, lambda status: (status.get("cleanup") or {}).get("failures", 0) >= 1)
        rounds.ahead += 15
        told += rounds.until(job, lambda status: status["cleanup"]["failures"] >= 2)
        assert told.count("CleanupFailed") == 1
        condition = job.condition("CleanupRunning")
        assert (condition["status"], condition["reason"]) == ("False", "FailedCreate")
        assert "exceeded quota: none" in condition["message"]
        assert job.status["cleanup"]["notBefore"]
        epoch = job.status["epoch"]
        rounds.until(job, lambda status: status["epoch"] >= epoch + 2)
    rounds.ahead += 700
    rounds.until(job, lambda status: status["cleanup"]["failures"] == 0)


def test_a_cleanup_whose_pod_is_refused_does_not_hold_up_checkpoints(bench: Bench, rounds: Rounds) -> None:
    """The Job is there, its controller tries again and again, and says so in an event of the Job only."""
    job = bench.apply(checkpoint=CLEANS)
    with policy(bench, Role.CLEANUP):
        rounds.until(job, lambda _: bench.names("jobs"))
        rounds.ahead += 25
        told = rounds.until(job, lambda status: status["cleanup"]["failures"] >= 1)
        assert told.count("CleanupFailed") == 1
        assert "pods of this team must be signed" in job.condition("CleanupRunning")["message"]
        epoch = job.status["epoch"]
        rounds.until(job, lambda status: status["epoch"] >= epoch + 2)
        assert not bench.names("jobs")


def test_what_a_running_driver_needs_is_refused(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    rounds.until(job, lambda status: status.get("epoch", 0) >= 1)
    with quota(bench, services="0"):
        bench.delete("services", "job-driver")
        epoch = job.status["epoch"]
        told = rounds.until(job, lambda status: status["epoch"] >= epoch + 4)
        assert told.count("FailedCreate") == 1
    rounds.ahead += 10
    assert "Repaired" in rounds.until(job, lambda _: bench.names("services"))
    assert job.status["generation"] == 1
    record = load_record(job.status)
    assert record is not None
    assert record.restarts.total == 0
