"""The chart on a real API server: installing it, and asking as one of its service accounts."""

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.control_plane import ControlPlane
from cluster.kubectl import kubectl_binary
from tests.chart.render import CHART, RELEASE_NAMESPACE, Values, helm

JOB_NAMESPACE = "team-a"


class KubectlError(Exception):
    """What kubectl said on its way out."""


@dataclass(frozen=True)
class ChartCluster:
    """A real API server, helm and kubectl. ``home`` is where helm keeps its files."""

    plane: ControlPlane
    home: Path

    @property
    def env(self) -> dict[str, str]:
        helm_home = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return {**os.environ, **helm_home, "KUBECONFIG": str(self.plane.kubeconfig)}

    def install(self, values: Values, *, chart: Path = CHART) -> str:
        return helm(
            *("install", "epochal", str(chart), "--namespace", RELEASE_NAMESPACE, "--create-namespace"),
            values=values,
            env=self.env,
        )

    def upgrade(self, values: Values) -> str:
        return helm("upgrade", "epochal", str(CHART), "--namespace", RELEASE_NAMESPACE, values=values, env=self.env)

    def uninstall(self) -> str:
        return helm("uninstall", "epochal", "--namespace", RELEASE_NAMESPACE, env=self.env)

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        command = [kubectl_binary(), *arguments]
        done = subprocess.run(
            command, env=self.env, input=given, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise KubectlError(done.stderr)
        return done.stdout

    def apply(self, *documents: dict[str, Any], dry: bool = False) -> None:
        options = ["--dry-run=server"] if dry else []
        self.kubectl(
            "apply",
            *options,
            "--filename=-",
            given=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}),
        )

    def make_namespaces(self, *names: str, labels: dict[str, str] | None = None) -> None:
        kind = {"apiVersion": "v1", "kind": "Namespace"}
        self.apply(*({**kind, "metadata": {"name": name, "labels": labels or {}}} for name in names))

    def wait_for_crd(self) -> None:
        self.kubectl("wait", "--for=condition=Established", "crd/streamingjobs.epochal.dev", "--timeout=20s")
        # Established is said a moment before the kind is served.
        for _ in range(100):
            try:
                self.kubectl("get", "streamingjobs", "--all-namespaces")
            except KubectlError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError("StreamingJobs were not served within 10 s")

    def kubeconfig_of(self, account: str, namespace: str, path: Path) -> Path:
        """Of a service account, by a token of its own."""
        token = self.kubectl("create", "token", account, "--namespace", namespace).strip()
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        path.write_text(yaml.safe_dump(config))
        return path

    def names(self, kind: str, namespace: str | None = None) -> list[str]:
        scope = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        return self.kubectl("get", kind, *scope, "--output=jsonpath={.items[*].metadata.name}").split()


def job(name: str = "words") -> dict[str, Any]:
    return {
        "apiVersion": "epochal.dev/v1alpha1",
        "kind": "StreamingJob",
        "metadata": {"name": name, "namespace": JOB_NAMESPACE},
        "spec": {
            "pipeline": {"module": "jobs.words"},
            "checkpoint": {"storage": {"uri": "s3://bucket/root"}},
        },
    }
