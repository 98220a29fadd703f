"""Bad manifests, each with words that the answer must hold: the table behind docs/bad-manifests.md.

A case is the good manifest below with some fields set otherwise. ``says`` must be in the API server's answer.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

GOOD: Mapping[str, Any] = {
    "apiVersion": "epochal.dev/v1alpha1",
    "kind": "StreamingJob",
    "metadata": {"name": "words", "namespace": "default"},
    "spec": {"pipeline": {"module": "jobs.words"}, "checkpoint": {"storage": {"uri": "s3://bucket/root"}}},
}


class Nothing(Enum):
    """Stands for a field that is left out."""

    REMOVED = "left out"


REMOVED = Nothing.REMOVED

DURATION = "write a duration in whole ms, s, m and h, such as 500ms, 10s or 1m30s"
BETWEEN = "must be between 100ms and 24h"
URI = "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH"
HEAP = "write the heap as Spark does, a whole number with m or g, such as 512m or 4g (not 4Gi)"
NAME = "write a Kubernetes name"
PROGRAM = "set exactly one of module, configMap, file and sql"
NO_FUNCTION = "SQL has no function that builds it: leave function out"
SIZES = "sizes have fields of their own"
OPERATOR_SETS = "the operator sets"


@dataclass(frozen=True, kw_only=True)
class Case:
    """``changes`` by dotted path. ``before`` makes it an update of a job with these. ``text`` replaces it all."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    says: str
    before: Mapping[str, Any] | None = None
    text: str = ""

    @property
    def manifest(self) -> dict[str, Any]:
        return changed(self.changes)


def case(path: str, value: Any, says: str) -> Case:
    return Case(changes={path: value}, says=says)


