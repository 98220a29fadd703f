"""The cleanup as a ``batch/v1`` Job: building it, and reading what became of it."""

from epochal.control.endings import last_error
from epochal.control.foreign import clean
from epochal.control.job import JobSpec
from epochal.protocol.decision import (
    CleanupExists,
    CleanupFailed,
    CleanupRefused,
    CleanupState,
    CleanupSucceeded,
    NoCleanup,
    Seconds,
)
from epochal.protocol.epochs import Epoch
from epochal_operator.api import JsonObject
from epochal_operator.kubernetes.manifests.pod_template import merged
from epochal_operator.kubernetes.manifests.resources import (
    RESTRICTED,
    RESTRICTED_POD,
    credentials,
    environment,
    pod_volumes,
    volume_mounts,
)
from epochal_operator.kubernetes.pod_state import ended_container
from epochal_operator.names import ROLE_LABEL, Role, cleanup_name, labels
from epochal_operator.reporting.timestamps import parse_timestamp

CONTAINER = "cleanup"
POD_WITHIN: Seconds = 20.0
"""Seconds within which a Job's controller makes its pod, unless that is refused."""

KEPT_SECONDS = 3600
"""An operator removes a cleanup that has ended within seconds; without one, the cluster does after this."""


def cleanup_job(spec: JobSpec, owned_by: JsonObject, min_epoch: Epoch) -> JsonObject:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": cleanup_name(spec.name, min_epoch),
            "namespace": spec.namespace,
            "labels": labels(spec.name, Role.CLEANUP),
            "ownerReferences": [owned_by],
        },
        "spec": {
            # The operator tries again, with growing pauses and never in the way of a checkpoint.
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(spec.checkpoint.cleanup_timeout),
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": _pod(spec, min_epoch),
        },
    }


def _pod(spec: JobSpec, min_epoch: Epoch) -> JsonObject:
    """Defaults of ours, over them the spec's template, over that what must be so."""
    defaults: JsonObject = {
        "spec": {
            "securityContext": RESTRICTED_POD,
            # A cleanup talks to the store, never to the API server. Workload identity brings a token of its own.
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": CONTAINER,
                    "securityContext": RESTRICTED,
                    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
                }
            ],
        }
    }
    fixed: JsonObject = {
        "metadata": {"labels": labels(spec.name, Role.CLEANUP)},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": spec.account,
            "volumes": pod_volumes(spec),
            "containers": [
                {
                    "name": CONTAINER,
                    "image": spec.image,
                    "imagePullPolicy": spec.image_pull_policy,
                    "command": _command(spec, min_epoch),
                    # A template's would be added to the command, and delete other epochs.
                    "args": [],
                    "env": environment(spec),
                    "envFrom": credentials(spec),
                    "volumeMounts": volume_mounts(spec),
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
        },
    }
    return merged(merged(defaults, spec.cleanup_template or {}), fixed)


def _command(spec: JobSpec, min_epoch: Epoch) -> list[str]:
    storage = spec.storage
    assert storage is not None, "a job without a store is not accepted"
    options = [f"--endpoint={storage.config.endpoint}"] if storage.config.endpoint else []
    options += [f"--region={storage.config.region}"] if storage.config.region else []
    command = ["python", "-m", "epochal.cli", "cleanup", storage.config.uri, *options]
    return [*command, f"--namespace={spec.namespace}", f"--job={spec.name}", f"--min-epoch={min_epoch}"]


def cleanup_state(jobs: list[JsonObject], pods: list[JsonObject], now: Seconds) -> CleanupState:
    """Of the one cleanup that exists, if any. One that gets no pod counts as refused: checkpoints wait for a cleanup,
    and the quota that keeps it from running may last."""
    if not jobs:
        return NoCleanup()
    conditions = {
        condition["type"]: condition
        for condition in jobs[-1].get("status", {}).get("conditions") or []
        if condition["status"] == "True"
    }
    if "Complete" in conditions:
        return CleanupSucceeded()
    if failed := conditions.get("Failed"):
        said = next((line for pod in pods if (line := _said(pod))), "")
        return CleanupFailed(said or clean(failed.get("message") or failed.get("reason") or "it does not say why"))
    made = parse_timestamp(jobs[-1]["metadata"]["creationTimestamp"])
    if now - made > POD_WITHIN and not any(_is_cleanup(pod) for pod in pods):
        return CleanupRefused("")
    return CleanupExists()


def pod_of(job: JsonObject) -> JsonObject:
    """What the Job's controller would make of its template."""
    template = job["spec"]["template"]
    metadata = {**template.get("metadata", {}), "generateName": f"{job['metadata']['name']}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _is_cleanup(pod: JsonObject) -> bool:
    return (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) == Role.CLEANUP


def _said(pod: JsonObject) -> str:
    if not _is_cleanup(pod):
        return ""
    ended = ended_container(pod, CONTAINER)
    return last_error(ended.get("message") or "") if ended else ""
