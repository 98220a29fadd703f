"""Every label, annotation, finalizer and object name that the operator uses: made here, and nowhere else."""

from epochal.control.labels import GENERATION_LABEL, JOB_LABEL, PLURAL, RESTART_ANNOTATION, ROLE_LABEL, Role
from epochal.protocol.epochs import Epoch, Generation

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "epochal"

FINALIZER = "epochal.dev/stop-first"
"""Holds a deleted job until it has made its last checkpoint, or its time for that is over."""

KOPF_PREFIX = "kopf.epochal.dev"
"""Of the annotations in which kopf remembers how far a deletion got."""

SELECTOR = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
"""What the operator watches of pods, Jobs, Services and ConfigMaps: its own."""

CONTROL_PORT = 7070
DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079


__all__ = ["GENERATION_LABEL", "JOB_LABEL", "PLURAL", "RESTART_ANNOTATION", "ROLE_LABEL", "Role"]
"""What people and the command line use as well."""

# A job's name has 40 characters at most (the CRD says so), which leaves room for all of these in the 63 of a label.


def driver_name(job: str, generation: Generation) -> str:
    """Of a generation's pod, and of the ConfigMap with its configuration."""
    return f"{job}-driver-{generation}"


def executor_prefix(job: str, generation: Generation) -> str:
    return f"{job}-{generation}"


def service_name(job: str) -> str:
    return f"{job}-driver"


def keys_name(job: str, generation: Generation, content: str) -> str:
    """Of a generation's Secret. ``content`` tells apart what two tries of one generation are told: the Secret of the
    first goes with its ConfigMap, at some time."""
    return f"{driver_name(job, generation)}-{content}"


def driver_host(namespace: str, job: str, generation: Generation) -> str:
    """The name in a driver's certificate. Nobody looks it up."""
    return f"{driver_name(job, generation)}.{namespace}"


def budget_name(job: str) -> str:
    """Of the PodDisruptionBudget."""
    return f"{job}-driver"


def cleanup_name(job: str, min_epoch: Epoch) -> str:
    return f"{job}-cleanup-{min_epoch}"


def labels(job: str, role: Role | None = None) -> dict[str, str]:
    common = {MANAGED_BY_LABEL: MANAGED_BY, "app.kubernetes.io/name": MANAGED_BY, JOB_LABEL: job}
    return common | {ROLE_LABEL: role} if role else common
