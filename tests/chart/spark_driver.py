"""Spark as a driver pod runs it, started and stopped in one namespace after another.

    python -m tests.chart.spark_driver KUBECONFIG

The kubeconfig is the node's, so to say: it lets an executor fail. Each line of the input is a JSON object with
``namespace`` and ``conf``. There are no nodes, so executors stay Pending; what Spark asks of the API server is what
matters. One Java for all of them: it takes longer to start than the rest.
"""

import json
import sys
import time
from collections.abc import Callable

import kubernetes
from pyspark.sql import SparkSession

WAIT = 5.0


def main() -> None:
    kubernetes.config.load_kube_config(sys.argv[1])  # type: ignore[no-untyped-call]
    pods = kubernetes.client.CoreV1Api()
    for line in sys.stdin:
        task = json.loads(line)
        print(f"--- {task['namespace']}", file=sys.stderr, flush=True)
        try:
            _live(pods, task["namespace"], task["conf"])
            print(f"Lived and stopped in {task['namespace']}", file=sys.stderr, flush=True)
        except Exception as error:
            # Told, and looked at by the test: a driver that may not do this cannot start.
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _live(pods: kubernetes.client.CoreV1Api, namespace: str, conf: dict[str, str]) -> None:
    """Start, wait for an executor, let it fail, see it removed, stop."""
    builder = SparkSession.builder.appName(namespace)
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        executor = _first(pods, namespace)
        if executor is not None:
            pods.patch_namespaced_pod_status(executor, namespace, {"status": {"phase": "Failed"}})
            _until(lambda: executor not in _executors(pods, namespace))
    finally:
        spark.stop()


def _executors(pods: kubernetes.client.CoreV1Api, namespace: str) -> list[str]:
    found = pods.list_namespaced_pod(namespace, label_selector="spark-role=executor").items
    return [pod.metadata.name for pod in found if pod.metadata and pod.metadata.name]


def _first(pods: kubernetes.client.CoreV1Api, namespace: str) -> str | None:
    _until(lambda: bool(_executors(pods, namespace)))
    return next(iter(_executors(pods, namespace)), None)


def _until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not what() and time.monotonic() < end:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
