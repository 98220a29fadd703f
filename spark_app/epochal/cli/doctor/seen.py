"""What there is on a cluster, as far as the person may look."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from epochal.cli.cluster.client import ClusterError, ForbiddenError, JsonObject, KubeContext, MissingObjectError
from epochal.cli.doctor.finding import Finding, unknown
from epochal.control.job import DEFAULT_SERVICE_ACCOUNT
from epochal.control.labels import JOB_LABEL, PLURAL

CRD = "streamingjobs.epochal.dev"
OPERATOR = "app.kubernetes.io/name=epochal-operator"

_T = TypeVar("_T")


@dataclass(frozen=True)
class OperatorDeployment:
    """A Deployment of the operator, and its pods."""

    deployment: JsonObject
    pods: list[JsonObject]

    @property
    def namespace(self) -> str:
        return str(self.deployment["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return f"operator {self.namespace}/{self.deployment['metadata']['name']}"

    @cached_property
    def options(self) -> dict[str, str]:
        """Its arguments and, below them, its environment: ``--default-image`` may be EPOCHAL_DEFAULT_IMAGE."""
        container = self.pod_spec["containers"][0]
        found = {
            item["name"].removeprefix("EPOCHAL_").lower().replace("_", "-"): str(item.get("value", ""))
            for item in container.get("env") or []
            if item["name"].startswith("EPOCHAL_")
        }
        for argument in container.get("args") or []:
            name, _, value = str(argument).removeprefix("--").partition("=")
            found[name] = value
        return found

    @property
    def pod_spec(self) -> JsonObject:
        spec: JsonObject = self.deployment["spec"]["template"]["spec"]
        return spec

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.pod_spec.get('serviceAccountName', 'default')}"

    def watches(self, namespace: str) -> bool:
        listed = [one for one in self.options.get("namespaces", "").split(",") if one]
        return namespace in listed if listed else namespace != self.namespace


@dataclass
class ClusterFacts:
    """Asks when a check looks, and remembers. ``unseen`` collects what the person may not look at."""

    cluster: KubeContext
    namespaces: list[str] | None = None
    job: str | None = None
    unseen: list[Finding] = field(default_factory=list)
    _known: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def ask(self, key: tuple[str, ...], question: Callable[[], _T], nothing: _T) -> _T:
        if key not in self._known:
            try:
                self._known[key] = question()
            except ForbiddenError as error:
                self.unseen.append(unknown(" ".join(key), error.message))
                self._known[key] = nothing
        known: _T = self._known[key]
        return known

    def one(self, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """An object; empty if the person may not look, None if there is none."""

        def question() -> JsonObject | None:
            try:
                return self.cluster.get(kind, namespace, name)
            except MissingObjectError:
                return None

        nothing: JsonObject | None = {}
        return self.ask((kind, namespace or "", name), question, nothing)

    def all(self, kind: str, namespace: str | None, selector: str = "") -> list[JsonObject]:
        key = (kind, namespace or "all namespaces", selector)
        return self.ask(key, lambda: self.cluster.list(kind, namespace, labelSelector=selector), [])

    @cached_property
    def version(self) -> JsonObject:
        return self.cluster.json("GET", "/version")

    @cached_property
    def crd(self) -> JsonObject | None:
        return self.one("customresourcedefinitions", None, CRD)

    @cached_property
    def jobs(self) -> list[JsonObject]:
        """The jobs that are asked about; none if the cluster does not know their kind."""
        try:
            if self.job is not None and self.namespaces is not None:
                named = [self.one(PLURAL, namespace, self.job) for namespace in self.namespaces]
                return [job for job in named if job]
            if self.namespaces is None:
                found = self.all(PLURAL, None)
            else:
                found = [job for namespace in self.namespaces for job in self.all(PLURAL, namespace)]
        except MissingObjectError:
            return []
        return found

    @property
    def job_is_missing(self) -> bool:
        """Not if the person may not see it."""
        if self.job is None or self.crd is None:
            return False
        return all(self.one(PLURAL, namespace, self.job) is None for namespace in self.namespaces or [])

    @cached_property
    def operators(self) -> list[OperatorDeployment]:
        return [
            OperatorDeployment(one, self.all("pods", one["metadata"]["namespace"], OPERATOR))
            for one in self.all("deployments", None, OPERATOR)
        ]

    def operator_of(self, namespace: str) -> OperatorDeployment | None:
        return next((one for one in self.operators if one.watches(namespace)), None)

    @property
    def job_namespaces(self) -> list[str]:
        found = {job["metadata"]["namespace"] for job in self.jobs}
        return sorted(found | set(self.namespaces or []))

    def pods_of(self, job: Mapping[str, Any]) -> list[JsonObject]:
        metadata = job["metadata"]
        return self.all("pods", metadata["namespace"], f"{JOB_LABEL}={metadata['name']}")

    def may(self, who: str, verb: str, group: str, resource: str, namespace: str | None) -> bool | None:
        """Whether an account may do something; None if the person may not ask that."""
        attributes = {"verb": verb, "group": group, "resource": resource.split("/")[0]}
        if "/" in resource:
            attributes["subresource"] = resource.split("/")[1]
        if namespace:
            attributes["namespace"] = namespace
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": who, "groups": _groups(who), "resourceAttributes": attributes},
        }
        if self._known.get(("may",)) is False:
            return None
        try:
            answer = self.cluster.create("subjectaccessreviews", None, review)
            return bool((answer.get("status") or {}).get("allowed"))
        except ForbiddenError as error:
            self._known["may",] = False
            self.unseen.append(unknown("rights of service accounts", error.message))
            return None
        except ClusterError:
            return None


def _groups(account: str) -> list[str]:
    namespace = account.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


def account_of(job: Mapping[str, Any]) -> str:
    return str(job["spec"].get("serviceAccount") or DEFAULT_SERVICE_ACCOUNT)
