"""Two operators, of which one has stood still and goes on with what it saw: whatever it does then must do no harm."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from epochal.control.lifecycle import EndDriver, StartDriver
from epochal.control.permit import Permit
from epochal.control.reconcile import Reconciler
from epochal.protocol.decision import AbortEpoch, EndCleanup, SendBarrier, StartCleanup
from epochal_operator.api import Api, ConflictError, JsonObject
from epochal_operator.controller import Controller
from epochal_operator.kubernetes.backend import Cluster
from epochal_operator.kubernetes.nodes import Nodes
from epochal_operator.kubernetes.watch_cache import Watched
from epochal_operator.names import PLURAL
from epochal_operator.reporting.metrics import OperatorMetrics
from tests.operator.fake_kubelet import FakeKubelet, wait_until
from tests.operator.harness import Bench, JobHandle, Rounds


class WitnessedApi(Api):
    """Writes down what it changed. A status that was written as it stood before changes nothing."""

    def __init__(self, api: Api) -> None:
        super().__init__(api._client)
        self.changed: list[str] = []

    def _send(self, method: str, kind: str, where: str, **more: Any) -> Any:
        answer = super()._send(method, kind, where, **more)
        if method != "GET":
            self.changed.append(f"{method} {where.rsplit('/', 1)[-1]}")
        return answer


@dataclass
class Other:
    """The second operator, with a view of its own."""

    api: WitnessedApi
    controller: Controller
    bodies: list[JsonObject] = field(default_factory=list)


@pytest.fixture
def other(bench: Bench, rounds: Rounds) -> Iterator[Other]:
    api = WitnessedApi(bench.api)
    watched = Watched(api, [bench.namespace])
    watched.start()
    cluster = Cluster(
        api=api,
        watched=watched,
        nodes=Nodes(api),
        clock=rounds.controller._cluster.clock,
        stores=rounds.controller._cluster.stores,
        driver_timeout=0.5,
    )
    yield Other(api, Controller(cluster, OperatorMetrics(), deletion_timeout=100.0))
    watched.stop()


def follow(job: JobHandle, rounds: Rounds, other: Other, what: Callable[[JsonObject], object]) -> None:
    """Rounds of the first operator; the other one keeps what it could have seen of the job."""

    def seen(status: JsonObject) -> object:
        other.bodies.append(job.get())
        return what(status)

    rounds.until(job, seen)


def test_an_operator_with_an_old_view_changes_nothing(
    bench: Bench, rounds: Rounds, other: Other, kubelet: FakeKubelet
) -> None:
    """With each state that the job was ever in, beside pods that are there now."""
    job = bench.apply(checkpoint={"retention": {"keep": 1, "every": 1}})
    follow(job, rounds, other, lambda status: (status.get("epoch") or 0) >= 3)
    kubelet.crash(bench.namespace, "job-driver-1")
    follow(job, rounds, other, lambda status: status["generation"] == 2 and status["phase"] == "Running")
    job.patch(state="Suspended")
    follow(job, rounds, other, lambda status: status["phase"] == "Stopped")
    job.patch(state="Running")
    follow(job, rounds, other, lambda status: status["generation"] == 3 and status["phase"] == "Running")
    now = job.get()["metadata"]["resourceVersion"]
    old = {body["metadata"]["resourceVersion"]: body for body in other.bodies}
    old.pop(now, None)
    assert len(old) > 15
    [driver] = kubelet.alive(bench.namespace)
    for body in old.values():
        other.controller._jobs.clear()  # each time as an operator that has seen this last
        other.controller.tick(body)
    assert other.api.changed == []
    assert kubelet.alive(bench.namespace) == [driver]
    rounds.until(job, lambda status: status["epoch"] >= 5)
    assert job.status["generation"] == 3
    job.assert_exactly_once()


def paused(monkeypatch: pytest.MonkeyPatch, action: type, meanwhile: Callable[[], object]) -> list[Any]:
    """Let the next round that does ``action`` stand still right before it, until ``meanwhile`` is over."""
    act = Reconciler._act
    done: list[Any] = []

    def later(self: Reconciler, permit: Permit, step: Any) -> None:
        if isinstance(step.action, action) and not done:
            done.append(step)
            meanwhile()
        act(self, permit, step)

    monkeypatch.setattr(Reconciler, "_act", later)
    return done


def until_done(other: Other, job: JobHandle, done: list[Any]) -> None:
    def tried() -> bool:
        other.controller.tick(job.get())
        return bool(done)

    wait_until(tried)


def test_a_start_that_comes_too_late(
    bench: Bench, rounds: Rounds, other: Other, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = bench.apply()
    done = paused(monkeypatch, StartDriver, lambda: rounds.until(job, lambda status: status["epoch"] >= 1))
    until_done(other, job, done)
    assert bench.names("pods") == ["job-driver-1"]
    assert "POST pods" not in other.api.changed
    assert not kubelet.overlaps
    job.assert_exactly_once()


def test_an_end_that_comes_too_late_spares_the_next_driver(
    bench: Bench, rounds: Rounds, other: Other, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the issue is about: the driver that another operator has just started was ended."""
    job = bench.apply(script={"silent": 2, "generation": 1}, driver={"unreachableTimeout": "1s"})
    rounds.until(job, lambda status: (status.get("epoch") or 0) >= 1)

    def meanwhile() -> None:
        rounds.until(job, lambda status: status["generation"] == 2 and status["phase"] == "Running")

    done = paused(monkeypatch, EndDriver, meanwhile)
    until_done(other, job, done)
    [driver] = kubelet.alive(bench.namespace)
    assert driver.name == "job-driver-2"
    epoch = job.status["epoch"]
    rounds.until(job, lambda status: status["epoch"] >= epoch + 2)
    assert job.status["generation"] == 2
    job.assert_exactly_once()


