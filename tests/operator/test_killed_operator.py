"""The operator killed with -9 right before and right after every write that it makes, and started again: no epoch is
doubled, none is lost, nothing is orphaned."""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from cluster.control_plane import ControlPlane
from epochal.protocol.resolve import list_epochs
from tests.operator.fake_kubelet import FakeKubelet, wait_until
from tests.operator.harness import Bench, JobHandle
from tests.operator.killed_operator import BARRIER, Fault, Zygote

STATUS = "PUT streamingjobs"
ALWAYS = {"backoff": "100ms", "maxBackoff": "100ms", "maxRestarts": 1000}


@pytest.fixture(scope="module")
def zygote(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    zygote = Zygote(control_plane.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log")
    yield zygote
    zygote.close()


def both(*writes: str, number: int = 1) -> list[Fault]:
    return [Fault(when, write, number) for write in writes for when in ("before", "after")]


def die_at(zygote: Zygote, bench: Bench, faults: list[Fault]) -> None:
    """One operator after the other, each until it has killed itself."""
    for fault in faults:
        pid = zygote.start(bench.namespace, fault)
        assert zygote.wait(pid, 40) == signal.SIGKILL, f"never got to die {fault}: {zygote._log.read_text()[-3000:]}"


def assert_sound(job: JobHandle, kubelet: FakeKubelet) -> None:
    name = f"{job.bench.namespace}/{job.name}"
    epochs = Counter(epoch for owner, epoch, _ in kubelet.barriers if owner == name)
    assert all(count == 1 for count in epochs.values()), f"a number was given out twice: {epochs}"
    assert not kubelet.overlaps
    job.assert_exactly_once()


def assert_nothing_left(bench: Bench, kubelet: FakeKubelet) -> None:
    assert not kubelet.alive(bench.namespace)
    for kind in ("pods", "services", "secrets", "jobs"):
        wait_until(lambda kind=kind: not bench.names(kind), seconds=60)
    wait_until(lambda: bench.names("configmaps") == ["kube-root-ca.crt"], seconds=60)


def test_killed_around_every_write_of_a_jobs_life(bench: Bench, kubelet: FakeKubelet, zygote: Zygote) -> None:
    name = "life"
    job = bench.apply(name, checkpoint={"retention": {"keep": 2, "every": 1}}, restartPolicy=ALWAYS)
    # Started, again and again.
    die_at(zygote, bench, both(STATUS, "POST services", "POST configmaps", "POST secrets", "POST pods"))
    with zygote.running(bench.namespace):
        job.wait_epoch(1)
    # Checkpoints and cleanups.
    die_at(zygote, bench, both(BARRIER, STATUS) + both(BARRIER, STATUS, number=2))
    die_at(zygote, bench, both("POST jobs", "DELETE jobs"))
    with zygote.running(bench.namespace):
        epoch = job.wait(lambda status: status["phase"] == "Running")["epoch"]
        job.wait_epoch(epoch + 2, seconds=30)
    # Its driver crashes, and is replaced.
    for fault in both(STATUS, "POST configmaps", "DELETE configmaps"):
        with zygote.running(bench.namespace):
            # Not a driver that the one before has just made: there would be nothing yet to crash.
            wait_until(lambda: kubelet.alive(bench.namespace), seconds=30)
            job.wait_phase("Running")
        for container in kubelet.alive(bench.namespace):
            kubelet.crash(bench.namespace, container.name)
        die_at(zygote, bench, [fault])
    # Stopped, and started again.
    with zygote.running(bench.namespace):
        job.wait_phase("Running")
    job.patch(state="Suspended")
    die_at(zygote, bench, both(BARRIER, STATUS))
    with zygote.running(bench.namespace):
        stopped = job.wait_phase("Stopped")
    assert stopped["epoch"] == max(list_epochs(bench.store, job.paths).manifests)
    assert not kubelet.alive(bench.namespace)
    job.patch(state="Running")
    die_at(zygote, bench, [Fault("after", STATUS), Fault("after", "POST pods")])
    with zygote.running(bench.namespace):
        job.wait_epoch(stopped["epoch"] + 1)
    # Deleted.
    job.delete()
    die_at(zygote, bench, [Fault("before", BARRIER), Fault("after", BARRIER), Fault("before", STATUS)])
    with zygote.running(bench.namespace):
        job.wait_gone()
        assert_nothing_left(bench, kubelet)
    assert_sound(job, kubelet)


def test_killed_at_random_while_drivers_crash(bench: Bench, kubelet: FakeKubelet, zygote: Zygote) -> None:
    chance = random.Random(7)
    job = bench.apply("random", restartPolicy=ALWAYS)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        pid = zygote.start(bench.namespace)
        time.sleep(chance.uniform(0.3, 2.0))
        if chance.random() < 0.4:
            for container in kubelet.alive(bench.namespace):
                kubelet.crash(bench.namespace, container.name)
        time.sleep(chance.uniform(0.0, 0.5))
        zygote.kill(pid)
    with zygote.running(bench.namespace):
        job.wait_phase("Running")
        job.wait_epoch(job.status["epoch"] + 1)
        job.delete()
        job.wait_gone()
        assert_nothing_left(bench, kubelet)
    assert_sound(job, kubelet)
