"""How one operator does with many jobs: the age of ticks, requests to the API server, memory.

A real API server, one operator as it is deployed, drivers that only answer. Then some of the jobs hang. Ends with an
error if the 99th percentile of the tick's age is not under three ticks at any size, or if jobs that hang slow others.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import kubernetes
from kubernetes.client import ApiClient, Configuration

from benchmarks.operator_hanging import Hanging, HangingRow, plain, section, worst
from benchmarks.processes import look
from benchmarks.report import conditions_line, table, write_json, write_page
from benchmarks.simulated_drivers import SimulatedNode
from cluster.control_plane import ControlPlane
from cluster.processes import free_port
from epochal.control.schema import load_crd
from epochal_operator.api import Api, ApiError, ConflictError
from epochal_operator.names import PLURAL

NAMESPACE = "scale"
INTERVAL = 30
OURS = {"streamingjobs", "pods", "services", "configmaps", "secrets", "jobs", "serviceaccounts", "events"}
_SAMPLE = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    jobs: int
    age_p50: float
    age_p99: float
    age_max: float
    round_ms: float
    requests: dict[str, float]
    writes: float
    checkpoints: float
    memory: int
    cpu: float
    server_cpu: float


def samples(url: str, names: set[str]) -> list[tuple[str, dict[str, str], float]]:
    text = urllib.request.urlopen(url, timeout=20).read().decode()
    return [sample for line in text.splitlines() if (sample := _parsed(line)) and sample[0] in names]


def _parsed(line: str) -> tuple[str, dict[str, str], float] | None:
    found = _SAMPLE.match(line)
    if not found:
        return None
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"] or ""))
    return found["name"], labels, float(found["value"])


class Scale:
    def __init__(self, plane: ControlPlane, directory: Path, *, tick: float) -> None:
        configuration = Configuration()
        kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
            str(plane.kubeconfig), client_configuration=configuration
        )
        configuration.connection_pool_maxsize = 32
        self.api = Api(ApiClient(configuration))
        self.plane, self.directory, self.tick = plane, directory, tick
        self.port = free_port()
        self.operator: subprocess.Popen[bytes] | None = None
        self.jobs = 0
        self.namespace, self.interval = NAMESPACE, INTERVAL
        self.node: SimulatedNode

    def set_up(self) -> None:
        self.api._send("POST", PLURAL, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=load_crd())
        for kind, where, body in (
            ("Namespace", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
            (
                "ServiceAccount",
                f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
                {"metadata": {"name": "epochal-driver"}},
            ),
        ):
            self.api._send("POST", "pods", where, body={"apiVersion": "v1", "kind": kind, **body})
        while True:
            try:
                self.api.list(PLURAL, None)
                break
            except ApiError:
                time.sleep(0.2)
        self.node = SimulatedNode(self.api).start()
        log = (self.directory / "operator.log").open("wb")
        self.operator = subprocess.Popen(
            [
                *(sys.executable, "-m", "epochal_operator", f"--tick={self.tick}", "--driver-access=direct"),
                *(f"--metrics-port={self.port}", "--health-port=0", "--local-stores"),
                # Drivers here can do nothing else, and so are not asked first.
                "--require-driver-tls",
            ],
            env={**os.environ, "KUBECONFIG": str(self.plane.kubeconfig)},
            stdout=log,
            stderr=log,
        )

    def grow(self, jobs: int) -> None:
        for number in range(self.jobs, jobs):
            self._create(f"job-{number}")
        self.jobs = jobs
        end = time.monotonic() + 300
        while self._running() < jobs:
            assert self.operator is not None
            assert self.operator.poll() is None, (self.directory / "operator.log").read_text()[-2000:]
            if time.monotonic() > end:
                raise SystemExit(f"only {self._running()} of {jobs} jobs run after 300 s")
            time.sleep(1)

    def _create(self, name: str) -> None:
        while True:
            try:
                self.api.create(PLURAL, NAMESPACE, self.manifest(name))
            except ConflictError:
                return
            except ApiError as error:
                if error.code is not None:
                    raise
                continue  # a busy machine; if it was made, the next try says so
            return

    def manifest(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "epochal.dev/v1alpha1",
            "kind": "StreamingJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "image": "epochal:simulated",
                "pipeline": {"module": "simulated"},
                "checkpoint": {
                    "interval": f"{INTERVAL}s",
                    "storage": {"uri": f"file://{self.directory}/store"},
                    "retention": {"keep": 1000, "every": 1000},
                },
            },
        }

    def metrics(self, *names: str) -> list[tuple[str, dict[str, str], float]]:
        try:
            return samples(f"http://127.0.0.1:{self.port}/metrics", set(names))
        except OSError:
            return []

    def _running(self) -> int:
        return int(sum(value for _, labels, value in self.metrics("epochal_jobs") if labels["phase"] == "Running"))

    # --- measuring ----------------------------------------------------------------------------------------------------

    def measure(self, seconds: float) -> Row:
        assert self.operator is not None
        before, requests = self._counts(), self._requests()
        server = self.plane.processes["kube-apiserver"].pid
        cpu, server_cpu = self.cpu(self.operator.pid), self.cpu(server)
        begun = time.monotonic()
        ages: list[float] = []
        while time.monotonic() - begun < seconds:
            ages += [value for _, _, value in self.metrics("epochal_tick_age_seconds")]
            time.sleep(2.3)  # not in step with the ticks
        took = time.monotonic() - begun
        after, now = self._counts(), self._requests()
        made = {key: (now[key] - requests[key]) / self.jobs * 60 / took for key in now if now[key] > requests[key]}
        cuts = quantiles(ages, n=100)
        rounds = after["rounds"] - before["rounds"]
        found = look(self.operator.pid)
        assert found is not None
        return Row(
            jobs=self.jobs,
            age_p50=cuts[49],
            age_p99=cuts[98],
            age_max=max(ages),
            round_ms=(after["seconds"] - before["seconds"]) / rounds * 1000,
            requests=made,
            writes=sum(value for key, value in made.items() if not key.startswith(("GET", "LIST", "WATCH"))),
            checkpoints=(after["checkpoints"] - before["checkpoints"]) / self.jobs * 60 / took,
            memory=found.rss,
            cpu=(self.cpu(self.operator.pid) - cpu) / took,
            server_cpu=(self.cpu(server) - server_cpu) / took,
        )

    def _counts(self) -> dict[str, float]:
        names = {
            "epochal_tick_duration_seconds_count": "rounds",
            "epochal_tick_duration_seconds_sum": "seconds",
            "epochal_checkpoint_duration_seconds_count": "checkpoints",
        }
        return {names[name]: value for name, _, value in self.metrics(*names)}

    def _requests(self) -> Counter[str]:
        """What the API server counted: the operator's own requests and kopf's."""
        answer = self.api._request("GET", "/metrics", body=None, headers={}, timeout=(5, 30))
        counts: Counter[str] = Counter()
        for line in answer.response.data.decode().splitlines():
            if line.startswith("apiserver_request_total") and (sample := _parsed(line)):
                labels = sample[1]
                if labels["resource"] in OURS:
                    counts[f"{labels['verb']} {labels['resource']}"] += int(sample[2])
        return counts

    def cpu(self, pid: int) -> float:
        found = look(pid)
        return found.cpu if found else 0.0

    def memory(self, pid: int) -> int:
        found = look(pid)
        return found.rss if found else 0

    def close(self) -> None:
        if self.operator is not None:
            self.operator.terminate()
            try:
                self.operator.wait(60)
            except subprocess.TimeoutExpired:
                self.operator.kill()


def page(rows: list[Row], hanging: list[HangingRow], *, tick: float, found: dict[str, Any]) -> str:
    shown = table(
        [
            *("jobs", "tick age p50", "p99", "max", "round (ms)", "requests", "of these writes", "checkpoints"),
            *("memory (MB)", "operator CPU", "API server CPU"),
        ],
        [
            [
                str(row.jobs),
                f"{row.age_p50:.2f} s",
                f"{row.age_p99:.2f} s",
                f"{row.age_max:.2f} s",
                f"{row.round_ms:.1f}",
                f"{sum(row.requests.values()):.1f}",
                f"{row.writes:.1f}",
                f"{row.checkpoints:.1f}",
                f"{row.memory / 1e6:.0f}",
                f"{row.cpu:.2f}",
                f"{row.server_cpu:.2f}",
            ]
            for row in rows
        ],
    )
    last = rows[-1]
    kinds = "\n".join(
        f"| {kind} | {value:.2f} |" for kind, value in sorted(last.requests.items(), key=lambda item: -item[1])
    )
    first = rows[0]
    each = (last.memory - first.memory) / max(1, last.jobs - first.jobs) / 1e3
    return f"""# One operator and many jobs

