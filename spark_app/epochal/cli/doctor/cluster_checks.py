"""Checks of the cluster and of the operator."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from epochal.cli.cluster.pods import trouble
from epochal.cli.doctor.finding import Finding, ok, problem, warning
from epochal.cli.doctor.seen import ClusterFacts, OperatorDeployment
from epochal.cli.output import seconds_of_stamp
from epochal.control.schema import VERSION, job_schema
from epochal.version import __version__

OLDEST_KUBERNETES = (1, 29)
SILENT_LEASE = 60.0
"""Seconds after which nobody leads: four lease durations."""

RIGHTS: tuple[tuple[str, str, str], ...] = (
    ("epochal.dev", "streamingjobs", "get list watch patch"),
    ("epochal.dev", "streamingjobs/status", "update"),
    ("", "pods", "list watch create delete"),
    ("", "services", "list watch create"),
    ("", "configmaps", "get list watch create delete"),
    ("", "secrets", "get create"),
    ("", "serviceaccounts", "get"),
    ("", "events", "create"),
    ("batch", "jobs", "list watch create delete"),
)
"""What the operator needs where jobs are: the chart's rules, as a test sees to."""

DRIVER_RIGHTS: tuple[tuple[str, str, str], ...] = (("", "pods", "create delete get list watch"),)


def kubernetes_version(seen: ClusterFacts) -> Iterator[Finding]:
    found = re.match(r"(\d+)\D+(\d+)", f"{seen.version.get('major', '')}.{seen.version.get('minor', '')}")
    number = (int(found[1]), int(found[2])) if found else OLDEST_KUBERNETES
    told = seen.version.get("gitVersion", "?")
    if number < OLDEST_KUBERNETES:
        yield problem("KubernetesTooOld", "cluster", f"Kubernetes {told} is too old", "Upgrade it to 1.29 or newer.")
    else:
        yield ok("cluster", f"Kubernetes {told} at {seen.cluster.host}")


def crd(seen: ClusterFacts) -> Iterator[Finding]:
    found = seen.crd
    if found is None:
        yield problem(
            "CrdMissing",
            "CRD",
            "the cluster does not know StreamingJobs",
            "Install the chart, or run: helm upgrade epochal charts/epochal --reuse-values --set crds.enabled=true",
        )
        return
    if not found:
        return
    conditions = {one["type"]: one for one in (found.get("status") or {}).get("conditions") or []}
    established = conditions.get("Established") or {}
    if established.get("status") != "True":
        why = (
            (conditions.get("NamesAccepted") or {}).get("message")
            or established.get("message")
            or "it does not say why"
        )
        do = "Remove the other CRD that uses these names: kubectl get crd | grep -i streamingjob"
        yield problem("CrdNotServed", "CRD", f"the API server does not serve StreamingJobs: {why}", do)
        return
    versions = {one["name"]: one for one in found["spec"]["versions"]}
    if VERSION not in versions:
        do = f"Install the chart of release {__version__}, or use the epochal of the cluster's release."
        yield problem("CrdOlder", "CRD", f"it has no version {VERSION}, only {', '.join(versions)}", do)
        return
    theirs, ours = _fields(versions[VERSION]["schema"]["openAPIV3Schema"]), _fields(job_schema())
    if missing := sorted(ours - theirs):
        yield problem(
            "CrdOlder",
            "CRD",
            f"it lacks {len(missing)} fields of release {__version__}, such as {', '.join(missing[:3])}: the cluster "
            "drops them",
            "Helm does not upgrade CRDs of a chart's crds/; this chart does: helm upgrade with crds.enabled=true, or "
            "kubectl apply --server-side -f crds/streamingjobs.epochal.dev.yaml",
        )
    elif more := sorted(theirs - ours):
        yield warning(
            "CrdNewer",
            "CRD",
            f"it has fields that release {__version__} does not know, such as {', '.join(more[:3])}",
            "Use the epochal command and the operator of the release that installed it.",
        )
    else:
        yield ok("CRD", f"{VERSION}, as release {__version__} has it")


def _fields(schema: Any, path: str = "") -> set[str]:
    found = set()
    for name, below in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        found.add(here)
        found |= _fields(below, here)
    return found | (_fields(schema["items"], f"{path}[]") if isinstance(schema.get("items"), dict) else set())


def operator(seen: ClusterFacts) -> Iterator[Finding]:
    if not seen.operators:
        if not any(one.about.startswith("deployments") for one in seen.unseen):
            yield problem(
                "OperatorMissing",
                "operator",
                "no Deployment of the operator is on the cluster: jobs are neither started nor checkpointed",
                "Install it: helm install epochal charts/epochal -n epochal-system --create-namespace",
            )
        return
    for one in seen.operators:
        yield from _running(one)
        yield from _release(one)
        yield from _leads(seen, one)
    everywhere = [one for one in seen.operators if not one.options.get("namespaces")]
    if len(everywhere) > 1:
        names = ", ".join(one.name for one in everywhere)
        do = "Uninstall one, or give each its own watchNamespaces."
        yield problem("TwoOperators", "operator", f"{names} watch all namespaces: they do each other's work", do)


