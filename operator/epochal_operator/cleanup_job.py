"""The cleanup as a ``batch/v1`` Job: building it, and reading what became of it."""

from epochal.protocol.decision import CleanupExists, CleanupFailed, CleanupState, CleanupSucceeded, NoCleanup
from epochal.protocol.epochs import Epoch
from epochal_operator.api import JsonObject
from epochal_operator.job import JobSpec
from epochal_operator.names import ROLE_LABEL, Role, cleanup_name, labels
from epochal_operator.pod_state import ended_container, last_line
from epochal_operator.resources import (
    RESTRICTED,
    RESTRICTED_POD,
    credentials,
    environment,
    pod_volumes,
    volume_mounts,
)

CONTAINER = "cleanup"
KEPT_SECONDS = 3600
"""An operator removes a cleanup that has ended within seconds; without one, the cluster does after this."""


def cleanup_job(spec: JobSpec, owned_by: JsonObject, min_epoch: Epoch) -> JsonObject:
    storage = spec.storage
    assert storage is not None, "a job without a store is not accepted"
    options = [f"--endpoint={storage.config.endpoint}"] if storage.config.endpoint else []
    options += [f"--region={storage.config.region}"] if storage.config.region else []
    command = ["python", "-m", "epochal.cli", "cleanup", storage.config.uri, *options]
    command += [f"--namespace={spec.namespace}", f"--job={spec.name}", f"--min-epoch={min_epoch}"]
    ours = labels(spec.name, Role.CLEANUP)
    container = {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": command,
        "env": environment(spec),
        "envFrom": credentials(spec),
        "volumeMounts": volume_mounts(spec),
        "securityContext": RESTRICTED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": RESTRICTED_POD,
        "volumes": pod_volumes(spec),
        "containers": [container],
    }
    if spec.service_account:
        pod["serviceAccountName"] = spec.service_account
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": cleanup_name(spec.name, min_epoch),
            "namespace": spec.namespace,
            "labels": ours,
            "ownerReferences": [owned_by],
        },
        "spec": {
            # The operator tries again, with growing pauses and never in the way of a checkpoint.
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(spec.checkpoint.cleanup_timeout),
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": ours}, "spec": pod},
        },
    }


def cleanup_state(jobs: list[JsonObject], pods: list[JsonObject]) -> CleanupState:
    """Of the one cleanup that exists, if any."""
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
        return CleanupFailed(said or failed.get("message") or failed.get("reason") or "it does not say why")
    return CleanupExists()


def _said(pod: JsonObject) -> str:
    if (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) != Role.CLEANUP:
        return ""
    ended = ended_container(pod, CONTAINER)
    return last_line(ended.get("message") or "") if ended else ""