`make bench-operator` measures this: a real API server, one operator, and drivers that answer at once and do nothing
else. A round of each job every {tick:g} s, a checkpoint of each job every {INTERVAL} s. It ends with an error if the
99th percentile of the tick's age (time since a job's last round) is not under three ticks.

{conditions_line(found)} Operator, API server, etcd and all drivers share these cores.

Requests, writes and checkpoints are per job and minute, as the API server counted them. CPU is in cores. The time of a
round is of those that are not quiet, and holds all waiting; a driver is asked in these alone. Where there is more work
than cores, ticks grow old by the time that the operator waits for its turn.

{shown}

From {first.jobs} to {last.jobs} jobs memory grows by {each:.0f} kB a job.

{section(hanging)}
## Requests per job and minute at {last.jobs} jobs

| request | per job and minute |
|---|---|
{kinds}
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator_scale", description=__doc__)
    parser.add_argument("--sizes", default="50,100,200,500", help="numbers of jobs, growing")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure at each size")
    parser.add_argument("--tick", type=float, default=1.0, help="the operator's tick")
    parser.add_argument("--quick", action="store_true", help="10 and 30 jobs for 15 s each; writes no page")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.seconds = "10,30", 15.0
    rows: list[Row] = []
    with ControlPlane(controller_manager=False) as plane, tempfile.TemporaryDirectory() as directory:
        scale = Scale(plane, Path(directory), tick=options.tick)
        try:
            scale.set_up()
            for size in map(int, options.sizes.split(",")):
                scale.grow(size)
                time.sleep(min(options.seconds, INTERVAL))
                rows.append(scale.measure(options.seconds))
                print(rows[-1], flush=True)
            hanging = Hanging(scale, options.seconds).rows()
        finally:
            scale.close()
    found = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "tick": f"{options.tick:g} s"}
    write_json("operator", {"conditions": found, "rows": [_plain(row) for row in rows], "hanging": plain(hanging)})
    if not options.quick:
        print(write_page("operator", page(rows, hanging, tick=options.tick, found=found)))
    slow = [row.jobs for row in rows if row.age_p99 >= 3 * options.tick]
    if slow:
        print(f"the tick's age is over three ticks at {slow} jobs", file=sys.stderr)
    if slowed := worst(hanging):
        print(f"jobs that hang slow the others: {', '.join(slowed)}", file=sys.stderr)
    return 1 if slow or slowed else 0


def _plain(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