def changed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The good manifest with ``changes``; a path goes through mappings only."""
    manifest = deepcopy(dict(GOOD))
    for path, value in changes.items():
        *above, last = path.split(".")
        inside = manifest
        for name in above:
            inside = inside.setdefault(name, {})
        if value is REMOVED:
            inside.pop(last, None)
        else:
            inside[last] = value
    return manifest


def update(before: Mapping[str, Any], changes: Mapping[str, Any], says: str) -> Case:
    return Case(before=before, changes=changes, says=says)


IDENTITY = [
    case("apiVersion", "epochal.dev/v1", "cannot be handled as a StreamingJob"),
    case("kind", "StreamJob", "must be StreamingJob"),
    case("metadata.name", REMOVED, "name or generateName is required"),
    case("metadata.name", "Words", "a lowercase RFC 1123 subdomain"),
    case("metadata.name", "2-words", "use a-z, 0-9 and '-' in a job's name, beginning with a letter"),
    case("metadata.name", "words.hourly", "use a-z, 0-9 and '-' in a job's name"),
    case("metadata.name", "w" * 64, "may not be more than 63"),
    case("spec", REMOVED, "spec: Required value"),
    case("spec", None, "spec: Required value"),
    case("spec", [], "spec in body must be of type object"),
    case("spec.image", "https://example.org/spark:1", "write an image as in a pod"),
    case("spec.image", "spark latest", "write an image as in a pod"),
    case("spec.image", "", "write an image as in a pod"),
    case("spec.image", "spark@sha256:abc", "write an image as in a pod"),
    case("spec.imagePullPolicy", "Sometimes", 'supported values: "Always", "IfNotPresent", "Never"'),
    case("spec.state", "running", 'supported values: "Running", "Suspended"'),
    case("spec.state", True, "spec.state in body must be of type string"),
    case("spec.serviceAccount", "Spark_Driver", NAME),
]

PIPELINE = [
    case("spec.pipeline", REMOVED, "spec.pipeline: Required value"),
    case("spec.pipeline", None, "spec.pipeline: Required value"),
    case("spec.pipeline", {}, PROGRAM),
    case("spec.pipeline", "jobs.words", "spec.pipeline in body must be of type object"),
    case("spec.pipeline.file", "words.py", PROGRAM),
    case("spec.pipeline.configMap", {"name": "words"}, PROGRAM),
    case("spec.pipeline.module", "jobs/words.py", "write package.module or package.module:function"),
    case("spec.pipeline.module", "jobs.my-words", "write package.module or package.module:function"),
    case("spec.pipeline.module", "jobs.words:", "write package.module or package.module:function"),
    case("spec.pipeline.module", "jobs.words:build()", "write package.module or package.module:function"),
    case("spec.pipeline", {"module": "jobs.words:build", "function": "other"}, "module names a function already"),
    case("spec.pipeline.function", "1st", "write the name of a Python function"),
    case("spec.pipeline", {"file": "words.ipynb"}, "must name a Python file, which ends in .py, or an SQL file"),
    case("spec.pipeline.sql", "INSERT INTO out SELECT * FROM words", PROGRAM),
    case("spec.pipeline", {"file": "words.py", "sql": "INSERT INTO out SELECT * FROM words"}, PROGRAM),
    case("spec.pipeline", {"sql": ""}, "should be at least 1 chars long"),
    case("spec.pipeline", {"sql": ["INSERT INTO out SELECT 1"]}, "spec.pipeline.sql in body must be of type string"),
    case("spec.pipeline", {"sql": "INSERT INTO out SELECT 1", "function": "make"}, NO_FUNCTION),
    case("spec.pipeline", {"file": "words.sql", "function": "make"}, NO_FUNCTION),
    case("spec.pipeline", {"configMap": {"name": "words", "key": "words.sql"}, "function": "make"}, NO_FUNCTION),
    case("spec.pipeline", {"configMap": {"key": "words.py"}}, "spec.pipeline.configMap.name: Required value"),
    case("spec.pipeline", {"configMap": {"name": "My_Words"}}, NAME),
    case("spec.pipeline", {"configMap": {"name": "words", "key": "jobs/words.py"}}, "write a ConfigMap's key"),
    case("spec.pipeline.parameters", {"limit": 5}, "spec.pipeline.parameters.limit in body must be of type string"),
    case("spec.pipeline.parameters", {"on": True}, "must be of type string"),
    case("spec.pipeline.parameters", ["limit=5"], "spec.pipeline.parameters in body must be of type object"),
    case("spec.pipeline.parameters", {"text": "x" * 65537}, "may not be more than 65536"),
]

CHECKPOINT = [
    case("spec.checkpoint.interval", 10, "spec.checkpoint.interval in body must be of type string"),
    case("spec.checkpoint.interval", "10", DURATION),
    case("spec.checkpoint.interval", "", DURATION),
    case("spec.checkpoint.interval", "10 s", DURATION),
    case("spec.checkpoint.interval", "1.5m", DURATION),
    case("spec.checkpoint.interval", "-10s", DURATION),
    case("spec.checkpoint.interval", "1d", DURATION),
    case("spec.checkpoint.interval", "ten seconds", DURATION),
    case("spec.checkpoint.interval", "0s", BETWEEN),
    case("spec.checkpoint.interval", "50ms", BETWEEN),
    case("spec.checkpoint.interval", "24h1ms", BETWEEN),
    case("spec.checkpoint.interval", "999999h999999h", BETWEEN),
    case("spec.checkpoint.interval", "99999999999999999999s", "may not be more than 16"),
    case("spec.checkpoint.timeout", "0m", BETWEEN),
    case("spec.checkpoint.timeout", "PT10M", DURATION),
    case("spec.checkpoint.minPause", "soon", DURATION),
    case("spec.checkpoint.minPause", "11s", "minPause must not be longer than interval"),
    case("spec.checkpoint.tolerableFailures", -1, "should be greater than or equal to 0"),
    case("spec.checkpoint.tolerableFailures", 1001, "should be less than or equal to 1000"),
    case("spec.checkpoint.tolerableFailures", 1.5, "must be of type integer"),
    case("spec.checkpoint.tolerableFailures", "3", "must be of type integer"),
    case("spec.checkpoint.retention", {"keep": 0}, "should be greater than or equal to 1"),
    case("spec.checkpoint.retention", {"keep": 1001}, "should be less than or equal to 1000"),
    case("spec.checkpoint.retention", {"every": 0}, "should be greater than or equal to 1"),
    case("spec.checkpoint.retention", 4, "spec.checkpoint.retention in body must be of type object"),
]

STORAGE = [
    case("spec.checkpoint.storage", {}, "spec.checkpoint.storage.uri: Required value"),
    case("spec.checkpoint.storage.uri", "", URI),
    case("spec.checkpoint.storage.uri", "/var/lib/epochal", URI),
    case("spec.checkpoint.storage.uri", "s3a://bucket/root", URI),
    case("spec.checkpoint.storage.uri", "https://bucket.example.org/root", URI),
    case("spec.checkpoint.storage.uri", "s3:///root", URI),
    case("spec.checkpoint.storage.uri", "s3://Bucket/root", URI),
    case("spec.checkpoint.storage.uri", "s3://ab/root", URI),
    case("spec.checkpoint.storage.uri", "s3://bucket:9000/root", URI),
    case("spec.checkpoint.storage.uri", "s3://key:secret@bucket/root", URI),
    case("spec.checkpoint.storage.uri", "s3://bucket/root?region=eu-west-1", URI),
    case("spec.checkpoint.storage.uri", "s3://bucket//root", URI),
    case("spec.checkpoint.storage.uri", "s3://bucket/my root", URI),
    case("spec.checkpoint.storage.uri", "s3://bucket/a/../b", "must not have '.' or '..' in its path"),
    case("spec.checkpoint.storage.uri", "file://var/lib", URI),
    case("spec.checkpoint.storage.endpoint", "minio:9000", "write http:// or https:// and a host"),
    case("spec.checkpoint.storage.endpoint", "http://minio:9000/bucket", "write http:// or https:// and a host"),
    case("spec.checkpoint.storage.region", "Frankfurt am Main", "write a region such as eu-central-1"),
    case("spec.checkpoint.storage", {"uri": "gs://bucket", "region": "eu"}, "endpoint and region are for s3:// only"),
    case(
        "spec.checkpoint.storage",
        {"uri": "file:///data", "endpoint": "http://minio:9000"},
        "endpoint and region are for s3:// only",
    ),
    case(
        "spec.checkpoint.storage",
        {"uri": "gs://bucket", "credentialsSecret": {"name": "keys"}},
        "credentialsSecret is for s3:// only",
    ),
    case("spec.checkpoint.storage.credentialsSecret", "keys", "must be of type object"),
    case("spec.checkpoint.storage.credentialsSecret", {}, "credentialsSecret.name: Required value"),
    case("spec.checkpoint.storage.credentialsSecret", {"name": "My Keys"}, NAME),
]

LIFE = [
    case("spec.restore", {"fromEpoch": 7, "fromSavepoint": "a"}, "set at most one of fromEpoch and fromSavepoint"),
    case("spec.restore.fromEpoch", 0, "should be greater than or equal to 1"),
    case("spec.restore.fromEpoch", 10_000_000_000, "should be less than or equal to 9999999999"),
    case("spec.restore.fromEpoch", "latest", "must be of type integer"),
    case("spec.restore.fromSavepoint", "Before Upgrade", "write a savepoint's name"),
    case("spec.restore.allowEmptyStart", "yes", "must be of type boolean"),
    case("spec.restore.onCommittedOutput", "Forget", 'supported values: "Wait", "Repeat"'),
    case("spec.restartPolicy.maxRestarts", -1, "should be greater than or equal to 0"),
    case("spec.restartPolicy.maxRestarts", 100_001, "should be less than or equal to 100000"),
    case("spec.restartPolicy.backoff", "6m", "backoff must not be longer than maxBackoff"),
    case("spec.restartPolicy.backoff", "0s", BETWEEN),
    case("spec.restartPolicy.maxBackoff", "25h", BETWEEN),
    case("spec.restartPolicy.resetAfter", "never", DURATION),
    case("spec.restartPolicy", "Always", "spec.restartPolicy in body must be of type object"),
]

PROCESSES = [
    case("spec.driver.cores", 0, "should be greater than or equal to 1"),
    case("spec.driver.cores", "500m", "must be of type integer"),
    case("spec.driver.memory", "1Gi", HEAP),
    case("spec.driver.memory", "1.5g", HEAP),
    case("spec.driver.memory", "256m", HEAP),
    case("spec.driver.memory", "1073741824", HEAP),
    case("spec.driver.memory", 4, "must be of type string"),
    case("spec.driver.startTimeout", "10", DURATION),
    case("spec.driver.unreachableTimeout", "0s", BETWEEN),
    case("spec.executor.instances", 0, "should be greater than or equal to 1"),
    case("spec.executor.instances", 10_001, "should be less than or equal to 10000"),
    case("spec.executor.instances", 2.5, "must be of type integer"),
    case("spec.executor.memory", "0g", HEAP),
    case("spec.executor.podTemplate", "gpu", "must be of type object"),
    case(
        "spec.executor.podTemplate",
        {"metadata": {"labels": {"epochal.dev/job": "x"}}},
        "labels that begin with epochal.dev/ are the operator's",
    ),
    case("spec.cleanup", [], "must be of type object"),
    case(
        "spec.cleanup.podTemplate",
        {"metadata": {"labels": {"epochal.dev/role": "driver"}}},
        "labels that begin with epochal.dev/ are the operator's",
    ),
]

SETTINGS = [
    case("spec.sparkConf", {"sql.shuffle.partitions": "8"}, "a Spark setting begins with 'spark.'"),
    case("spec.sparkConf", {"spark.sql.shuffle.partitions": 8}, "must be of type string"),
    case("spec.sparkConf", {"spark.executor.instances": "3"}, SIZES),
    case("spec.sparkConf", {"spark.driver.memory": "4g"}, SIZES),
    case("spec.sparkConf", {"spark.master": "yarn"}, "the operator sets spark.master"),
    case("spec.sparkConf", {"spark.kubernetes.namespace": "other"}, OPERATOR_SETS),
    case("spec.sparkConf", {"spark.kubernetes.driver.pod.name": "mine"}, OPERATOR_SETS),
    case("spec.sparkConf", {"spark.dynamicAllocation.enabled": "true"}, "executors hold state"),
    case("spec.sparkConf", "spark.x=y", "spec.sparkConf in body must be of type object"),
]

ENV = [
    case("spec.env", {"A": "b"}, 'unknown field "spec.env.A"'),
    case("spec.env", [{"value": "b"}], "spec.env[0].name: Required value"),
    case("spec.env", [{"name": "A B", "value": "c"}], "use letters, digits and '_' in a variable's name"),
    case("spec.env", [{"name": "A", "value": 1}], "must be of type string"),
    case("spec.env", [{"name": "A"}], "set exactly one of value and valueFrom"),
    case(
        "spec.env",
        [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "set exactly one of value and valueFrom",
    ),
    case("spec.env", [{"name": "A", "valueFrom": {}}], "set exactly one of secretKeyRef, configMapKeyRef and fieldRef"),
    case("spec.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}], "secretKeyRef.key: Required value"),
    case("spec.env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "Duplicate value"),
    case("spec.env", [{"name": "EPOCHAL_TOKEN", "value": "x"}], "names that begin with EPOCHAL_ are the operator's"),
]

VOLUMES = [
    case("spec.volumes", [{"name": "data", "source": {"emptyDir": {}}}], "spec.volumes[0].mountPath: Required value"),
    case("spec.volumes", [{"name": "data", "mountPath": "/data"}], "spec.volumes[0].source: Required value"),
    case("spec.volumes", [{"name": "data", "mountPath": "/data", "source": {}}], "set exactly one of configMap, csi"),
    case(
        "spec.volumes",
        [{"name": "data", "mountPath": "/data", "source": {"emptyDir": {}, "nfs": {"server": "x"}}}],
        "set exactly one of configMap, csi",
    ),
    case(
        "spec.volumes", [{"name": "data", "mountPath": "data", "source": {"emptyDir": {}}}], "must be an absolute path"
    ),
    case(
        "spec.volumes",
        [{"name": "My_Data", "mountPath": "/data", "source": {"emptyDir": {}}}],
        "use a-z, 0-9 and '-' in a volume's name",
    ),
    case(
        "spec.volumes",
        [{"name": "epochal-token", "mountPath": "/data", "source": {"emptyDir": {}}}],
        "names that begin with epochal- are the operator's",
    ),
    case(
        "spec.volumes",
        [{"name": name, "mountPath": "/data", "source": {"emptyDir": {}}} for name in ("a", "b")],
        "two volumes cannot be mounted at the same path",
    ),
    case(
        "spec.volumes",
        [{"name": "a", "mountPath": path, "source": {"emptyDir": {}}} for path in ("/a", "/b")],
        "Duplicate value",
    ),
]

UNKNOWN = [
    case("spec.checkpont", {}, 'unknown field "spec.checkpont"'),
    case("spec.checkpoint.intervall", "10s", 'unknown field "spec.checkpoint.intervall"'),
    case("spec.checkpoint.retention", {"kep": 3}, 'unknown field "spec.checkpoint.retention.kep"'),
    case("spec.checkpoint.storage.bucket", "x", 'unknown field "spec.checkpoint.storage.bucket"'),
    case("spec.replicas", 3, 'unknown field "spec.replicas"'),
    case("spec.suspend", True, 'unknown field "spec.suspend"'),
    case("spec.env", [{"name": "A", "vlaue": "b"}], 'unknown field "spec.env[0].vlaue"'),
    case("spec.driver.podTemplate", {"labels": {}}, 'unknown field "spec.driver.podTemplate.labels"'),
    case("spec.cleanup", {"memory": "1g"}, 'unknown field "spec.cleanup.memory"'),
    case(
        "spec.volumes",
        [{"name": "a", "mountPath": "/a", "source": {"persistentVolumClaim": {"claimName": "a"}}}],
        'unknown field "spec.volumes[0].source.persistentVolumClaim"',
    ),
    case("checkpoint", {"interval": "10s"}, 'unknown field "checkpoint"'),
    case("metadata.lables", {"a": "b"}, 'unknown field "metadata.lables"'),
]

TEXTS = [
    Case(
        text="apiVersion: epochal.dev/v1alpha1\nkind: StreamingJob\nmetadata: {name: words}\n"
        "spec:\n  pipeline: {module: jobs.words}\n  state: Running\n  state: Suspended\n",
        says='key "state" already set in map',
    ),
    Case(
        text="apiVersion: epochal.dev/v1alpha1\nkind: StreamingJob\nmetadata: {name: words}\n"
        "spec:\n  pipeline: {module: jobs.words}\n state: Running\n",
        says="did not find expected key",
    ),
    Case(
        text="apiVersion: epochal.dev/v1alpha1\nkind: StreamingJob\nmetadata: {name: words}\n"
        "spec:\n\tpipeline: {module: jobs.words}\n",
        says="found character that cannot start any token",
    ),
    Case(text="just words\n", says="couldn't get version/kind"),
]

UPDATES = [
    update({}, {"spec.checkpoint.storage.uri": "s3://other/root"}, "cannot be changed, because the job's epochs are"),
    update({}, {"spec.checkpoint.storage": REMOVED}, "storage cannot be taken away, because the job's epochs are"),
    update({}, {"spec.checkpoint": REMOVED}, "storage cannot be taken away, because the job's epochs are"),
    update({}, {"spec.checkpoint.interval": "1s", "spec.checkpoint.minPause": "2s"}, "minPause must not be longer"),
]

_S3 = "s3://bucket/root"

# Nothing is wrong with these by themselves: a cluster takes them. The operator looks around and does not start them.
NOT_ACCEPTED = [
    case("spec.image", REMOVED, "spec.image is not set, and the operator was started without --default-image"),
    case("spec.checkpoint", {}, "spec.checkpoint.storage is not set: on a cluster, checkpoints need a store"),
    case(
        "spec.checkpoint.storage",
        {"uri": _S3, "credentialsSecret": {"name": "missing"}},
        "Secret missing does not exist",
    ),
    case(
        "spec.checkpoint.storage",
        {"uri": _S3, "credentialsSecret": {"name": "half"}},
        "Secret half has no key AWS_SECRET_ACCESS_KEY",
    ),
    case("spec.checkpoint.storage", {"uri": "file:///data"}, "file:// is inside one pod"),
    case("spec.checkpoint.storage", {"uri": "s3://bucket/other"}, "name a Secret with keys"),
    case("spec.checkpoint.storage", {"uri": "gs://bucket/other"}, "ask the administrator to add gs://bucket/other"),
    case("spec.pipeline", {"configMap": {"name": "missing"}}, "ConfigMap missing does not exist"),
    case(
        "spec.pipeline", {"configMap": {"name": "program"}}, "ConfigMap program has no key pipeline.py: it has words.py"
    ),
    case("spec.serviceAccount", "missing", "ServiceAccount missing does not exist in namespace default"),
    case("spec.serviceAccount", REMOVED, "ServiceAccount epochal-driver does not exist in namespace default"),
]

SECTIONS: tuple[tuple[str, list[Case]], ...] = (
    ("Kind, name, image", IDENTITY),
    ("Pipeline", PIPELINE),
    ("Checkpoints", CHECKPOINT),
    ("Storage", STORAGE),
    ("Restore and restarts", LIFE),
    ("Driver and executors", PROCESSES),
    ("Spark settings", SETTINGS),
    ("Environment variables", ENV),
    ("Volumes", VOLUMES),
    ("Unknown fields", UNKNOWN),
    ("Text that is no manifest", TEXTS),
    ("Changes of a job that is there", UPDATES),
)
