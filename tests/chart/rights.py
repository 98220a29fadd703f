"""The rights that the chart gives, one by one, and what each is for."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.chart.render import found


class Right(NamedTuple):
    resource: str
    verb: str

    @property
    def slug(self) -> str:
        return f"{self.verb}-{self.resource.replace('/', '-')}"

    def refusal(self, namespace: str) -> str:
        """How the API server says that somebody has not got it."""
        return (
            f'cannot {self.verb} resource "{self.resource}" in API group "{group(self)}" in the namespace "{namespace}"'
        )


OPERATOR: dict[Right, str] = {
    Right("streamingjobs", "get"): "see how a job that is deleted, or was changed meanwhile, looks now",
    Right("streamingjobs", "list"): "find the jobs when it starts",
    Right("streamingjobs", "watch"): "hear of new, edited and deleted jobs",
    Right("streamingjobs", "patch"): "set and take away the finalizer that lets a deleted job stop first",
    Right("streamingjobs/status", "update"): "write the record ahead of each action, and what people see",
    Right("pods", "list"): "see that no driver lives before it starts one",
    Right("pods", "watch"): "hear that a driver runs or has ended",
    Right("pods", "create"): "start a driver",
    Right("pods", "delete"): "end a driver that is replaced, and remove old ones",
    Right("services", "list"): "know which Services are there",
    Right("services", "watch"): "hear that a driver's Service was deleted",
    Right("services", "create"): "give a job's driver a name",
    Right("configmaps", "get"): "see that the pipeline's ConfigMap is there before it starts a driver",
    Right("configmaps", "list"): "know which generations' ConfigMaps are there",
    Right("configmaps", "watch"): "hear that a driver's ConfigMap was deleted",
    Right("configmaps", "create"): "give a driver its configuration",
    Right("configmaps", "delete"): "remove those of old generations",
    Right("secrets", "get"): "read what a driver is asked with, and the store's credentials to rebuild a lost record",
    Right("secrets", "create"): "make a generation's tokens, keys and certificate",
    Right("serviceaccounts", "get"): "say so when a job's service account is missing",
    Right("events", "create"): "tell what happened",
    Right("jobs", "list"): "know which cleanups are there",
    Right("jobs", "watch"): "hear that a cleanup has ended",
    Right("jobs", "create"): "start a cleanup",
    Right("jobs", "delete"): "remove a cleanup that has ended",
}

CLUSTER: dict[Right, str] = {
    Right("nodes", "list"): "know which nodes are being emptied",
    Right("nodes", "watch"): "hear that a node is to be emptied, and move the drivers that are there",
    Right("poddisruptionbudgets", "create"): "let a drain wait until a driver has made its last checkpoint",
}
"""Besides, where it looks after all namespaces."""

LEASE: dict[Right, str] = {
    Right("leases", "create"): "take the Lease when there is none",
    Right("leases", "get"): "see who holds it",
    Right("leases", "update"): "hold it, or take it over",
}

DRIVER: dict[Right, str] = {
    Right("pods", "get"): "find its own pod, which owns the executors",
    Right("pods", "list"): "see which executors there are",
    Right("pods", "watch"): "hear that an executor has ended",
    Right("pods", "create"): "start executors",
    Right("pods", "delete"): "remove executors that have ended",
    Right("pods", "deletecollection"): "remove executors that are too many, or did not come up in time",
}

_GROUPS = {
    "streamingjobs": "epochal.dev",
    "jobs": "batch",
    "poddisruptionbudgets": "policy",
    "leases": "coordination.k8s.io",
}


def group(right: Right) -> str:
    return _GROUPS.get(right.resource.split("/")[0], "")


def rules_of(role: dict[str, Any]) -> set[Right]:
    return {Right(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def namespace_of(right: Right) -> str:
    """Where everything is allowed but this."""
    return f"no-{right.slug}"


def bound(account: str, home: str, namespace: str, rights: Iterable[Right]) -> list[dict[str, Any]]:
    """A Role with these rights in ``namespace``, and its binding to the service account of namespace ``home``."""
    rules = [{"apiGroups": [group(right)], "resources": [right.resource], "verbs": [right.verb]} for right in rights]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": account, "namespace": namespace}}
    return [
        {**kind, "kind": "Role", "rules": rules},
        {
            **kind,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
        },
    ]


def chart_roles() -> dict[str, dict[str, Any]]:
    """The chart's roles by what they are for."""
    values = {"crds": {"enabled": False}, "watchNamespaces": ["team-a"], "ha": {"enabled": True}}
    names = {"operator": "epochal-operator", "lease": "epochal-lease", "driver": "epochal-driver"}
    roles = {purpose: found(values, "Role", name) for purpose, name in names.items()}
    return roles | {"everywhere": found({"crds": {"enabled": False}}, "ClusterRole", "epochal-operator")}
