"""The Kubernetes objects of a job, and what is read from them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from epochal.control.job import ConfigMapKey, JobSpec, PipelineSpec, ProcessSpec, StorageSpec
from epochal.protocol.control import DriverConfig, RestoreConfig, StorageConfig
from epochal.protocol.decision import CleanupExists, CleanupFailed, CleanupRefused, CleanupSucceeded, NoCleanup
from epochal.protocol.epochs import Epoch, Generation
from epochal_operator.api import JsonObject
from epochal_operator.kubernetes import pod_state
from epochal_operator.kubernetes.manifests.cleanup_job import cleanup_job, cleanup_state
from epochal_operator.kubernetes.manifests.pod_template import merged
from epochal_operator.kubernetes.manifests.resources import (
    config_map,
    driver_config,
    driver_pod,
    executor_template,
    revision,
)
from epochal_operator.kubernetes.manifests.spark_conf import pod_memory, spark_conf
from epochal_operator.reporting.timestamps import parse_timestamp

SPEC = JobSpec(
    namespace="shop",
    name="revenue",
    image="spark:1",
    pipeline=PipelineSpec(module="shop.pipeline"),
    storage=StorageSpec(
        config=StorageConfig(uri="s3://bucket/prefix", endpoint="http://s3:9000", region="eu-1"),
        credentials_secret="keys",
    ),
    executor=ProcessSpec(cores=2, memory="2g", instances=3),
)
OWNER: JsonObject = {"apiVersion": "epochal.dev/v1alpha1", "kind": "StreamingJob", "name": "revenue", "uid": "u"}
SEVEN = Generation(7)
KEYS = "revenue-driver-7-keys"


def container(pod: JsonObject) -> JsonObject:
    found: JsonObject = pod["spec"]["containers"][0]
    return found


def named(items: list[JsonObject], name: str) -> JsonObject:
    return next(item for item in items if item["name"] == name)


def test_the_configuration_of_a_driver_is_what_it_can_read() -> None:
    config = driver_config(SPEC, SEVEN, RestoreConfig(known=Epoch(4), issued=Epoch(5)))
    data = config_map(SPEC, OWNER, config, KEYS)["data"]
    assert msgspec.json.decode(data["driver.json"], type=DriverConfig) == config
    assert config.host == "0.0.0.0"
    assert config.pipeline.module == "shop.pipeline:build"


def test_executors_belong_to_the_drivers_pod() -> None:
    conf = spark_conf(SPEC, SEVEN)
    pod = driver_pod(SPEC, OWNER, SEVEN, KEYS)
    assert conf["spark.kubernetes.driver.pod.name"] == pod["metadata"]["name"] == "revenue-driver-7"
    assert conf["spark.executor.instances"] == "3"
    assert conf["spark.master"].startswith("k8s://")


def test_a_local_master_needs_no_executors() -> None:
    conf = spark_conf(replace(SPEC, spark_conf={"spark.master": "local[2]"}), SEVEN)
    assert conf["spark.master"] == "local[2]"
    assert not any(key.startswith("spark.kubernetes") for key in conf)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ({}, True),
        ({"spark.authenticate.secretBitLength": "512"}, True),
        ({"spark.authenticate.secret": "mine"}, False),
        ({"spark.authenticate.secret.file": "/mine"}, False),
        ({"spark.authenticate.secret.driver.file": "/mine", "spark.authenticate.secret.executor.file": "/mine"}, False),
        ({"spark.authenticate": "false"}, False),
    ],
)
def test_a_job_has_the_generations_secret_unless_it_names_one_of_its_own(given: dict[str, str], ours: bool) -> None:
    spec = replace(SPEC, spark_conf=given)
    variables = [item["name"] for item in container(executor_template(spec, KEYS))["env"]]
    assert (spark_conf(spec, SEVEN).get("spark.authenticate.secret.file", "/mine") != "/mine") is ours
    assert ("_SPARK_AUTH_SECRET" in variables) is ours


def test_driver_executors_and_cleanup_get_credentials_variables_and_volumes() -> None:
    spec = replace(
        SPEC,
        env=({"name": "STAGE", "value": "test"},),
        volumes=({"name": "data", "mountPath": "/data", "readOnly": True, "source": {"emptyDir": {}}},),
        pipeline=PipelineSpec(config_map=ConfigMapKey(name="program", key="shop.py")),
    )
    for pod in pods_of(spec):
        found = container(pod)
        assert found["envFrom"] == [{"secretRef": {"name": "keys"}}]
        assert named(found["env"], "STAGE")["value"] == "test"
        assert named(found["volumeMounts"], "data") == {"name": "data", "mountPath": "/data", "readOnly": True}
        assert named(pod["spec"]["volumes"], "data") == {"name": "data", "emptyDir": {}}
        assert named(pod["spec"]["volumes"], "epochal-pipeline")["configMap"] == {"name": "program"}
        assert found["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert driver_config(spec, SEVEN, RestoreConfig()).pipeline.file == "/etc/epochal/pipeline/shop.py"


def test_a_template_adds_to_a_pod_and_replaces_defaults_but_not_what_must_be_so() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"team": "shop"}, "annotations": {"a": "b"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "restartPolicy": "Always",
            "containers": [
                {"name": "driver", "resources": {"requests": {"cpu": "250m"}}, "image": "other", "args": ["x"]},
                {"name": "sidecar", "image": "proxy"},
            ],
        },
    }
    pod = driver_pod(replace(SPEC, driver=ProcessSpec(pod_template=template)), OWNER, SEVEN, KEYS)
    assert pod["metadata"]["labels"]["team"] == "shop"
    assert pod["metadata"]["labels"]["epochal.dev/job"] == "revenue"
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["restartPolicy"] == "Never"
    assert [item["name"] for item in pod["spec"]["containers"]] == ["driver", "sidecar"]
    found = container(pod)
    assert (found["image"], found["args"]) == ("spark:1", [])
    assert found["resources"]["requests"] == {"cpu": "250m", "memory": pod_memory("1g")}


def pods_of(spec: JobSpec) -> list[JsonObject]:
    """One of each kind: driver, executor, cleanup."""
    return [
        driver_pod(spec, OWNER, SEVEN, KEYS),
        executor_template(spec, KEYS),
        cleanup_job(spec, OWNER, Epoch(3))["spec"]["template"],
    ]


@pytest.mark.parametrize(("named", "account"), [(None, "epochal-driver"), ("mine", "mine")])
def test_all_pods_of_a_job_run_as_one_account(named: str | None, account: str) -> None:
    """A template cannot change that: workload identity would fail for one kind of pod."""
    other = {"spec": {"serviceAccountName": "other"}}
    spec = replace(
        SPEC,
        service_account=named,
        driver=ProcessSpec(pod_template=other),
        executor=ProcessSpec(pod_template=other),
        cleanup_template=other,
    )
    assert [pod["spec"]["serviceAccountName"] for pod in pods_of(spec)] == [account] * 3
    # Spark looks at its own setting before it looks at the template.
    assert spark_conf(spec, SEVEN)["spark.kubernetes.authenticate.executor.serviceAccountName"] == account


def test_only_the_driver_gets_a_token_of_the_api_server() -> None:
    assert [pod["spec"].get("automountServiceAccountToken") for pod in pods_of(SPEC)] == [None, False, False]


def test_a_cleanup_takes_its_template_but_keeps_what_it_deletes() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"azure.workload.identity/use": "true", "app.kubernetes.io/managed-by": "me"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "batch", "operator": "Exists"}],
            "restartPolicy": "OnFailure",
            "containers": [
                {
                    "name": "cleanup",
                    "image": "other",
                    "command": ["rm"],
                    "args": ["--min-epoch=999"],
                    "resources": {"limits": {"memory": "4Gi"}},
                }
            ],
        },
    }
    plain = cleanup_job(SPEC, OWNER, Epoch(3))
    job = cleanup_job(replace(SPEC, cleanup_template=template), OWNER, Epoch(3))
    assert job["metadata"] == plain["metadata"]
    pod = job["spec"]["template"]
    assert pod["metadata"]["labels"] == plain["metadata"]["labels"] | {"azure.workload.identity/use": "true"}
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["tolerations"] == [{"key": "batch", "operator": "Exists"}]
    assert pod["spec"]["restartPolicy"] == "Never"
    found, before = container(pod), container(plain["spec"]["template"])
    assert [found[name] for name in ("image", "command", "args")] == ["spark:1", before["command"], []]
    assert found["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "4Gi"}}
    assert found["securityContext"] == before["securityContext"]


def test_of_two_volumes_of_one_name_the_later_counts_alone() -> None:
    base = {"volumes": [{"name": "a", "emptyDir": {}}]}
    assert merged(base, {"volumes": [{"name": "a", "secret": {}}]}) == {"volumes": [{"name": "a", "secret": {}}]}
    assert merged({"args": ["a"]}, {"args": ["b"]}) == {"args": ["b"]}


@pytest.mark.parametrize(("heap", "memory"), [("512m", "896Mi"), ("1g", "1434Mi"), ("10g", "14336Mi")])
def test_a_pod_has_room_for_more_than_the_heap(heap: str, memory: str) -> None:
    assert pod_memory(heap) == memory


def test_the_revision_names_what_only_a_new_driver_can_take_on() -> None:
    spec: dict[str, Any] = {
        "image": "a",
        "driver": {"cores": 1, "startTimeout": "1m"},
        "checkpoint": {"interval": "1s", "storage": {"uri": "s3://b"}},
    }
    first = revision(spec, "")
    assert revision(spec | {"state": "Suspended", "restartPolicy": {}, "restore": {"fromEpoch": 3}}, "") == first
    assert revision(spec | {"driver": {"cores": 1, "startTimeout": "9m"}}, "") == first
    assert revision(spec | {"checkpoint": spec["checkpoint"] | {"interval": "9s"}}, "") == first
    assert revision(spec | {"cleanup": {"podTemplate": {}}}, "") == first
    others = [
        revision(spec | {"image": "b"}, ""),
        revision(spec | {"driver": {"cores": 2}}, ""),
        revision(spec | {"executor": {"instances": 2}}, ""),
        revision(spec | {"checkpoint": {"storage": {"uri": "s3://b", "region": "r"}}}, ""),
        revision(spec, "now"),
    ]
    assert len({first, *others}) == 6


# --- what pods and Jobs say -------------------------------------------------------------------------------------------


def pod_with(status: JsonObject, role: str = "driver") -> JsonObject:
    labels = {"epochal.dev/role": role, "epochal.dev/generation": "7"}
    return {"metadata": {"name": "p", "namespace": "shop", "labels": labels}, "status": status}


def terminated(name: str = "driver", **state: Any) -> JsonObject:
    return {"containerStatuses": [{"name": name, "state": {"terminated": state}}]}


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({"phase": "Failed", **terminated(exitCode=1, reason="Error", message="a\nb\n")}, 1, "b"),
        (
            {
                "phase": "Failed",
                **terminated(exitCode=1, message="2026-11-17 02:13:26,640 ERROR __main__ 'out' failed"),
            },
            1,
            "'out' failed",
        ),
        ({"phase": "Succeeded", **terminated(exitCode=0, reason="Completed")}, 0, ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "node was low on memory"}, None, "Evicted: node was low"),
        ({"phase": "Failed", **terminated(exitCode=137, reason="OOMKilled")}, 137, "it ran out of memory"),
        (
            {"phase": "Failed", **terminated(exitCode=128, reason="StartError", message="no exec")},
            128,
            "StartError: no",
        ),
    ],
)
def test_how_a_driver_ended(status: JsonObject, code: int | None, message: str) -> None:
    ended = pod_state.ended(pod_with(status))
    assert ended is not None
    assert (ended.generation, ended.code) == (7, code)
    assert ended.message.startswith(message)


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        ({"phase": "Pending"}, ""),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]},
            "ErrImagePull: no such image",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
                ]
            },
            "Unschedulable: no node",
        ),
    ],
)
def test_what_a_pod_waits_for(status: JsonObject, waiting: str) -> None:
    pod = pod_with({"phase": "Pending", **status})
    assert pod_state.ended(pod) is None
    assert pod_state.waits_for(pod) == waiting


def test_what_became_of_a_cleanup() -> None:
    def job(*conditions: JsonObject) -> list[JsonObject]:
        metadata = {"name": "c", "creationTimestamp": "2026-11-18T12:00:00Z"}
        return [{"metadata": metadata, "status": {"conditions": list(conditions)}}]

    made = parse_timestamp("2026-11-18T12:00:00Z")

    failed = {"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"}
    said = pod_with({"phase": "Failed", **terminated("cleanup", exitCode=1, message="bucket is gone")}, "cleanup")
    assert cleanup_state([], [], made) == NoCleanup()
    assert cleanup_state(job(), [], made + 19) == CleanupExists()
    assert cleanup_state(job({"type": "Complete", "status": "True"}), [], made) == CleanupSucceeded()
    assert cleanup_state(job(failed), [said], made) == CleanupFailed("bucket is gone")
    assert cleanup_state(job(failed), [], made) == CleanupFailed("Job has reached the specified backoff limit")
    assert isinstance(cleanup_state(job(), [], made + 21), CleanupRefused), "its pod is refused"
    assert cleanup_state(job(), [pod_with({"phase": "Pending"}, "cleanup")], made + 100) == CleanupExists()


def test_a_cleanup_is_told_where_and_up_to_what() -> None:
    command = container(cleanup_job(SPEC, OWNER, Epoch(3))["spec"]["template"])["command"]
    assert command[4:] == [
        "s3://bucket/prefix",
        "--endpoint=http://s3:9000",
        "--region=eu-1",
        "--namespace=shop",
        "--job=revenue",
        "--min-epoch=3",
    ]
