"""The loop against a real API server with drivers that are slow, silent, wrong or dead."""

import pytest

from tests.operator.fake_kubelet import FakeKubelet, wait_until
from tests.operator.harness import Bench

pytestmark = pytest.mark.usefixtures("operator")


def test_a_slow_checkpoint_is_followed_and_shown(bench: Bench) -> None:
    job = bench.apply(script={"checkpoint": 1.0})
    status = job.wait(lambda status: status.get("inFlight"))
    assert status["inFlight"]["epoch"] == 1
    assert job.condition("Checkpointing")["reason"] == "CheckpointInProgress"
    done = job.wait_epoch(1)
    assert done["lastCheckpoint"]["epoch"] == 1
    assert "inFlight" not in done
    job.assert_exactly_once()


def test_a_failed_checkpoint_is_told_and_the_job_goes_on(bench: Bench) -> None:
    job = bench.apply(script={"fail": 2})
    status = job.wait_epoch(3)
    failed = next(entry for entry in status["history"] if entry["epoch"] == 2)
    assert failed["state"] == "Failed"
    assert "told to fail" in failed["message"]
    assert status["generation"] == 1
    wait_until(lambda: any(reason == "CheckpointFailed" for reason, _ in bench.events()))
    job.assert_exactly_once()


def test_too_many_failed_checkpoints_replace_the_driver(bench: Bench) -> None:
    job = bench.apply(script={"fail": 2, "generation": 1}, checkpoint={"tolerableFailures": 0})
    status = job.wait_epoch(4)
    assert status["generation"] == 2
    assert status["restarts"]["total"] == 1
    job.assert_exactly_once()


def test_a_checkpoint_that_hangs_is_aborted(bench: Bench) -> None:
    job = bench.apply(script={"hang": "barrier@2"}, checkpoint={"timeout": "1s"})
    status = job.wait_epoch(3)
    assert status["generation"] == 1
    assert [entry["state"] for entry in status["history"] if entry["epoch"] == 2] == ["Failed"]
    wait_until(lambda: any(reason == "CheckpointTimedOut" for reason, _ in bench.events()))
    job.assert_exactly_once()


def test_a_silent_driver_is_replaced(bench: Bench) -> None:
    job = bench.apply(script={"silent": 2, "generation": 1}, driver={"unreachableTimeout": "1s"})
    job.wait_condition("Ready", "Unknown", "DriverUnreachable")
    status = job.wait(lambda status: status["generation"] == 2 and status["epoch"] >= 3)
    assert "has not answered" in status["restarts"]["message"]
    job.assert_exactly_once()


@pytest.mark.parametrize("point", ["start", "barrier@2", "published@2", "committed@2"])
def test_a_dead_driver_is_followed_by_a_new_generation(bench: Bench, point: str) -> None:
    job = bench.apply(script={"die": point, "generation": 1})
    status = job.wait(lambda status: status["generation"] == 2 and status["epoch"] >= 4)
    assert status["restarts"] == {"inARow": 1, "total": 1, "message": status["restarts"]["message"]}
    assert "137" in status["restarts"]["message"]
    job.assert_exactly_once()


def test_a_driver_that_keeps_failing_is_given_up_and_an_edit_gives_it_another_chance(bench: Bench) -> None:
    policy = {"backoff": "100ms", "maxBackoff": "100ms", "maxRestarts": 2}
    job = bench.apply(script={"exit": 1}, restartPolicy=policy)
    status = job.wait_phase("Failed")
    assert status["generation"] == 3
    assert "given up after 2 restarts" in status["message"]
    assert job.condition("Stalled")["status"] == "True"
    job.patch(pipeline={"parameters": {"exit": None}})
    job.wait_epoch(1)
    assert job.condition("Stalled")["status"] == "False"


def test_what_no_restart_mends_fails_at_once_with_the_drivers_words(bench: Bench) -> None:
    job = bench.apply(script={"exit": 2})
    status = job.wait_phase("Failed")
    assert (status["generation"], status["message"]) == (1, "told to exit")


def test_a_pod_that_waits_says_for_what_and_a_new_image_is_taken_at_once(bench: Bench) -> None:
    job = bench.apply(image="missing:1")
    job.wait(lambda status: "ImagePullBackOff" in status["message"])
    wait_until(lambda: any(reason == "DriverNotStarting" for reason, _ in bench.events()))
    job.patch(image="too-big:1")
    job.wait(lambda status: "Insufficient memory" in status["message"])
    job.patch(image="epochal:test")
    job.wait_epoch(1)


def test_a_job_whose_driver_cannot_start_stops_at_once(bench: Bench) -> None:
    job = bench.apply(image="missing:1")
    job.wait(lambda status: "ImagePullBackOff" in status["message"])
    job.patch(state="Suspended")
    job.wait_phase("Stopped")
    job.delete()
    job.wait_gone()


def test_a_deleted_driver_pod_is_replaced(bench: Bench) -> None:
    job = bench.apply()
    job.wait_epoch(2)
    bench.delete("pods", "job-driver-1")
    status = job.wait(lambda status: status["generation"] == 2 and status["phase"] == "Running")
    job.wait_epoch(status["epoch"] + 2)
    job.assert_exactly_once()


def test_two_generations_never_run_at_once(bench: Bench, kubelet: FakeKubelet) -> None:
    job = bench.apply()
    job.wait_epoch(1)
    for generation in (1, 2):
        kubelet.crash(bench.namespace, f"job-driver-{generation}")
        job.wait_generation(generation + 1)
        job.wait_phase("Running")
    assert [container.name for container in kubelet.alive(bench.namespace)] == ["job-driver-3"]
    assert not kubelet.overlaps
    job.assert_exactly_once()
    # Pods of ended drivers stay for their logs, but not all of them; configurations go.
    configs = [name for name in bench.names("configmaps") if name.startswith("job-")]
    assert configs == ["job-driver-3"]
