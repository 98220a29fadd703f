"""What a failed test leaves for a person to look at: events, logs, objects, and the store's listing."""

from pathlib import Path

from cluster.errors import ClusterError
from cluster.images import REPOSITORY
from examples.cluster.live_job import OPERATOR, RELEASE_NAMESPACE, Cluster

DIRECTORY = REPOSITORY / "build" / "e2e"
KINDS = "streamingjobs,pods,jobs,services,configmaps"


def gather(test: str) -> None:
    """Into build/e2e/<test>/. What cannot be had is said in its file."""
    target = DIRECTORY / test
    target.mkdir(parents=True, exist_ok=True)
    try:
        cluster = Cluster()
        _write(cluster, target / "operator.log", "logs", f"--namespace={RELEASE_NAMESPACE}", OPERATOR, "--tail=3000")
        namespaces = cluster.get("namespaces")["items"]
    except (ClusterError, OSError) as error:
        (target / "no-cluster.txt").write_text(str(error))
        return
    for name in (item["metadata"]["name"] for item in namespaces):
        if name.startswith("e2e-"):
            _gather_namespace(cluster, name, target / name)


def _gather_namespace(cluster: Cluster, namespace: str, target: Path) -> None:
    target.mkdir(exist_ok=True)
    where = f"--namespace={namespace}"
    _write(cluster, target / "events.txt", "get", where, "events", "--sort-by=.lastTimestamp")
    _write(cluster, target / "objects.yaml", "get", where, KINDS, "--output=yaml")
    for pod in cluster.get(where, "pods")["items"]:
        name = pod["metadata"]["name"]
        _write(cluster, target / f"{name}.log", "logs", where, name, "--tail=3000")
    try:
        listed = [f"{meta['size']:>10} {meta['path']}" for page in cluster.store(namespace).list() for meta in page]
    except Exception as error:
        listed = [f"the store cannot be listed: {error}"]
    (target / "store.txt").write_text("\n".join(listed) + "\n")


def _write(cluster: Cluster, file: Path, *command: str) -> None:
    try:
        file.write_text(cluster.kubectl(*command))
    except ClusterError as error:
        file.write_text(str(error))
