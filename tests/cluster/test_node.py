"""The cluster of plain processes is a real one: pods, DNS, logs, exec, services, and what survives a kill."""

import signal
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from cluster import s3
from cluster.images import PROJECT
from cluster.kubectl import kubectl
from cluster.node import Node

pytestmark = pytest.mark.cluster

NAMESPACE = "harness-test"
# As strict as Kubernetes can be asked to be.
RESTRICTED = f"""
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Service
metadata: {{name: pages, namespace: {NAMESPACE}}}
spec:
  clusterIP: 10.96.77.77
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8000}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: web, namespace: {NAMESPACE}, labels: {{app: web}}}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
    - name: web
      image: {PROJECT["operator"]}
      command: [sh, -c, "echo hello from web; exec python -m http.server --directory /app 8000"]
      readinessProbe: {{tcpSocket: {{port: 8000}}, periodSeconds: 1}}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {{drop: [ALL]}}
"""


@pytest.fixture(scope="module")
def web(node: Node) -> Iterator[Node]:
    """A node with a pod of the project's image on it."""
    kubectl(node.kubeconfig, "apply", "--filename=-", stdin=RESTRICTED)
    in_namespace(node, "wait", "--for=condition=Ready", "--timeout=60s", "pod/web")
    yield node
    kubectl(node.kubeconfig, "delete", "namespace", NAMESPACE)


def in_namespace(node: Node, *arguments: str) -> str:
    return kubectl(node.kubeconfig, f"--namespace={NAMESPACE}", *arguments)


def in_pod(node: Node, program: str) -> str:
    return in_namespace(node, "exec", "web", "--", "python", "-c", program).strip()


def test_all_is_well(node: Node) -> None:
    well, lines = node.describe()
    assert well, "\n".join(lines)


def test_logs_are_read_and_commands_run_as_nobody_special(web: Node) -> None:
    assert in_namespace(web, "logs", "web").startswith("hello from web")
    assert in_pod(web, "import os; print(os.getuid(), os.getgid())") == "10001 10001"


def test_a_pod_finds_services_by_name(web: Node) -> None:
    found = "import socket; print(socket.gethostbyname('{}'))"
    assert in_pod(web, found.format("pages")) == "10.96.77.77"
    assert in_pod(web, found.format("kubernetes.default.svc.cluster.local")) == "10.96.0.1"


def test_a_service_is_reached_from_pods_and_from_the_machine(web: Node) -> None:
    assert in_pod(web, "from urllib.request import urlopen; print(urlopen('http://pages').status)") == "200"
    with urlopen("http://10.96.77.77", timeout=10) as answer:
        assert answer.status == 200


def test_a_pod_reaches_the_s3_server(web: Node) -> None:
    access = s3.read_access(web.layout)
    program = f"""
import obstore
from obstore.store import S3Store
store = S3Store({access.bucket!r}, endpoint={access.endpoint!r}, region={access.region!r},
    access_key_id={access.access_key!r}, secret_access_key={access.secret_key!r}, client_options={{"allow_http": True}})
obstore.put(store, "harness-test", b"from a pod")
print(bytes(obstore.get(store, "harness-test").bytes()).decode())
obstore.delete(store, "harness-test")
"""
    assert in_pod(web, program) == "from a pod"


def test_pods_run_on_when_the_kubelet_and_containerd_are_killed(web: Node) -> None:
    started = in_namespace(web, "get", "pod", "web", "--output=jsonpath={.status.containerStatuses[0].containerID}")
    for name in ("kubelet", "containerd"):
        web.daemons.stop(web.parts[name], number=signal.SIGKILL)
    assert not web.describe()[0]
    with urlopen("http://10.96.77.77", timeout=10) as answer:
        assert answer.status == 200
    web.boot()
    assert in_pod(web, "print('still here')") == "still here"
    same = in_namespace(web, "get", "pod", "web", "--output=jsonpath={.status.containerStatuses[0].containerID}")
    assert same == started
