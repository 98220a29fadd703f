"""The Kubernetes objects of a job, built from its spec. Pure: the same spec gives the same objects.

====================  ============================================================  =================
object                what for                                                      lives as long as
====================  ============================================================  =================
Service, headless     a name for whichever driver runs                              the job
PodDisruptionBudget   lets a drain wait for the driver's last checkpoint            the job
ConfigMap             one generation's driver configuration and executor template   the generation
Secret                its control server's token and certificate, Spark's secret    the ConfigMap
Pod                   one generation's driver                                       the generation
====================  ============================================================  =================

All are owned by the StreamingJob, so that none outlives it. The Secret is owned by the ConfigMap: whoever may delete
Secrets may delete all of a namespace, and so the operator may not. Kubernetes does it.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from epochal.control.job import JobSpec
from epochal.control.schema import API_VERSION, KIND
from epochal.protocol.control import (
    CAUSE_VARIABLE,
    CERTIFICATE_FILE,
    GRACE_VARIABLE,
    IN_PLACE_VARIABLE,
    POD_ADDRESS_VARIABLE,
    PRIVATE_KEY_FILE,
    SECRETS_VARIABLE,
    SERVER_TOKEN_FILE,
    TOKEN_VARIABLE,
    DriverConfig,
    RestoreConfig,
)
from epochal.protocol.epochs import Generation
from epochal_operator.api import JsonObject
from epochal_operator.kubernetes.manifests.pod_template import merged, merged_items
from epochal_operator.kubernetes.manifests.spark_conf import (
    EXECUTOR_CONTAINER,
    SCRATCH,
    SECRETS_DIRECTORY,
    SPARK_SECRET_FILE,
    pod_memory,
    spark_conf,
    spark_secret_is_ours,
)
from epochal_operator.names import (
    BLOCK_MANAGER_PORT,
    CONTROL_PORT,
    DRIVER_PORT,
    GENERATION_LABEL,
    Role,
    budget_name,
    driver_name,
    keys_name,
    labels,
    service_name,
)

TOKEN_KEY = "token"
"""In a generation's Secret: the token for drivers of releases before TLS, which take it from a variable."""
AUTHORITY_KEY = "ca.crt"
SPARK_EXECUTOR_KEY = "spark-of-executors"
SPARK_VARIABLE = "_SPARK_AUTH_SECRET"
"""Where an executor of Spark looks for the secret first. A file would not do: Spark reads one only in a process that
knows its master, and an executor has to ask the driver for that."""
CONFIG_DIRECTORY = "/etc/epochal/driver"
PIPELINE_DIRECTORY = "/etc/epochal/pipeline"
CONFIG_KEY = "driver.json"
TEMPLATE_KEY = "executor-template.json"
DRIVER_CONTAINER = "driver"
TERMINATION_LOG = "/dev/termination-log"
DRIVER_GRACE = 60
"""Seconds that a driver has for its last checkpoint when its pod is evicted; a template may say otherwise."""
EXECUTOR_GRACE = 60
"""The same for executors: state that is only there is lost with the first of them."""

RESTRICTED_POD: JsonObject = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED: JsonObject = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

_REVISION_FIELDS = (
    "image",
    "imagePullPolicy",
    "pipeline",
    "driver",
    "executor",
    "sparkConf",
    "env",
    "volumes",
    "serviceAccount",
)
_LIVE_FIELDS = {"driver": ("startTimeout", "unreachableTimeout")}


def revision(spec: Mapping[str, Any], restart: str) -> str:
    """A name for all that only a new driver can take on, and for the wish to restart it. ``spec`` is the manifest's,
    defaults filled in. Another way of making it would restart every job with an update of the operator."""
    relevant: JsonObject = {name: spec.get(name) for name in _REVISION_FIELDS}
    for name, live in _LIVE_FIELDS.items():
        relevant[name] = {key: value for key, value in (spec.get(name) or {}).items() if key not in live}
    relevant["storage"] = spec.get("checkpoint", {}).get("storage")
    relevant["restart"] = restart
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:16]


def owner(body: Mapping[str, Any]) -> JsonObject:
    metadata = body["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _metadata(spec: JobSpec, owned_by: JsonObject, name: str, role: Role | None = None) -> JsonObject:
    return {
        "name": name,
        "namespace": spec.namespace,
        "labels": labels(spec.name, role),
        "ownerReferences": [owned_by],
    }


# --- what lives as long as the job ------------------------------------------------------------------------------------


def service(spec: JobSpec, owned_by: JsonObject) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(spec, owned_by, service_name(spec.name)),
        "spec": {
            "clusterIP": "None",
            # Executors must find a driver that is still restoring.
            "publishNotReadyAddresses": True,
            "selector": labels(spec.name, Role.DRIVER),
            "ports": [
                {"name": "control", "port": CONTROL_PORT},
                {"name": "driver", "port": DRIVER_PORT},
                {"name": "blocks", "port": BLOCK_MANAGER_PORT},
            ],
        },
    }


