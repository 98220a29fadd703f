"""Nothing in the drivers' role is unneeded, either: real Spark is refused something without each right of it."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from epochal.control.job import DEFAULT_SERVICE_ACCOUNT, parse_job
from epochal.protocol.epochs import Generation
from epochal_operator.kubernetes.manifests.resources import executor_template
from epochal_operator.kubernetes.manifests.spark_conf import spark_conf
from epochal_operator.names import driver_name
from tests.chart.cluster import ChartCluster, job
from tests.chart.rights import DRIVER, Right, bound, namespace_of

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.slow]

FIRST = Generation(1)
EVERYTHING = "driver-everything"


def namespace_without(right: Right) -> str:
    return f"driver-{namespace_of(right)}"


def refused(right: Right, log: str) -> bool:
    namespace = namespace_without(right)
    if right.verb == "watch":
        # Of a watch Spark's client says no more than this.
        return f"403 on websocket. Failure executing: GET at: https://SERVER/api/v1/namespaces/{namespace}/pods" in log
    return right.refusal(namespace) in log


def objects(namespace: str, rights: Iterable[Right]) -> list[dict[str, Any]]:
    """What a driver finds in its namespace: its account with these rights, and its own pod."""
    place = {"namespace": namespace}
    container = {"name": "driver", "image": "none"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT_SERVICE_ACCOUNT, **place}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": driver_name("words", FIRST), **place},
            "spec": {"serviceAccountName": DEFAULT_SERVICE_ACCOUNT, "containers": [container]},
        },
        *bound(DEFAULT_SERVICE_ACCOUNT, namespace, namespace, rights),
    ]


def settings(cluster: ChartCluster, namespace: str, directory: Path) -> dict[str, str]:
    """The operator's own settings, but for where the API server and the files are."""
    manifest = job()
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["image"] = "none"
    spec = parse_job(manifest)
    kubeconfig = yaml.safe_load(cluster.plane.kubeconfig.read_text())
    authority, token, template, secret = (directory / f"{namespace}.{end}" for end in ("crt", "token", "json", "key"))
    secret.write_text("between driver and executors")
    authority.write_bytes(base64.b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]))
    token.write_text(cluster.kubectl("create", "token", DEFAULT_SERVICE_ACCOUNT, "--namespace", namespace).strip())
    template.write_text(json.dumps(executor_template(spec, "keys")))
    return spark_conf(spec, FIRST) | {
        "spark.master": f"k8s://{cluster.plane.server}",
        "spark.kubernetes.authenticate.caCertFile": str(authority),
        "spark.kubernetes.authenticate.oauthTokenFile": str(token),
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.authenticate.secret.file": str(secret),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.port": "0",
        "spark.driver.blockManager.port": "0",
        "spark.local.dir": str(directory),
        "spark.ui.enabled": "false",
        # Soon, what it would do in half a minute; and what it may not do shall not end it before it has tried the rest.
        "spark.kubernetes.executor.apiPollingInterval": "1s",
        "spark.kubernetes.executor.eventProcessingInterval": "200ms",
        "spark.executor.maxNumFailures": "1000",
    }


def lives(cluster: ChartCluster, directory: Path) -> str:
    """What Spark said, in a namespace for each right that it lacks there, and in one where it lacks none."""
    rights = {namespace_without(right): [other for other in DRIVER if other != right] for right in DRIVER}
    rights[EVERYTHING] = list(DRIVER)
    cluster.apply(*(made for namespace in rights for made in objects(namespace, rights[namespace])))
    tasks = [
        json.dumps({"namespace": namespace, "conf": settings(cluster, namespace, directory)}) for namespace in rights
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chart.spark_driver", str(cluster.plane.kubeconfig)],
        input="\n".join(tasks),
        # Spark's client would take credentials from a kubeconfig over the token that it is given.
        env={**os.environ, "KUBECONFIG": str(directory / "none"), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    return done.stderr.replace(cluster.plane.server, "https://SERVER")


def test_each_right_is_needed_and_no_other_is(chart_cluster: ChartCluster, tmp_path: Path) -> None:
    log = lives(chart_cluster, tmp_path)
    assert not [right for right in DRIVER if not refused(right, log)]
    life = log.partition(f"--- {EVERYTHING}")[2]
    assert "forbidden" not in life.lower()
    assert f"Lived and stopped in {EVERYTHING}" in life
