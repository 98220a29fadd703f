"""Checks of one job."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from epochal.cli.cluster.jobs import condition
from epochal.cli.cluster.pods import container_states, trouble, unschedulable
from epochal.cli.doctor.cluster_checks import accounts
from epochal.cli.doctor.finding import Finding, ok, problem, warning
from epochal.cli.doctor.seen import ClusterFacts, account_of
from epochal.cli.output import seconds_of_stamp
from epochal.control.jars import bad_coordinates, jar_problems
from epochal.control.labels import ROLE_LABEL, Role

Job = Mapping[str, Any]

SETTLE = 60.0
"""Seconds that an operator may take to look at a job."""
LONG_DELETION = 900.0

_BY_REASON = {
    "Misconfigured": "Correct the pipeline or the setting that the message names; the edit starts the job.",
    "NothingToRestore": "List what there is with `epochal checkpoints {name} --store`, then set "
    "spec.restore.fromEpoch or fromSavepoint. allowEmptyStart: true starts without state.",
    "Refused": "Mend it where the message says (a password, a right, a table); the next try succeeds by itself.",
    "FailedCreate": "The API server says no: raise the quota, or meet the policy that the message names.",
    "SpecNotAccepted": "Create what is missing, or correct the spec; the operator looks again every 5 s.",
    "StoreUnavailable": "See that the store answers and its credentials are right: epochal doctor {name} --store",
    "RestartsExhausted": "Mend the cause, then: epochal restart {name}",
    "OutputWouldRepeat": "Decide: restore the damaged object, or set spec.restore.onCommittedOutput: Repeat "
    "(docs/runbook.md).",
}
_RUNBOOK = "epochal describe {name}; epochal logs {name} --tail 50"


def _about(job: Job) -> str:
    return f"job {job['metadata']['namespace']}/{job['metadata']['name']}"


def _do(reason: str, job: Job) -> str:
    return _BY_REASON.get(reason, _RUNBOOK).format(name=_named(job))


def _named(job: Job) -> str:
    """As commands take it, whatever namespace the context has."""
    return f"{job['metadata']['name']} -n {job['metadata']['namespace']}"


def phase(seen: ClusterFacts, job: Job) -> Iterator[Finding]:
    status, about = job.get("status") or {}, _about(job)
    now = time.time()
    if stamp := job["metadata"].get("deletionTimestamp"):
        age = now - seconds_of_stamp(stamp)
        if age > LONG_DELETION or (seen.operators == [] and age > SETTLE):
            yield problem(
                "DeletionHangs",
                about,
                f"it is being deleted for {age / 60:.0f} min: its last checkpoint or its operator is missing",
                "Start the operator. Without one: docs/runbook.md#epochaloperatordown removes the finalizer.",
            )
        return
    stalled = condition(job, "Stalled")
    if status.get("phase") == "Failed":
        reason = str(condition(job, "Ready").get("reason") or stalled.get("reason") or "")
        yield problem("JobFailed", about, f"it has failed: {status.get('message', '')}", _do(reason, job))
    elif status.get("phase") == "Waiting":
        yield problem("JobWaits", about, f"it waits: {status.get('message', '')}", _do("OutputWouldRepeat", job))
    elif stalled.get("status") == "True":
        reason = str(stalled.get("reason"))
        yield problem("JobStalled", about, f"{reason}: {stalled.get('message')}", _do(reason, job))
    elif (status.get("restarts") or {}).get("inARow", 0) > 1:
        restarts = status["restarts"]
        message = f"{restarts['inARow']} restarts in a row: {restarts.get('message', '')}"
        yield problem("JobRestarts", about, message, _do("", job))
    yield from _reconciled(seen, job, now)


def _reconciled(seen: ClusterFacts, job: Job, now: float) -> Iterator[Finding]:
    status, about, metadata = job.get("status") or {}, _about(job), job["metadata"]
    age = now - seconds_of_stamp(metadata["creationTimestamp"])
    behind = status.get("observedGeneration", 0) != metadata.get("generation", 0)
    blocked = condition(job, "Stalled").get("status") == "True"
    if not status and age > SETTLE:
        do = "See that an operator runs and watches this namespace: the findings above."
        yield problem("NotReconciled", about, f"no operator has looked at it for {age / 60:.0f} min", do)
    elif status and behind and not blocked and _quiet_for(status, now) > SETTLE:
        do = "See that an operator runs"
        if operator := seen.operator_of(metadata["namespace"]):
            deployment = operator.deployment["metadata"]["name"]
            do += f"; its log names the job: kubectl logs -n {operator.namespace} deployment/{deployment}"
        yield problem("NotReconciled", about, "its last edit has not been looked at", do)


def _quiet_for(status: Mapping[str, Any], now: float) -> float:
    stamps = [one["lastTransitionTime"] for one in status.get("conditions") or []]
    stamps += [one["finished"] for one in (status.get("history") or [])[:1]]
    return now - max((seconds_of_stamp(stamp) for stamp in stamps), default=0.0)


def checkpoints(_: ClusterFacts, job: Job) -> Iterator[Finding]:
    status, about = job.get("status") or {}, _about(job)
    running, name = status.get("phase") == "Running", _named(job)
    fresh = condition(job, "CheckpointFresh")
    if running and fresh.get("status") == "False":
        do = f"epochal checkpoints {name}: failed ones say why; docs/runbook.md#epochalcheckpointstale"
        yield problem("CheckpointsStale", about, str(fresh.get("message") or "checkpoints are too old"), do)
    ready = condition(job, "Ready")
    if running and ready.get("status") == "Unknown":
        do = f"epochal logs {name} --tail 50; see that NetworkPolicies let the operator reach port 7070"
        yield problem("DriverSilent", about, str(ready.get("message") or "the driver does not answer"), do)
    if (failures := (status.get("cleanup") or {}).get("failures", 0)) > 1:
        do = f"epochal logs {name} --cleanup: usually it may not delete objects"
        yield warning("CleanupFails", about, f"{failures} cleanups in a row failed: the store grows", do)
    if status.get("lateRows"):
        do = "Give the source a longer delay, or read the late output of the operator."
        yield warning("LateRows", about, f"{status['lateRows']:,} rows came too late and were dropped", do)


_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")


def pods(seen: ClusterFacts, job: Job) -> Iterator[Finding]:
    for pod in seen.pods_of(job):
        about = f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        states = container_states(pod)
        describe = f"kubectl describe pod {pod['metadata']['name']} -n {pod['metadata']['namespace']}"
        if any(state.reason in _PULL for state in states):
            image = next((one.get("image") for one in pod["spec"]["containers"]), "?")
            do = "Push the image, correct spec.image, or add imagePullSecrets to the pod templates."
            yield problem("ImageNotPulled", about, f"image {image} cannot be pulled: {trouble(pod)}", do)
        elif any(state.reason == "OOMKilled" for state in states):
            role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL)
            field = "executor" if role == Role.EXECUTOR else "driver"
            yield problem("OutOfMemory", about, "it ran out of memory (OOMKilled)", f"Raise spec.{field}.memory.")
        elif waits := unschedulable(pod):
            do = "Add nodes, make spec.driver and spec.executor smaller, or correct nodeSelector and tolerations."
            yield problem("Unschedulable", about, f"no node takes it: {waits}", do)
        elif any(state.reason == "CreateContainerConfigError" for state in states):
            yield problem("ContainerCannotStart", about, trouble(pod), f"Create what is missing. {describe}")
        elif any(state.reason == "CrashLoopBackOff" for state in states):
            yield problem("ContainerCrashes", about, trouble(pod), describe)


def references(seen: ClusterFacts, job: Job) -> Iterator[Finding]:
    """Secrets, ConfigMaps and accounts that the spec names."""
    spec, namespace, about = job["spec"], job["metadata"]["namespace"], _about(job)
    yield from accounts(seen, namespace, account_of(job))
    storage = (spec.get("checkpoint") or {}).get("storage") or {}
    if secret := (storage.get("credentialsSecret") or {}).get("name"):
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if storage["uri"].startswith("s3:") else ()
        yield from _keys(seen, about, namespace, "secrets", secret, keys, "checkpoint.storage.credentialsSecret")
    if program := (spec.get("pipeline") or {}).get("configMap"):
        yield from _keys(seen, about, namespace, "configmaps", program["name"], (program["key"],), "pipeline.configMap")
    for number, item in enumerate(spec.get("env") or []):
        for kind, field in (("secrets", "secretKeyRef"), ("configmaps", "configMapKeyRef")):
            wanted = (item.get("valueFrom") or {}).get(field)
            if wanted and not wanted.get("optional"):
                yield from _keys(seen, about, namespace, kind, wanted["name"], (wanted["key"],), f"env[{number}]")


def _keys(
    seen: ClusterFacts, about: str, namespace: str, kind: str, name: str, keys: tuple[str, ...], field: str
) -> Iterator[Finding]:
    what = "Secret" if kind == "secrets" else "ConfigMap"
    found = seen.one(kind, namespace, name)
    if found is None:
        do = f"kubectl create {'secret generic' if kind == 'secrets' else 'configmap'} {name} -n {namespace} …"
        yield problem(f"{what}Missing", about, f"spec.{field}: there is no {what} {name} in {namespace}", do)
        return
    there = {**(found.get("data") or {}), **(found.get("binaryData") or {})}
    lacking = [key for key in keys if found and key not in there]
    if lacking:
        message = f"spec.{field}: {what} {name} has no key {', '.join(lacking)}; it has {', '.join(there) or 'none'}"
        yield problem(f"{what}KeyMissing", about, message, f"kubectl edit {what.lower()} {name} -n {namespace}")


def spec_here(seen: ClusterFacts, job: Job) -> Iterator[Finding]:
    """What the CRD allows and this cluster does not."""
    spec, about = job["spec"], _about(job)
    operator = seen.operator_of(job["metadata"]["namespace"])
    if operator is not None and not spec.get("image") and not operator.options.get("default-image"):
        do = "Set spec.image, or the chart's operator.defaultImage."
        yield problem("NoImage", about, "it names no image, and the operator has no default", do)
    storage = (spec.get("checkpoint") or {}).get("storage") or {}
    uri = str(storage.get("uri") or "")
    if not uri or uri.startswith(("file:", "memory:")):
        do = "Set spec.checkpoint.storage.uri to s3://, gs:// or az://."
        yield problem("StoreNotShared", about, f"pods cannot share the store {uri or '(none)'}", do)
    elif re.match(r"https?://(localhost|127\.|\[?::1|169\.254\.)", str(storage.get("endpoint") or "")):
        do = "Name the store as pods reach it, such as http://minio.storage:9000."
        yield problem("StoreNotShared", about, f"endpoint {storage['endpoint']} is each pod's own machine", do)
    elif operator is not None and not storage.get("credentialsSecret"):
        own = operator.options.get("own-identity-stores", "").split(",")
        if uri not in own or storage.get("endpoint"):
            do = "Set checkpoint.storage.credentialsSecret, or list the URI in the chart's operator.ownIdentityStores."
            yield problem("StoreNotReadable", about, f"the operator has no credentials for {uri}", do)
    do = "Use the jars of docs/connectors.md."
    for message in bad_coordinates(spec.get("sparkConf") or {}):
        yield problem("JarsDoNotFit", about, f"spec.sparkConf: {message}", do)
    for message in jar_problems(spec.get("sparkConf") or {}):
        yield warning("JarsDoNotFit", about, f"spec.sparkConf: {message}", do)


CHECKS: tuple[Callable[[ClusterFacts, Job], Iterator[Finding]], ...] = (phase, checkpoints, pods, references, spec_here)


def job(seen: ClusterFacts, one: Job) -> Iterator[Finding]:
    found = [finding for check in CHECKS for finding in check(seen, one)]
    yield from found
    if not found:
        status = one.get("status") or {}
        yield ok(_about(one), f"{status.get('phase', 'Pending')}, epoch {status.get('epoch', 0)}")