def disruption_budget(spec: JobSpec, owned_by: JsonObject) -> JsonObject:
    """No eviction takes a driver that is ready: the operator moves it. One that is not ready can be evicted: it has not
    begun, or no operator asks for it."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(spec, owned_by, budget_name(spec.name)),
        "spec": {
            "minAvailable": 1,
            "selector": {"matchLabels": labels(spec.name, Role.DRIVER)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


# --- what lives as long as a generation -------------------------------------------------------------------------------


def driver_config(spec: JobSpec, generation: Generation, restore: RestoreConfig) -> DriverConfig:
    assert spec.storage is not None, "a job without a store is not accepted"
    config_map = spec.pipeline.config_map
    return DriverConfig(
        namespace=spec.namespace,
        job=spec.name,
        generation=generation,
        storage=spec.storage.config,
        pipeline=spec.pipeline.config(f"{PIPELINE_DIRECTORY}/{config_map.key}" if config_map else None),
        restore=restore,
        spark_conf=spark_conf(spec, generation),
        host="0.0.0.0",
        port=CONTROL_PORT,
        work_dir=f"{SCRATCH}/epochal",
    )


def name_of_keys(spec: JobSpec, config: DriverConfig) -> str:
    """Of the Secret of a generation that is about to start."""
    told = _encoded(config) + json.dumps(executor_template(spec, ""))
    return keys_name(spec.name, config.generation, hashlib.sha256(told.encode()).hexdigest()[:8])


def _encoded(config: DriverConfig) -> str:
    return msgspec.json.format(msgspec.json.encode(config)).decode()


def keys_secret(spec: JobSpec, config_map: JsonObject, name: str, data: Mapping[str, bytes]) -> JsonObject:
    """``config_map``: the generation's, as the API server knows it."""
    told = config_map["metadata"]
    owned_by = {"apiVersion": "v1", "kind": "ConfigMap", "name": told["name"], "uid": told["uid"], "controller": True}
    metadata = _metadata(spec, owned_by, name)
    metadata["labels"][GENERATION_LABEL] = told["labels"][GENERATION_LABEL]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def config_map(spec: JobSpec, owned_by: JsonObject, config: DriverConfig, keys: str) -> JsonObject:
    """``keys``: the generation's Secret. Made again, it names the one that the driver was started with."""
    metadata = _metadata(spec, owned_by, driver_name(spec.name, config.generation))
    metadata["labels"][GENERATION_LABEL] = str(config.generation)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "data": {
            CONFIG_KEY: _encoded(config),
            TEMPLATE_KEY: json.dumps(executor_template(spec, keys), indent=2),
        },
    }


def driver_pod(spec: JobSpec, owned_by: JsonObject, generation: Generation, keys: str) -> JsonObject:
    """Defaults of ours, over them the spec's template, over that what must be so. ``keys``: the generation's Secret."""
    name = driver_name(spec.name, generation)
    memory = pod_memory(spec.driver.memory)
    template = spec.driver.pod_template or {}
    grace = (template.get("spec") or {}).get("terminationGracePeriodSeconds")
    grace = DRIVER_GRACE if grace is None else grace
    defaults: JsonObject = {
        "spec": {
            "securityContext": RESTRICTED_POD,
            "containers": [
                {
                    "name": DRIVER_CONTAINER,
                    "securityContext": RESTRICTED,
                    "resources": {
                        "requests": {"cpu": str(spec.driver.cores), "memory": memory},
                        "limits": {"memory": memory},
                    },
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": "control"}, "periodSeconds": 5},
                }
            ],
        }
    }
    metadata = _metadata(spec, owned_by, name, Role.DRIVER)
    metadata["labels"][GENERATION_LABEL] = str(generation)
    token = {"secretKeyRef": {"name": keys, "key": TOKEN_KEY}}
    files = (SERVER_TOKEN_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE, SPARK_SECRET_FILE)
    fixed: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            # A driver that ends is followed by a new generation, never by itself.
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace,
            "serviceAccountName": spec.account,
            "volumes": [
                {"name": "epochal-driver", "configMap": {"name": name}},
                {
                    "name": "epochal-secrets",
                    "secret": {"secretName": keys, "items": [{"key": file, "path": file} for file in files]},
                },
                *pod_volumes(spec),
            ],
            "containers": [
                {
                    "name": DRIVER_CONTAINER,
                    "image": spec.image,
                    "imagePullPolicy": spec.image_pull_policy,
                    "command": ["python", "-m", "epochal.driver", f"{CONFIG_DIRECTORY}/{CONFIG_KEY}"],
                    # A template's would be added to the command.
                    "args": [],
                    "terminationMessagePath": TERMINATION_LOG,
                    # One that is killed writes no cause: then the end of its log has the last error.
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "ports": [
                        {"name": "control", "containerPort": CONTROL_PORT},
                        {"name": "driver", "containerPort": DRIVER_PORT},
                        {"name": "blocks", "containerPort": BLOCK_MANAGER_PORT},
                    ],
                    "env": [
                        *environment(spec),
                        {"name": TOKEN_VARIABLE, "valueFrom": token},
                        {"name": SECRETS_VARIABLE, "value": SECRETS_DIRECTORY},
                        {"name": GRACE_VARIABLE, "value": str(grace)},
                        {"name": IN_PLACE_VARIABLE, "value": "true"},
                        {"name": CAUSE_VARIABLE, "value": TERMINATION_LOG},
                        {"name": POD_ADDRESS_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                    "envFrom": credentials(spec),
                    "volumeMounts": [
                        {"name": "epochal-driver", "mountPath": CONFIG_DIRECTORY, "readOnly": True},
                        {"name": "epochal-secrets", "mountPath": SECRETS_DIRECTORY, "readOnly": True},
                        *volume_mounts(spec),
                    ],
                }
            ],
        },
    }
    return merged(merged(defaults, template), fixed)


def executor_template(spec: JobSpec, keys: str) -> JsonObject:
    """The template that Spark makes executor pods from; what it knows itself it fills in. ``keys``: the generation's
    Secret."""
    secret = {"name": SPARK_VARIABLE, "valueFrom": {"secretKeyRef": {"name": keys, "key": SPARK_EXECUTOR_KEY}}}
    ours: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels(spec.name, Role.EXECUTOR)},
        "spec": {
            "serviceAccountName": spec.account,
            "volumes": pod_volumes(spec),
            "containers": [
                {
                    "name": EXECUTOR_CONTAINER,
                    "env": [*environment(spec), *([secret] if spark_secret_is_ours(spec) else [])],
                    "envFrom": credentials(spec),
                    "volumeMounts": volume_mounts(spec),
                }
            ],
        },
    }
    defaults: JsonObject = {
        "spec": {
            "securityContext": RESTRICTED_POD,
            # Executors talk to the driver and the store, never to the API server.
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": EXECUTOR_GRACE,
            "containers": [
                {
                    "name": EXECUTOR_CONTAINER,
                    "securityContext": RESTRICTED,
                    # Evicted, it works on until the driver has made its last checkpoint and ends it.
                    "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(EXECUTOR_GRACE)]}}},
                }
            ],
        }
    }
    return merged(merged(defaults, spec.executor.pod_template or {}), ours)


# --- what driver, executors and cleanups share ------------------------------------------------------------------------


def environment(spec: JobSpec) -> list[JsonObject]:
    ours: list[JsonObject] = [{"name": "PYTHONUNBUFFERED", "value": "1"}, {"name": "HOME", "value": SCRATCH}]
    if spec.pipeline.config_map:
        # Python workers import what the program defines from the same file.
        ours.append({"name": "PYTHONPATH", "value": PIPELINE_DIRECTORY})
    return merged_items(ours, [dict(item) for item in spec.env])


def credentials(spec: JobSpec) -> list[JsonObject]:
    secret = spec.storage.credentials_secret if spec.storage else None
    return [{"secretRef": {"name": secret}}] if secret else []


def pod_volumes(spec: JobSpec) -> list[JsonObject]:
    volumes: list[JsonObject] = [{"name": "epochal-scratch", "emptyDir": {}}]
    if spec.pipeline.config_map:
        volumes.append({"name": "epochal-pipeline", "configMap": {"name": spec.pipeline.config_map.name}})
    return volumes + [{"name": volume["name"], **volume["source"]} for volume in spec.volumes]


def volume_mounts(spec: JobSpec) -> list[JsonObject]:
    mounts: list[JsonObject] = [{"name": "epochal-scratch", "mountPath": SCRATCH}]
    if spec.pipeline.config_map:
        mounts.append({"name": "epochal-pipeline", "mountPath": PIPELINE_DIRECTORY, "readOnly": True})
    return mounts + [
        {"name": volume["name"], "mountPath": volume["mountPath"], "readOnly": volume.get("readOnly", False)}
        for volume in spec.volumes
    ]
