"""Two operators, of which one leads: those of the chart, or processes of this checkout."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from cluster.images import PROJECT
from cluster.processes import start_server
from examples.cluster.live_job import RELEASE, RELEASE_NAMESPACE, Cluster, until

HOW_MANY = 2


class Operators(Protocol):
    def start(self) -> None: ...

    def kill_leader(self) -> None:
        """With SIGKILL. It comes back as its Deployment, or whoever looks after it, wants."""

    def complete(self) -> bool:
        """Whether one leads and the other waits."""

    def close(self) -> None: ...


class ChartOperators:
    """As people install them, with two replicas."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start(self) -> None:
        self._cluster.install_operator(ha=True)

    def kill_leader(self) -> None:
        holder = _holder(self._cluster, RELEASE_NAMESPACE, RELEASE)
        pod = next(pod for pod in self._pods() if holder.startswith(pod["metadata"]["name"]))
        os.kill(_process_of(pod["metadata"]["uid"]), signal.SIGKILL)

    def complete(self) -> bool:
        ready = [
            pod
            for pod in self._pods()
            if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
        ]
        holder = _holder(self._cluster, RELEASE_NAMESPACE, RELEASE)
        return len(ready) == HOW_MANY and any(holder.startswith(pod["metadata"]["name"]) for pod in ready)

    def close(self) -> None:
        self._cluster.install_operator()

    def _pods(self) -> list[dict[str, Any]]:
        selector = f"--selector=app.kubernetes.io/name=epochal-operator,app.kubernetes.io/instance={RELEASE}"
        return list(self._cluster.get(f"--namespace={RELEASE_NAMESPACE}", "pods", selector)["items"])


class ProcessOperators:
    """Of this checkout, started again when they end, as a kubelet does."""

    def __init__(self, cluster: Cluster, namespace: str, directory: Path) -> None:
        self._cluster, self._namespace, self._directory = cluster, namespace, directory
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="operators", daemon=True)

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._keeper.start()
        until("an operator that leads", self.complete)

    def kill_leader(self) -> None:
        self._leader().kill()

    def complete(self) -> bool:
        with suppress(StopIteration):
            return self._leader().poll() is None and len(self._running) == HOW_MANY
        return False

    def close(self) -> None:
        self._closed.set()
        self._keeper.join()

    def _leader(self) -> subprocess.Popen[bytes]:
        holder = _holder(self._cluster, self._namespace, RELEASE)
        return next(one for number, one in list(self._running.items()) if holder in self._log(number).read_text())

    def _log(self, number: int) -> Path:
        return self._directory / f"operator-{number}.log"

    def _keep(self) -> None:
        # They end with the thread that started them: this one.
        while not self._closed.wait(1):
            for number in range(1, HOW_MANY + 1):
                if number not in self._running or self._running[number].poll() is not None:
                    self._running[number] = self._start(number)
        for process in self._running.values():
            process.kill()
            process.wait()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        options = {
            "namespaces": self._namespace,
            "driver-access": "direct",
            "metrics-port": 0,
            "health-port": 0,
            "lease": RELEASE,
            "lease-namespace": self._namespace,
            "default-image": PROJECT["spark"],
        }
        command = [sys.executable, "-m", "epochal_operator", *(f"--{key}={value}" for key, value in options.items())]
        # What an earlier one was called must not be taken for this one's name.
        with self._log(number).open("wb") as log:
            return start_server(command, env={**os.environ, "KUBECONFIG": str(self._cluster.kubeconfig)}, log=log)


def _holder(cluster: Cluster, namespace: str, lease: str) -> str:
    path = "--output=jsonpath={.spec.holderIdentity}"
    return cluster.kubectl("get", "lease", f"--namespace={namespace}", lease, path, "--ignore-not-found") or "nobody"


def _process_of(pod: str) -> int:
    """The first process of a pod's container, as this machine, which is its node, sees it."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"epochal_operator" in (process / "cmdline").read_bytes() and pod in (process / "cgroup").read_text():
                return int(process.name)
    raise LookupError(f"no operator of pod {pod} runs at {time.time():.0f}")
