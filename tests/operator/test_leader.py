"""Two operators of which one leads, whatever becomes of the API server, of the network and of themselves.

That there was one at any time is told by what each process changed, and when; a test plays Kubernetes and starts a
process that ended anew. ``EPOCHAL_DEEP=1`` does each 20 times.
"""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from epochal_operator.api import Api
from epochal_operator.process.leader import EXIT_LOST, KIND
from epochal_operator.process.vital_threads import EXIT_BROKEN
from tests.operator.fake_kubelet import wait_until
from tests.operator.harness import Bench, JobHandle, OperatorProcess
from tests.operator.witnessed_operator import MODULE, acts
from tests.support.depth import DEEP
from tests.support.proxy import CountingProxy

LEASE = 4.5
SHORT, LONG = LEASE / 6, 2 * LEASE
TIMES = 20 if DEEP else 1


@dataclass
class Operator:
    """One of the two, with a network of its own."""

    process: OperatorProcess
    proxy: CountingProxy
    ends: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.process.process is not None
        return self.process.process.pid


class Pair:
    def __init__(self, bench: Bench, plane: ControlPlane, directory: Path, **env: str) -> None:
        self.bench, self.plane = bench, plane
        self.witness = directory / "witness"
        self.operators: list[Operator] = []
        self._restart = True
        self._over = threading.Event()
        for name in ("a", "b"):
            proxy = CountingProxy(plane.server.replace("https", "http"), opaque=True)
            proxy.start()
            kubeconfig = directory / f"{name}.kubeconfig"
            kubeconfig.write_text(plane.kubeconfig.read_text().replace(plane.server, f"https://127.0.0.1:{proxy.port}"))
            process = OperatorProcess(
                kubeconfig,
                directory / f"{name}.log",
                *(f"--namespaces={bench.namespace}", "--lease=epochal"),
                *(f"--lease-namespace={bench.namespace}", f"--lease-duration={LEASE}"),
                module=MODULE,
                WITNESS=str(self.witness),
                **env,
            )
            self.operators.append(Operator(process, proxy))

    def __enter__(self) -> "Pair":
        for operator in self.operators:
            operator.process.start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._keeper.join()
        for operator in self.operators:
            if operator.process.running():
                operator.process.kill()
            operator.proxy.stop()

    def _keep(self) -> None:
        """What Kubernetes does with containers that end."""
        while not self._over.wait(0.1):
            for operator in self.operators:
                if not operator.process.running() and self._restart:
                    assert operator.process.process is not None
                    operator.ends.append(operator.process.process.returncode)
                    operator.process.start()

    def wait(self) -> None:
        """Until both are up: one of them waits."""
        for operator in self.operators:
            wait_until(lambda log=operator.process.log: log.exists() and "Waiting for Lease" in log.read_text())

    def leader(self) -> Operator:
        """Whoever the Lease names, and is at work."""

        def found() -> Operator | None:
            renewals = [act for act in acts(self.witness) if act.renewal]
            last = renewals[-1] if renewals and time.monotonic() - renewals[-1].ended < LEASE else None
            return next((each for each in self.operators if last and each.pid == last.process), None)

        operator: Operator = wait_until(found)
        return operator

    def standby(self) -> Operator:
        leader = self.leader()
        return next(each for each in self.operators if each is not leader)

    def ends(self) -> list[int]:
        return [code for operator in self.operators for code in operator.ends]

    def assert_one_at_a_time(self) -> None:
        """No process changed anything between the first and the last act of another."""
        tenures: dict[int, tuple[float, float]] = {}
        for act in acts(self.witness):
            begun, ended = tenures.get(act.process, (act.begun, act.ended))
            tenures[act.process] = (min(begun, act.begun), max(ended, act.ended))
        in_order = sorted(tenures.values())
        for (_, ended), (begun, _) in itertools.pairwise(in_order):
            assert ended <= begun, f"two acted at once: {tenures}"


# --- outages: each begins, and is over when the block is left --------------------------------------------------------


@contextmanager
def restarted(pair: Pair) -> Iterator[None]:
    pair.plane.stop()
    yield
    pair.plane.start()


@contextmanager
def paused(pair: Pair) -> Iterator[None]:
    server = pair.plane.processes["kube-apiserver"]
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


@contextmanager
def leader_cut_off(pair: Pair) -> Iterator[None]:
    proxy = pair.leader().proxy
    proxy.hold()
    try:
        yield
    finally:
        proxy.flow()


@contextmanager
def leader_refused(pair: Pair) -> Iterator[None]:
    proxy = pair.leader().proxy
    proxy.refuse()
    try:
        yield
    finally:
        proxy.accept()


@contextmanager
def all_refused(pair: Pair) -> Iterator[None]:
    for operator in pair.operators:
        operator.proxy.refuse()
    try:
        yield
    finally:
        for operator in pair.operators:
            operator.proxy.accept()