def _running(one: OperatorDeployment) -> Iterator[Finding]:
    wanted = one.deployment["spec"].get("replicas", 1)
    ready = (one.deployment.get("status") or {}).get("readyReplicas", 0)
    where = f"kubectl describe deployment,pod -n {one.namespace} -l app.kubernetes.io/name=epochal-operator"
    if wanted == 0:
        do = f"kubectl scale deployment {one.deployment['metadata']['name']} -n {one.namespace} --replicas=1"
        yield problem("OperatorScaledDown", one.name, "it is scaled to 0", do)
    elif not ready:
        why = "; ".join(filter(None, (trouble(pod) for pod in one.pods))) or "no pod of it is ready"
        do = f"{where}; kubectl logs -n {one.namespace} deployment/{one.deployment['metadata']['name']}"
        yield problem("OperatorNotRunning", one.name, f"it does not run: {why}", do)
    elif ready < wanted:
        yield warning("OperatorReplicasMissing", one.name, f"{ready} of {wanted} replicas are ready", where)
    else:
        yield ok(one.name, f"{ready} of {wanted} replicas are ready")


def _release(one: OperatorDeployment) -> Iterator[Finding]:
    labels = one.deployment["metadata"].get("labels") or {}
    release = labels.get("app.kubernetes.io/version")
    if release and release != __version__:
        yield warning(
            "OtherRelease",
            one.name,
            f"it is of release {release}, and this command of {__version__}",
            f"pip install 'epochal[cli]=={release}', or upgrade the chart to {__version__}.",
        )


def _leads(seen: ClusterFacts, one: OperatorDeployment) -> Iterator[Finding]:
    name = one.options.get("lease")
    if not name:
        return
    lease = seen.one("leases", one.options.get("lease-namespace") or one.namespace, name)
    if lease == {}:
        return
    spec = (lease or {}).get("spec") or {}
    renewed = spec.get("renewTime")
    age = time.time() - seconds_of_stamp(renewed) if renewed else None
    do = f"kubectl logs -n {one.namespace} -l app.kubernetes.io/name=epochal-operator --prefix"
    if not spec.get("holderIdentity") or age is None:
        yield problem("NoLeader", one.name, f"nobody holds Lease {name}: no replica leads", do)
    elif age > SILENT_LEASE:
        message = f"{spec['holderIdentity']} holds Lease {name} and has not renewed it for {age:.0f} s"
        yield problem("NoLeader", one.name, message, do)
    else:
        yield ok(one.name, f"{spec['holderIdentity']} leads")


def rights(seen: ClusterFacts) -> Iterator[Finding]:
    """What the operator may not do in a namespace with jobs."""
    for namespace in seen.job_namespaces:
        one = seen.operator_of(namespace)
        if one is None:
            continue
        missing = list(_missing(seen, one.account, RIGHTS, namespace))
        if missing:
            yield problem(
                "OperatorRights",
                one.name,
                f"it may not do this in namespace {namespace}: {', '.join(missing)}",
                "helm upgrade with rbac.create=true, and with the namespace in watchNamespaces if that is set; "
                "otherwise give its account these rights (docs/rbac.md)",
            )


def namespaces(seen: ClusterFacts) -> Iterator[Finding]:
    for namespace in seen.job_namespaces:
        if seen.operators and seen.operator_of(namespace) is None:
            own = any(one.namespace == namespace for one in seen.operators)
            why = "it is the operator's own, where jobs could become the operator" if own else "no operator watches it"
            do = "Move the jobs to another namespace." if own else "Add it to the chart's watchNamespaces."
            yield problem("NamespaceNotWatched", f"namespace {namespace}", f"{why}: its jobs do not run", do)
        yield from _quota(seen, namespace)


def _quota(seen: ClusterFacts, namespace: str) -> Iterator[Finding]:
    for quota in seen.all("resourcequotas", namespace):
        name, status = quota["metadata"]["name"], quota.get("status") or {}
        used, hard = status.get("used") or {}, status.get("hard") or {}
        both = [one for one in hard if one in used]
        full = [f"{one} {used[one]} of {hard[one]}" for one in both if _is_full(used[one], hard[one])]
        if full:
            yield warning(
                "QuotaUsedUp",
                f"namespace {namespace}",
                f"ResourceQuota {name} is used up: {', '.join(full)}; the next driver, executor or cleanup is refused",
                f"Raise it (kubectl edit resourcequota {name} -n {namespace}), or make jobs smaller.",
            )


def _is_full(used: str, hard: str) -> bool:
    return _quantity(used) >= _quantity(hard) > 0 or (_quantity(hard) == 0 and used == hard)


_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


def _quantity(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)([a-zA-Z]*)", text)
    return float(found[1]) * _UNITS.get(found[2], 1.0) if found else 0.0


def _missing(seen: ClusterFacts, who: str, rules: tuple[tuple[str, str, str], ...], namespace: str) -> Iterator[str]:
    for group, resource, verbs in rules:
        denied = [verb for verb in verbs.split() if seen.may(who, verb, group, resource, namespace) is False]
        if denied:
            yield f"{'/'.join(denied)} {resource}"


def accounts(seen: ClusterFacts, namespace: str, account: str) -> Iterator[Finding]:
    """The service account of a job's pods."""
    about = f"service account {namespace}/{account}"
    found = seen.one("serviceaccounts", namespace, account)
    if found is None:
        do = "Add the namespace to the chart's workload.namespaces, or set spec.serviceAccount to one that is there."
        yield problem("DriverAccountMissing", about, "it does not exist: pods of jobs are refused", do)
        return
    missing = list(_missing(seen, f"system:serviceaccount:{namespace}:{account}", DRIVER_RIGHTS, namespace))
    if missing:
        do = "Add the namespace to the chart's workload.namespaces, or bind the role of docs/rbac.md to the account."
        yield problem("DriverRights", about, f"drivers may not {', '.join(missing)}: they get no executors", do)


CHECKS: tuple[Callable[[ClusterFacts], Iterator[Finding]], ...] = (
    kubernetes_version,
    crd,
    operator,
    namespaces,
    rights,
)
