"""A real Kubernetes API server on loopback, for tests: up in seconds, gone with the test process.

    with ControlPlane() as plane:
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig, "apply", "-f", "crds/"])

There is no node: pods can be made, but stay Pending. With the controller-manager (the default) there are service
accounts, garbage collection by owner references, namespace deletion and the Job controller.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.api import answers
from cluster.binaries import ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER
from cluster.control_plane_config import ControlPlaneConfig
from cluster.gobuild import ensure_built
from cluster.processes import free_port, holds_port, start_server

START_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0
PORT_ATTEMPTS = 5
LOOPBACK = "127.0.0.1"


class ControlPlaneError(Exception):
    """A process did not come up; the message holds the end of its log."""


class ControlPlane:
    """etcd, the API server and optionally the controller-manager, with a directory and certificates of their own.

    Start it from the main thread: the processes end with the thread that started them. `stop` keeps the data and
    the port, so that clients see an API server that went away and came back; `close` removes all.
    """

    def __init__(self, *, controller_manager: bool = True) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._controller_manager = controller_manager
        self._home = Path(tempfile.mkdtemp(prefix="epochal-plane-"))
        self._config: ControlPlaneConfig | None = None
        ensure_built(ETCD)
        ensure_built(KUBE_APISERVER)
        if controller_manager:
            ensure_built(KUBE_CONTROLLER_MANAGER)

    @property
    def config(self) -> ControlPlaneConfig:
        if self._config is None:
            raise ControlPlaneError("the control plane was never started")
        return self._config

    @property
    def server(self) -> str:
        return self.config.server

    @property
    def kubeconfig(self) -> Path:
        """Of somebody who may do everything."""
        return self.config.kubeconfig()

    def start(self) -> None:
        """Start, on the former port if there was one."""
        if self.processes:
            raise ControlPlaneError("the control plane is running already")
        try:
            if self._config is not None:
                self._start(self._config)
            else:
                self._start_on_a_free_port()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes, those first that use the others."""
        for name in reversed(list(self.processes)):
            process = self.processes.pop(name)
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def log(self, name: str) -> str:
        """What one of the processes has said: `etcd`, `kube-apiserver` or `kube-controller-manager`."""
        return (self._home / f"{name}.log").read_text(errors="replace")

    def _start_on_a_free_port(self) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            config = ControlPlaneConfig(
                home=self._home,
                address=LOOPBACK,
                port=free_port(),
                service_accounts=self._controller_manager,
            )
            try:
                self._start(config)
            except ControlPlaneError:
                # Somebody may have taken the port in the meantime.
                self.stop()
                if attempt == PORT_ATTEMPTS or "address already in use" not in self.log(KUBE_APISERVER.name):
                    raise
            else:
                self._config = config
                return

    def _start(self, config: ControlPlaneConfig) -> None:
        config.prepare()
        self._run(ETCD.name, config.etcd(), cwd=config.etcd_directory)
        self._run(KUBE_APISERVER.name, config.api_server())
        pid = self.processes[KUBE_APISERVER.name].pid
        # The controller-manager tries again by itself, but only after seconds.
        self._wait(lambda: holds_port(pid, config.port) and answers(config, "/readyz"))
        if self._controller_manager:
            self._run(KUBE_CONTROLLER_MANAGER.name, config.controller_manager())
            self._wait(lambda: answers(config, "/api/v1/namespaces/default/serviceaccounts/default"))

    def _run(self, name: str, command: list[str], *, cwd: Path | None = None) -> None:
        with (self._home / f"{name}.log").open("wb") as log:
            self.processes[name] = start_server(command, env=os.environ, log=log, cwd=cwd)

    def _wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise ControlPlaneError(f"{name} ended with {process.returncode}:\n{self.log(name)[-3000:]}")
            if time.monotonic() > deadline:
                ends = "\n".join(f"--- {name}\n{self.log(name)[-1500:]}" for name in self.processes)
                raise ControlPlaneError(f"the control plane was not ready after {START_TIMEOUT:.0f} s:\n{ends}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
