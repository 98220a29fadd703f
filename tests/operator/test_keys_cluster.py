"""A generation's Secret and ConfigMap that somebody has deleted, spoilt or left behind, against a real API server."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest

from epochal.control.events import EventReason
from epochal.control.refusal import ResourceRefusedError
from epochal.protocol.control import DriverConfig, RestoreConfig
from epochal.protocol.epochs import Epoch, Generation
from epochal_operator.api import JsonObject
from epochal_operator.controller import Controller
from epochal_operator.kubernetes.dependents import Belongings
from epochal_operator.kubernetes.manifests import resources
from epochal_operator.names import GENERATION_LABEL, PLURAL, RESTART_ANNOTATION
from tests.operator.fake_kubelet import wait_until
from tests.operator.harness import Bench, Rounds
from tests.operator.test_controller import keys_of_driver, running
from tests.operator.test_driver_tls import LINE_BREAK, NO_CERTIFICATE
from tests.operator.test_refused_cluster import quota
from tests.operator.test_resources import SPEC


def restarted(rounds: Rounds, **changes: object) -> None:
    """A new operator, which remembers nothing."""
    cluster = replace(rounds.controller._cluster, **changes)  # type: ignore[arg-type]
    rounds.controller = Controller(cluster, rounds.metrics, deletion_timeout=100.0)


def made_anew(bench: Bench, secret: JsonObject, data: dict[str, str]) -> None:
    """As a person would who deletes it and creates it again."""
    name, owners = secret["metadata"]["name"], secret["metadata"]["ownerReferences"]
    bench.delete("secrets", name)
    metadata = {"name": name, "ownerReferences": owners}
    bench.api.create(
        "secrets", bench.namespace, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    )


@pytest.mark.parametrize(
    ("data", "why"), [({}, "no token"), (NO_CERTIFICATE, "no certificate"), (LINE_BREAK, "line breaks")]
)
def test_a_secret_that_somebody_has_spoilt_is_told_and_read_again_once_it_is_mended(
    bench: Bench, rounds: Rounds, data: dict[str, str], why: str
) -> None:
    job = bench.apply(driver={"unreachableTimeout": "1h"})
    rounds.until(job, running(1))
    good = keys_of_driver(bench, "job-driver-1")
    made_anew(bench, good, data)
    restarted(rounds)
    name = good["metadata"]["name"]
    told = rounds.until(job, lambda _: job.condition("Ready")["reason"] == "DriverUnreachable")
    assert f"the driver does not answer: Secret {name} holds" in job.condition("Ready")["message"]
    assert why in job.condition("Ready")["message"]
    assert EventReason.FAILED_CREATE in told, "the executors need it, too"
    epoch = job.status["epoch"]
    made_anew(bench, good, good["data"])
    rounds.until(job, running(epoch + 2))
    assert job.status["generation"] == 1
    job.assert_exactly_once()


def test_a_driver_whose_secret_stays_spoilt_is_replaced(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply(driver={"unreachableTimeout": "20s"})
    rounds.until(job, running(1))
    made_anew(bench, keys_of_driver(bench, "job-driver-1"), {})
    restarted(rounds)
    rounds.until(job, lambda status: status["record"]["silent_since"])
    rounds.ahead += 21
    rounds.until(job, lambda status: status["generation"] == 2 and status["phase"] == "Running")
    assert "holds no token" in job.status["restarts"]["message"]
    job.assert_exactly_once()


def test_a_driver_without_tls_is_told_and_not_replaced_for_ever_if_tls_is_required(
    bench: Bench, rounds: Rounds
) -> None:
    restarted(rounds, require_tls=True)
    job = bench.apply(image="old:1", driver={"startTimeout": "2s"})
    told = rounds.until(job, lambda status: "release before TLS" in status.get("message", ""))
    assert EventReason.DRIVER_NOT_STARTING in told
    rounds.ahead += 1000
    again = [event.reason for _ in range(10) for event in rounds.controller.tick(job.get())]
    assert again == []
    assert (job.status["generation"], job.status["restarts"]["total"]) == (1, 0)
    job.patch(image="epochal:test")
    rounds.until(job, running(1))
    assert job.status["generation"] == 2
    wait_until(lambda: bench.names("secrets") == [keys_of_driver(bench, "job-driver-2")["metadata"]["name"]])


@pytest.mark.parametrize("hard", [{"secrets": "1"}, {"configmaps": "2"}], ids=["secrets", "configmaps"])
def test_a_quota_that_has_room_for_one_generation_lets_the_next_one_start(
    bench: Bench, rounds: Rounds, hard: dict[str, str]
) -> None:
    """Beside the ConfigMap that every namespace has."""
    wait_until(lambda: bench.names("configmaps"))
    job = bench.apply()
    rounds.until(job, running(1))
    with quota(bench, **hard):
        job.annotate(RESTART_ANNOTATION, "1")
        rounds.until(job, lambda status: status["generation"] == 2 and status["phase"] == "Running")
    job.assert_exactly_once()


def test_a_configuration_that_is_made_again_says_what_the_driver_was_started_with(bench: Bench, rounds: Rounds) -> None:
    """And not what a new one would be told: a wish to go back would be carried out twice, and the executors' template
    would name a Secret that is nowhere."""
    job = bench.apply()
    rounds.until(job, running(3))
    before = bench.api.get("configmaps", bench.namespace, "job-driver-1")
    job.patch(restore={"fromEpoch": 1})
    restarted(rounds)
    rounds.until(job, running(4))
    bench.delete("configmaps", "job-driver-1")
    assert EventReason.REPAIRED in rounds.until(job, lambda _: "job-driver-1" in bench.names("configmaps"))
    again = bench.api.get("configmaps", bench.namespace, "job-driver-1")
    assert again["data"] == before["data"]
    named = json.loads(again["data"]["executor-template.json"])["spec"]["containers"][0]["env"][-1]
    name = named["valueFrom"]["secretKeyRef"]["name"]

    def is_there(_: JsonObject) -> bool:
        secrets = [one for one in bench.objects("secrets") if one["metadata"]["name"] == name]
        owners = [one["uid"] for secret in secrets for one in secret["metadata"]["ownerReferences"]]
        return owners == [again["metadata"]["uid"]]

    rounds.until(job, is_there)
    assert job.status["generation"] == 1


def test_a_configuration_is_not_made_of_a_spec_that_was_not_accepted(bench: Bench, rounds: Rounds) -> None:
    job = bench.apply()
    rounds.until(job, running(1))
    before = bench.api.get("configmaps", bench.namespace, "job-driver-1")
    job.patch(serviceAccount="nobody")
    rounds.until(job, lambda _: job.condition("Stalled")["status"] == "True")
    bench.delete("configmaps", "job-driver-1")
    epoch = job.status["epoch"]
    rounds.until(job, running(epoch + 2))
    assert "job-driver-1" not in bench.names("configmaps")
    job.patch(serviceAccount=None)
    rounds.until(job, lambda _: "job-driver-1" in bench.names("configmaps"))
    assert bench.api.get("configmaps", bench.namespace, "job-driver-1")["data"] == before["data"]
    assert job.status["generation"] == 1


def of(bench: Bench, job: str) -> JsonObject:
    bench.api.create(PLURAL, bench.namespace, bench.manifest(job))
    return resources.owner(bench.api.get(PLURAL, bench.namespace, job))


def belongings(rounds: Rounds) -> Belongings:
    cluster = rounds.controller._cluster
    return Belongings(cluster.api, cluster.watched, cluster.clock)


def test_what_a_deleted_job_of_the_same_name_has_left_is_not_taken_over(bench: Bench, rounds: Rounds) -> None:
    """It says the same, and Kubernetes deletes it at any moment: the owner is another."""
    spec, first = replace(SPEC, namespace=bench.namespace, name="job"), Generation(1)
    config: DriverConfig = resources.driver_config(spec, first, RestoreConfig(known=Epoch(0)))
    name, mine = resources.name_of_keys(spec, config), belongings(rounds)
    left = mine.put_config(spec, of(bench, "deleted"), config, name)
    mine.ensure_keys(spec, first, left, name)
    owner = of(bench, "job")
    made = mine.put_config(spec, owner, config, name)
    assert made["metadata"]["uid"] != left["metadata"]["uid"]
    assert made["metadata"]["ownerReferences"] == [owner]
    assert mine.put_config(spec, owner, config, name)["metadata"]["uid"] == made["metadata"]["uid"], "one's own is kept"

    def with_the_new_one() -> bool:
        with suppress(ResourceRefusedError):  # until Kubernetes has deleted the other one
            mine.ensure_keys(spec, first, made, name)
        [secret] = bench.objects("secrets") or [{"metadata": {"ownerReferences": [{"uid": ""}]}}]
        return bool(secret["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"])

    wait_until(with_the_new_one)


def test_a_secret_that_belongs_to_another_configuration_is_not_used(bench: Bench, rounds: Rounds) -> None:
    wait_until(lambda: bench.names("configmaps"))
    [other] = bench.objects("configmaps")
    spec, first = replace(SPEC, namespace=bench.namespace, name="job"), Generation(1)
    config, mine = resources.driver_config(spec, first, RestoreConfig()), belongings(rounds)
    other["metadata"]["labels"] = {GENERATION_LABEL: "1"}
    secret = resources.keys_secret(spec, other, "keys", {})
    bench.api.create("secrets", bench.namespace, secret)
    config_map = mine.put_config(spec, of(bench, "job"), config, "keys")
    with pytest.raises(ResourceRefusedError, match="Secret keys belongs to a ConfigMap that is gone"):
        mine.ensure_keys(spec, first, config_map, "keys")
