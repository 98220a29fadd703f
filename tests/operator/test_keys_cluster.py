"""A generation's Secret and ConfigMap that somebody has deleted, spoilt or left behind, against a real API server."""

from dataclasses import replace

import pytest

from epochal.control.events import EventReason
from epochal_operator.api import JsonObject
from epochal_operator.controller import Controller
from tests.operator.fake_kubelet import wait_until
from tests.operator.harness import Bench, Rounds
from tests.operator.test_controller import keys_of_driver, running
from tests.operator.test_driver_tls import LINE_BREAK, NO_CERTIFICATE


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
