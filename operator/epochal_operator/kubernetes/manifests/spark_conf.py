"""The Spark settings of a driver that runs in a pod, in client mode, with executors in pods of their own."""

import re

from epochal.control.job import JobSpec
from epochal.protocol.epochs import Generation
from epochal_operator.names import (
    BLOCK_MANAGER_PORT,
    DRIVER_PORT,
    JOB_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ROLE_LABEL,
    Role,
    driver_name,
    executor_prefix,
)

EXECUTOR_CONTAINER = "executor"
EXECUTOR_TEMPLATE = "/etc/epochal/driver/executor-template.json"
SCRATCH = "/tmp"
SECRETS_DIRECTORY = "/etc/epochal/secrets"
SPARK_SECRET_FILE = "spark"
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

SPARK_SECRETS = frozenset(f"spark.authenticate.secret{end}" for end in ("", ".file", ".driver.file", ".executor.file"))
"""Each of these names a secret. Other settings begin with the same words."""

_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_LEAST_OVERHEAD = 384
_OVERHEAD = 0.4
"""Beyond the heap: Python, Arrow and the JVM's own. What Spark itself reckons with for Python jobs."""


def runs_in_driver(spec: JobSpec) -> bool:
    """A job that asks for a local master has no executors."""
    return spec.spark_conf.get("spark.master", "").startswith("local")


def pod_memory(heap: str) -> str:
    """The memory of a pod whose JVM gets ``heap``."""
    found = re.fullmatch(r"(\d+)([kmgt])", heap)
    if not found:
        raise ValueError(f"{heap!r} is not a size: write 512m or 4g")
    mebibytes = int(found[1]) * _UNITS[found[2]]
    return f"{round(mebibytes + max(_LEAST_OVERHEAD, mebibytes * _OVERHEAD))}Mi"


def spark_conf(spec: JobSpec, generation: Generation) -> dict[str, str]:
    """The operator's settings, then the spec's: these count. The CRD refuses those that only the operator can know."""
    common = {
        "spark.driver.memory": spec.driver.memory,
        "spark.local.dir": f"{SCRATCH}/spark",
        "spark.sql.warehouse.dir": f"{SCRATCH}/warehouse",
    }
    if runs_in_driver(spec):
        return common | dict(spec.spark_conf)
    return common | _on_pods(spec, generation) | _secured(spec) | dict(spec.spark_conf)


def spark_secret_is_ours(spec: JobSpec) -> bool:
    """Whether driver and executors know each other by the secret that the operator makes: unless the spec names
    another, or wants none."""
    return not runs_in_driver(spec) and SPARK_SECRETS.isdisjoint(spec.spark_conf) and _authenticated(spec)


def _authenticated(spec: JobSpec) -> bool:
    return spec.spark_conf.get("spark.authenticate", "true").strip().lower() == "true"


def _secured(spec: JobSpec) -> dict[str, str]:
    """Drivers and executors talk to nobody who does not know the generation's secret, and encrypt all that they say."""
    if not _authenticated(spec):
        return {}  # Spark refuses the rest without it
    secret = {"spark.authenticate.secret.file": f"{SECRETS_DIRECTORY}/{SPARK_SECRET_FILE}"}
    return {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        # By default, whoever disturbs the handshake gets both sides to use the older one, which encrypts nothing.
        "spark.network.crypto.saslFallback": "false",
        # Spark's default notices no change of what is encrypted.
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    } | (secret if spark_secret_is_ours(spec) else {})


def _on_pods(spec: JobSpec, generation: Generation) -> dict[str, str]:
    executor = spec.executor
    return {
        "spark.master": "k8s://https://kubernetes.default.svc:443",
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": spec.namespace,
        # Executors belong to the driver's pod: without it they go, too.
        "spark.kubernetes.driver.pod.name": driver_name(spec.name, generation),
        "spark.kubernetes.executor.podNamePrefix": executor_prefix(spec.name, generation),
        "spark.kubernetes.container.image": spec.image or "",
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.kubernetes.authenticate.caCertFile": f"{_ACCOUNT}/ca.crt",
        "spark.kubernetes.authenticate.oauthTokenFile": f"{_ACCOUNT}/token",
        "spark.kubernetes.authenticate.executor.serviceAccountName": spec.account,
        "spark.kubernetes.executor.podTemplateFile": EXECUTOR_TEMPLATE,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        f"spark.kubernetes.executor.label.{MANAGED_BY_LABEL}": MANAGED_BY,
        f"spark.kubernetes.executor.label.{JOB_LABEL}": spec.name,
        f"spark.kubernetes.executor.label.{ROLE_LABEL}": Role.EXECUTOR,
        # Drivers may do nothing but start and remove pods, so Spark must ask for nothing else. Executors have the
        # driver's image, and so its files of configuration; no Services and volumes are made that could be left.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.allocation.batch.delay": "200ms",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.executor.instances": str(executor.instances),
        "spark.executor.cores": str(executor.cores),
        "spark.executor.memory": executor.memory,
        "spark.executor.memoryOverheadFactor": str(_OVERHEAD),
        # The first batch waits for the first executor by itself; waiting for all of them only takes longer.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }
