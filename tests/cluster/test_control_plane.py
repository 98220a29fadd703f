"""The control plane on its own is a real API server."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import api
from cluster.control_plane import ControlPlane, ControlPlaneError
from cluster.errors import ClusterError
from cluster.kubectl import kubectl

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


def test_it_takes_and_gives_objects(plane: ControlPlane) -> None:
    kubectl(plane.kubeconfig, "create", "configmap", "kept", "--from-literal=key=value")
    found = api.get(plane.config, "/api/v1/namespaces/default/configmaps/kept")
    assert found["data"] == {"key": "value"}


def test_it_checks_objects_by_the_crd(plane: ControlPlane) -> None:
    kubectl(plane.kubeconfig, "apply", "--filename=crds/")
    kubectl(plane.kubeconfig, "wait", "--for=condition=Established", "--timeout=30s", "crd/streamingjobs.epochal.dev")
    bad = "apiVersion: epochal.dev/v1alpha1\nkind: StreamingJob\nmetadata: {name: bad}\nspec: {}\n"
    with pytest.raises(ClusterError, match="spec"):
        kubectl(plane.kubeconfig, "apply", "--filename=-", stdin=bad)


def test_what_an_owner_leaves_is_collected(plane: ControlPlane) -> None:
    kubectl(plane.kubeconfig, "create", "configmap", "owner")
    uid = api.get(plane.config, "/api/v1/namespaces/default/configmaps/owner")["metadata"]["uid"]
    owned = f"""
apiVersion: v1
kind: ConfigMap
metadata:
  name: owned
  ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]
"""
    kubectl(plane.kubeconfig, "apply", "--filename=-", stdin=owned)
    kubectl(plane.kubeconfig, "delete", "configmap", "owner")
    kubectl(plane.kubeconfig, "wait", "--for=delete", "--timeout=60s", "configmap/owned")


def test_after_a_restart_everything_is_as_before(plane: ControlPlane) -> None:
    kubectl(plane.kubeconfig, "create", "configmap", "survivor")
    server = plane.server
    plane.stop()
    assert not api.answers(plane.config, "/readyz")
    plane.start()
    assert plane.server == server
    assert api.answers(plane.config, "/api/v1/namespaces/default/configmaps/survivor")


def test_a_stranger_is_refused(plane: ControlPlane) -> None:
    command = ["curl", "--silent", "--insecure", f"{plane.server}/api/v1/secrets"]
    assert '"code": 403' in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_second_start_is_refused(plane: ControlPlane) -> None:
    with pytest.raises(ControlPlaneError, match="running already"):
        plane.start()


def test_the_processes_end_with_the_one_that_started_them() -> None:
    program = (
        "import os, signal\n"
        "from cluster.control_plane import ControlPlane\n"
        "plane = ControlPlane(controller_manager=False)\n"
        "plane.start()\n"
        "print(*(process.pid for process in plane.processes.values()), flush=True)\n"
        "print(plane.kubeconfig.parent, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=Path.cwd(), env=os.environ
    )
    pids, home = done.stdout.splitlines()
    assert len(pids.split()) == 2, done.stderr
    deadline = time.monotonic() + 10
    while any(_is_alive(pid) for pid in pids.split()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    subprocess.run(["rm", "-rf", home], check=True)


def _is_alive(pid: str) -> bool:
    try:
        # A zombie has ended; its parent, the container's first process, may be slow to notice.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
