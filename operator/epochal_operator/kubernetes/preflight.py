"""What keeps a spec from being run that only the operator can see: each check gives a problem in words, or None.

The CRD refuses what is wrong by itself. A spec that fails here is not started, and a job that runs is left as it is.
"""

from collections.abc import Callable

from epochal.control.job import JobSpec
from epochal_operator.api import Api, NotFoundError
from epochal_operator.stores.store_access import StoreRules

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

_ACCOUNT_HINT = ": add the namespace to the chart's workload.namespaces, or set spec.serviceAccount"

OWN_NAMESPACE = (
    "namespace {} is the operator's own, and a driver there could start pods as the operator: run the job in another "
    "namespace, one of the chart's workload.namespaces"
)

Check = Callable[[JobSpec, Api], str | None]


def problem_of(spec: JobSpec, api: Api, rules: StoreRules) -> str:
    """The first problem; empty if there is none."""

    def storage(spec: JobSpec, _: Api) -> str | None:
        if spec.storage is None:
            return "spec.checkpoint.storage is not set: on a cluster, checkpoints need a store"
        return rules.problem(spec.storage)

    for check in (_image, storage, _credentials, _pipeline, _service_account):
        if problem := check(spec, api):
            return problem
    return ""


def _image(spec: JobSpec, _: Api) -> str | None:
    return None if spec.image else "spec.image is not set, and the operator was started without --default-image"


def _credentials(spec: JobSpec, api: Api) -> str | None:
    name = spec.storage.credentials_secret if spec.storage else None
    if name is None:
        return None
    try:
        data = api.get("secrets", spec.namespace, name).get("data") or {}
    except NotFoundError:
        return f"Secret {name} does not exist: spec.checkpoint.storage.credentialsSecret names it"
    missing = [key for key in _KEYS if key not in data]
    return f"Secret {name} has no key {' and no key '.join(missing)}" if missing else None


def _pipeline(spec: JobSpec, api: Api) -> str | None:
    wanted = spec.pipeline.config_map
    if wanted is None:
        return None
    try:
        found = api.get("configmaps", spec.namespace, wanted.name)
    except NotFoundError:
        return f"ConfigMap {wanted.name} does not exist: spec.pipeline.configMap names it"
    keys = sorted({*(found.get("data") or {}), *(found.get("binaryData") or {})})
    if wanted.key in keys:
        return None
    return f"ConfigMap {wanted.name} has no key {wanted.key}: it has {', '.join(keys) or 'none'}"


def _service_account(spec: JobSpec, api: Api) -> str | None:
    try:
        api.get("serviceaccounts", spec.namespace, spec.account)
    except NotFoundError:
        hint = "" if spec.service_account else _ACCOUNT_HINT
        return f"ServiceAccount {spec.account} does not exist in namespace {spec.namespace}{hint}"
    return None
