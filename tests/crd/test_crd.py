"""What a real API server makes of the CRD: defaults, dropped fields, columns, subresources, edits."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from epochal.control.job import parse_job
from epochal.control.schema import validated
from tests.crd.cases import GOOD, changed
from tests.crd.server import JOBS, STRICT, RefusedError, Server

MERGE = "application/merge-patch+json"
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/job*.yaml"))

FULL = changed(
    {
        "spec.image": "example.org:5000/team/spark:1.2@sha256:" + "a" * 64,
        "spec.imagePullPolicy": "Always",
        "spec.pipeline": {
            "configMap": {"name": "words", "key": "words.py"},
            "function": "describe",
            "parameters": {"limit": "5", "text": "any: thing"},
        },
        "spec.state": "Suspended",
        "spec.checkpoint": {
            "interval": "1m30s",
            "timeout": "24h",
            "minPause": "500ms",
            "tolerableFailures": 0,
            "retention": {"keep": 9, "every": 1},
            "storage": {
                "uri": "s3://bucket.with-dots_1/a/b+c=d@e/",
                "endpoint": "https://minio.storage.svc:9000",
                "region": "eu-central-1",
                "credentialsSecret": {"name": "keys"},
            },
        },
        "spec.restore": {"fromSavepoint": "before-upgrade_2", "allowEmptyStart": True, "onCommittedOutput": "Repeat"},
        "spec.restartPolicy": {"maxRestarts": 0, "backoff": "100ms", "maxBackoff": "100ms", "resetAfter": "1h"},
        "spec.driver": {
            "cores": 2,
            "memory": "450m",
            "startTimeout": "1m",
            "unreachableTimeout": "10s",
            "podTemplate": {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": {"disk": "ssd"}}},
        },
        "spec.executor": {"instances": 3, "cores": 4, "memory": "16g", "podTemplate": {"spec": {"anything": [1]}}},
        "spec.cleanup": {"podTemplate": {"metadata": {"labels": {"team": "a"}}, "spec": {"tolerations": [{}]}}},
        "spec.sparkConf": {"spark.master": "local[2]", "spark.kubernetes.executor.deleteOnTermination": "false"},
        "spec.env": [
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "spec.volumes": [
            {"name": "a", "mountPath": "/a", "readOnly": True, "source": {"persistentVolumeClaim": {"claimName": "a"}}},
            {"name": "b", "mountPath": "/b", "source": {"emptyDir": {}}},
        ],
        "spec.serviceAccount": "spark",
    }
)


@pytest.fixture
def job(server: Server) -> Iterator[dict[str, Any]]:
    """The good manifest, created."""
    yield server.create(yaml.safe_dump(dict(GOOD)))
    server.delete("words")


def patched(server: Server, change: dict[str, Any], below: str = "") -> Any:
    return server.request("PATCH", f"{JOBS}/words{below}?{STRICT}", json.dumps(change), MERGE)


def test_everything_that_may_be_set_is_taken_as_it_is(server: Server) -> None:
    taken = server.create(yaml.safe_dump(FULL), dry=True)
    assert taken["spec"]["volumes"][1].pop("readOnly") is False
    assert taken["spec"] == FULL["spec"]


def test_everything_that_may_be_set_is_taken_without_a_cluster_too() -> None:
    assert validated(FULL)["spec"]["sparkConf"] == FULL["spec"]["sparkConf"]
    assert parse_job(FULL).executor.instances == 3


def test_defaults_are_those_without_a_cluster(job: dict[str, Any]) -> None:
    assert job["spec"] == validated(dict(GOOD))["spec"]
    assert job["spec"]["checkpoint"]["interval"] == "10s"
    assert job["spec"]["restartPolicy"]["maxBackoff"] == "5m"
    assert "maxRestarts" not in job["spec"]["restartPolicy"], "as often as it takes"


def test_null_is_left_out(server: Server) -> None:
    manifest = changed({"spec.image": None, "spec.state": None, "spec.checkpoint.retention": None})
    assert server.create(yaml.safe_dump(manifest), dry=True)["spec"] == validated(manifest)["spec"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_are_taken(server: Server, path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        if document["kind"] == "StreamingJob":
            document["metadata"]["namespace"] = "default"
            server.create(yaml.safe_dump(document), dry=True)


def test_a_client_that_is_not_strict_loses_unknown_fields(server: Server) -> None:
    text = yaml.safe_dump(changed({"spec.checkpont": {"interval": "5s"}}))
    created = server.request("POST", f"{JOBS}?fieldValidation=Ignore&dryRun=All", text)
    assert "checkpont" not in created["spec"]


def test_interval_and_endpoint_can_be_edited(server: Server, job: dict[str, Any]) -> None:
    change = {"spec": {"checkpoint": {"interval": "30s", "storage": {"endpoint": "http://elsewhere:9000"}}}}
    edited = patched(server, change)
    assert edited["spec"]["checkpoint"]["interval"] == "30s"
    assert edited["metadata"]["generation"] == job["metadata"]["generation"] + 1


def test_storage_can_be_added(server: Server) -> None:
    server.create(yaml.safe_dump(changed({"spec.checkpoint": {}})))
    try:
        patched(server, {"spec": {"checkpoint": {"storage": {"uri": "gs://bucket/root"}}}})
    finally:
        server.delete("words")


def test_status_is_apart_from_spec(server: Server, job: dict[str, Any]) -> None:
    edited = patched(server, {"status": {"phase": "Running"}, "spec": {"state": "Suspended"}}, "/status")
    assert (edited["status"]["phase"], edited["spec"]["state"]) == ("Running", "Running")
    assert edited["metadata"]["generation"] == job["metadata"]["generation"]


def test_scale_sets_the_executors(server: Server, job: dict[str, Any]) -> None:
    patched(server, {"status": {"executors": 1}}, "/status")
    scale = patched(server, {"spec": {"replicas": 5}}, "/scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (5, 1)
    assert server.request("GET", f"{JOBS}/words")["spec"]["executor"]["instances"] == 5


def test_scale_keeps_the_bounds(server: Server, job: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=r"spec\.executor\.instances in body should be greater than or equal to 1"):
        patched(server, {"spec": {"replicas": 0}}, "/scale")


def test_columns(server: Server, job: dict[str, Any]) -> None:
    moment = job["metadata"]["creationTimestamp"]
    last = {"epoch": 7, "finished": moment, "duration": "1.3s", "bytes": 4096}
    ready = {"type": "Ready", "status": "True", "reason": "Running", "message": "", "lastTransitionTime": moment}
    status = {"phase": "Running", "epoch": 7, "generation": 2, "lastCheckpoint": last, "conditions": [ready]}
    status |= {"lag": "2.5s", "rowsPerSecond": 1200, "restarts": {"total": 3}}
    patched(server, {"status": status}, "/status")
    table = server.table()
    cells = dict(zip([column["name"] for column in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))
    wide = [column["name"] for column in table["columnDefinitions"] if column["priority"]]
    assert wide == ["Generation", "Size", "Duration", "Reason"]
    assert {name: cell for name, cell in cells.items() if name not in ("Last checkpoint", "Age")} == {
        "Name": "words",
        "Ready": "True",
        "Phase": "Running",
        "Epoch": 7,
        "Lag": "2.5s",
        "Rows/s": 1200,
        "Restarts": 3,
        "Generation": 2,
        "Size": 4096,
        "Duration": "1.3s",
        "Reason": "Running",
    }
    assert cells["Last checkpoint"].endswith("s")


def test_short_name_and_categories(server: Server) -> None:
    resources = server.request("GET", "/apis/epochal.dev/v1alpha1")["resources"]
    found = {resource["name"]: resource for resource in resources}
    assert set(found) == {"streamingjobs", "streamingjobs/status", "streamingjobs/scale"}
    assert found["streamingjobs"]["shortNames"] == ["sjob"]
    assert found["streamingjobs"]["categories"] == ["all", "epochal"]


def test_fields_are_explained(server: Server) -> None:
    """`kubectl explain sjob.spec.checkpoint` reads this."""
    schemas = server.request("GET", "/openapi/v3/apis/epochal.dev/v1alpha1")["components"]["schemas"]
    spec = schemas["dev.epochal.v1alpha1.StreamingJob"]["properties"]["spec"]["properties"]
    explained = spec["checkpoint"]["properties"]["interval"]["description"]
    assert explained.startswith("Time between the completion of one checkpoint")