@contextmanager
def leader_paused(pair: Pair) -> Iterator[None]:
    """As a virtual machine that is stopped for a while: it goes on in the middle of what it was at."""
    pid = pair.leader().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def leader_killed(pair: Pair) -> Iterator[None]:
    pair.leader().process.kill()
    yield


Outage = Callable[[Pair], AbstractContextManager[None]]


@pytest.fixture
def pair(bench: Bench, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Pair]:
    with Pair(bench, control_plane, tmp_path) as pair:
        pair.wait()
        yield pair


@pytest.mark.timeout(3600 if DEEP else 180)
@pytest.mark.parametrize(
    "outage", [restarted, paused, leader_cut_off, leader_refused, all_refused, leader_paused, leader_killed]
)
def test_one_leads_and_the_job_goes_on(outage: Outage, pair: Pair, bench: Bench) -> None:
    job = bench.apply()
    job.wait_epoch(1)
    for seconds in (SHORT, LONG):
        took = [_survived(outage, seconds, pair, job) for _ in range(TIMES)]
        name = getattr(outage, "__name__", "")
        print(f"{name} for {seconds:g} s, {len(took)} times: {' '.join(f'{each:.2f}' for each in sorted(took))} s")
    pair.assert_one_at_a_time()
    assert set(pair.ends()) <= {EXIT_LOST, -signal.SIGKILL}, "nothing ends but a leader that could not renew"
    assert job.status["generation"] == 1, "the driver went on all the while"
    job.assert_exactly_once()


def _survived(outage: Outage, seconds: float, pair: Pair, job: JobHandle) -> float:
    """How long after the end of the outage the job has made another two checkpoints."""
    pair.leader()
    ends = len(pair.ends())
    with outage(pair):
        time.sleep(seconds)
    over = time.monotonic()
    job.wait_epoch(job.status["epoch"] + 2, seconds=60)
    took = time.monotonic() - over
    if seconds > LEASE:
        wait_until(lambda: len(pair.ends()) > ends)
    return took


def test_a_leader_that_is_asked_to_end_gives_the_lease_back(pair: Pair, bench: Bench) -> None:
    job = bench.apply()
    job.wait_epoch(1)
    leader, standby = pair.leader(), pair.standby()
    pair._restart = False
    begun = time.monotonic()
    assert leader.process.stop() == 0
    assert time.monotonic() - begun < 10, "it ends soon"
    wait_until(lambda: standby.pid in {act.process for act in acts(pair.witness)})
    given_back = max(act.ended for act in acts(pair.witness) if act.process == leader.pid)
    taken = min(act.ended for act in acts(pair.witness) if act.process == standby.pid)
    assert taken - given_back < LEASE / 2, "nobody waits for it to expire"
    job.wait_epoch(job.status["epoch"] + 2)
    pair.assert_one_at_a_time()
    leader.process.start()
    wait_until(lambda: leader.process.log.read_text().count("Waiting for Lease") == 2)
    assert leader.process.stop() == 0, "a standby ends, too"


@pytest.mark.parametrize(("how", "code"), [("raise", EXIT_BROKEN), ("hang", EXIT_LOST)])
def test_however_renewing_dies_the_process_ends_in_time(
    how: str, code: int, bench: Bench, control_plane: ControlPlane, tmp_path: Path
) -> None:
    switch = tmp_path / "break"
    env = {"BREAK_RENEWALS": how, "BREAK_WHEN": str(switch)}
    with Pair(bench, control_plane, tmp_path, **env) as pair:
        pair._restart = False
        pair.operators[1].process.kill()
        leader = wait_until(lambda: pair.leader() is pair.operators[0]) and pair.operators[0]
        job = bench.apply()
        job.wait_epoch(1)
        switch.touch()
        begun = time.monotonic()
        assert leader.process.process is not None
        assert leader.process.process.wait(LEASE) == code
        last = max(act.begun for act in acts(pair.witness) if act.renewal)
        assert time.monotonic() - min(last, begun) < LEASE, "before anybody else could lead"


def test_a_standby_whose_lease_is_deleted_does_not_lead_beside_the_leader(pair: Pair, bench: Bench, api: Api) -> None:
    job: JobHandle = bench.apply()
    job.wait_epoch(1)
    leader = pair.leader()
    for _ in range(3):
        bench.delete(KIND, "epochal")
        job.wait_epoch(job.status["epoch"] + 2)
    assert pair.leader() is leader
    assert not pair.ends()
    pair.assert_one_at_a_time()


def test_operators_that_start_while_the_api_server_is_away_are_patient(
    bench: Bench, control_plane: ControlPlane, tmp_path: Path
) -> None:
    pair = Pair(bench, control_plane, tmp_path)
    for operator in pair.operators:
        operator.proxy.refuse()
    with pair:
        for operator in pair.operators:
            wait_until(lambda log=operator.process.log: log.exists() and log.read_text().count("Waiting") >= 2)
        for operator in pair.operators:
            operator.proxy.accept()
        bench.apply().wait_epoch(1)
        assert not pair.ends()