@pytest.mark.parametrize("action", [SendBarrier, StartCleanup, EndCleanup, AbortEpoch])
def test_a_checkpoint_or_cleanup_of_long_ago(
    action: type, bench: Bench, rounds: Rounds, other: Other, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epoch is over, its cleanup has gone, and the driver is another."""
    script = {"hang": "barrier@3", "generation": 1} if action is AbortEpoch else {}
    timeout = "500ms" if action is AbortEpoch else "30s"
    checkpoint = {"timeout": timeout, "retention": {"keep": 1, "every": 1}}
    job = bench.apply(script=script, checkpoint=checkpoint)

    def meanwhile() -> None:
        epoch = job.status["epoch"]
        rounds.until(job, lambda status: status["epoch"] >= epoch + 2)
        for container in kubelet.alive(bench.namespace):
            kubelet.crash(bench.namespace, container.name)
        rounds.until(job, lambda status: status["generation"] == 2 and status["phase"] == "Running")

    rounds.until(job, lambda status: (status.get("epoch") or 0) >= 2)
    done = paused(monkeypatch, action, meanwhile)
    until_done(other, job, done)
    epoch = job.status["epoch"]
    rounds.ahead += 20
    rounds.until(job, lambda status: status["epoch"] >= epoch + 3)
    assert job.status["generation"] == 2
    assert not kubelet.overlaps
    given = [epoch for owner, epoch, _ in kubelet.barriers if owner == f"{bench.namespace}/job"]
    assert len(given) == len(set(given)), "a number was given out twice"
    job.assert_exactly_once()


def test_a_job_of_the_same_name_is_not_what_was_to_be_written(bench: Bench, rounds: Rounds, other: Other) -> None:
    """Deleted and applied again while the operator stood still."""
    job = bench.apply()
    other.bodies.append(job.get())
    bench.delete(PLURAL, "job")
    job = bench.apply()
    other.controller.tick(other.bodies[0])
    assert other.api.changed == []
    assert not job.status


def test_what_is_deleted_or_replaced_is_what_was_seen(bench: Bench) -> None:
    """The client has no other way."""
    api = bench.api
    made = api.create("configmaps", bench.namespace, {"metadata": {"name": "a"}, "data": {"a": "1"}})
    api.delete("configmaps", bench.namespace, "a", uid=made["metadata"]["uid"])
    again = api.create("configmaps", bench.namespace, {"metadata": {"name": "a"}, "data": {"a": "2"}})
    api.delete("configmaps", bench.namespace, "a", uid=made["metadata"]["uid"])
    assert api.get("configmaps", bench.namespace, "a")["data"] == {"a": "2"}
    with pytest.raises(TypeError):
        api.delete("configmaps", bench.namespace, "a")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="resourceVersion"):
        api.replace("configmaps", bench.namespace, "a", {"kind": "ConfigMap", "metadata": {"name": "a"}})
    stale = {**again, "metadata": {**again["metadata"], "resourceVersion": "1"}}
    with pytest.raises(ConflictError):
        api.replace("configmaps", bench.namespace, "a", stale)
