"""Requests to the API server with the person's own kubeconfig: JSON in, JSON out, every failure in words.

The library that reads kubeconfigs and knows every way to log in is imported when a command needs a cluster: commands
for local jobs do without it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from epochal.cli.errors import UserError
from epochal.control.foreign import clean
from epochal.control.schema import GROUP, VERSION

JsonObject = dict[str, Any]

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
MERGE_PATCH = "application/merge-patch+json"

_PREFIXES = {
    "streamingjobs": f"/apis/{GROUP}/{VERSION}",
    "deployments": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
    "subjectaccessreviews": "/apis/authorization.k8s.io/v1",
    "selfsubjectaccessreviews": "/apis/authorization.k8s.io/v1",
}


class ClusterError(UserError):
    """The API server did not do what was asked. ``code`` is None if it did not answer."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class MissingObjectError(ClusterError):
    """There is no such object."""


class ForbiddenError(ClusterError):
    """The person may not do this."""


@dataclass(frozen=True, slots=True)
class KubeContext:
    """One context of the kubeconfig. ``namespace`` is the one to use where a command names none."""

    client: Any
    namespace: str
    context: str

    @property
    def host(self) -> str:
        return str(self.client.configuration.host)

    def get(self, kind: str, namespace: str | None, name: str) -> JsonObject:
        return self.json("GET", path(kind, namespace, name))

    def list(self, kind: str, namespace: str | None, **query: str) -> list[JsonObject]:
        """All objects of a kind; ``None`` is all namespaces. Large lists come in pieces."""
        items: list[JsonObject] = []
        following = ""
        while True:
            page = self.json("GET", path(kind, namespace), {**query, "limit": "500", "continue": following})
            items += page.get("items") or []
            following = page["metadata"].get("continue") or ""
            if not following:
                return items

    def create(self, kind: str, namespace: str | None, body: Mapping[str, Any]) -> JsonObject:
        return self.json("POST", path(kind, namespace), body=body)

    def patch(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> JsonObject:
        return self.json("PATCH", path(kind, namespace, name), body=body, content=MERGE_PATCH)

    def watch(self, kind: str, namespace: str | None, **query: str) -> Iterator[JsonObject]:
        """Changes as they come; ends when the API server ends the watch."""
        response = self._send("GET", path(kind, namespace), {**query, "watch": "true"}, read_timeout=None)
        for line in lines_of(response):
            yield json.loads(line)

    def lines(self, where: str, query: Mapping[str, str], *, follow: bool = False) -> Iterator[bytes]:
        """An answer that is text, line by line as it comes."""
        yield from lines_of(self._send("GET", where, query, read_timeout=None if follow else READ_TIMEOUT))

    def json(
        self,
        method: str,
        where: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> JsonObject:
        response = self._send(method, where, query or {}, body=body, content=content)
        try:
            answer: JsonObject = json.loads(response.data)
        except ValueError as error:
            raise ClusterError(
                f"{self.host}{where} does not answer as an API server does: check the address"
            ) from error
        return answer

    def _send(
        self,
        method: str,
        where: str,
        query: Mapping[str, str],
        *,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
        read_timeout: float | None = READ_TIMEOUT,
    ) -> Any:
        import urllib3

        asked = {name: value for name, value in query.items() if value}
        url = f"{self.host}{where}" + (f"?{urlencode(asked)}" if asked else "")
        headers = {"Accept": "application/json", "Content-Type": content}
        try:
            # Tokens expire, and plugins make new ones.
            self.client.update_params_for_auth(headers, [], ["BearerToken"], where, method, body)
            response = self.client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=read_timeout),
                retries=urllib3.Retry(total=0),
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterError(
                f"the API server at {self.host} does not answer ({_reason(error)}): check the kubeconfig's context "
                f"{self.context or '(none)'} and your network"
            ) from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _error(response.status, _said(response.data), where)
        return response


def load_cluster(context: str | None = None, namespace: str | None = None) -> KubeContext:
    """The cluster of the kubeconfig's context; inside a pod without a kubeconfig, the pod's own."""
    try:
        import kubernetes
    except ImportError as error:
        raise UserError("this needs the client of Kubernetes: pip install 'epochal[cli]'") from error
    config = kubernetes.config
    # The library reads the variable once, when it is imported.
    file = os.environ.get("KUBECONFIG") or "~/.kube/config"
    try:
        contexts, current = config.list_kube_config_contexts(file)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        if context is None:
            configuration = kubernetes.client.Configuration()
            try:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except config.ConfigException:
                raise UserError(
                    f"there is no kubeconfig that can be used ({clean(str(error))}): set KUBECONFIG, or name a "
                    "manifest file such as job.yaml for a local job"
                ) from error
            return KubeContext(kubernetes.client.ApiClient(configuration), namespace or "default", "")
        raise UserError(f"--context {context}: there is no kubeconfig that can be used: {clean(str(error))}") from error
    known = {str(one["name"]): one for one in contexts}
    chosen = current if context is None else known.get(context)
    if chosen is None:
        raise UserError(f"--context {context}: the kubeconfig has {', '.join(sorted(known)) or 'no context'}")
    try:
        client = config.new_client_from_config(file, context=chosen["name"])  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, ValueError) as error:
        raise UserError(f"context {chosen['name']} of the kubeconfig cannot be used: {clean(str(error))}") from error
    own = str((chosen.get("context") or {}).get("namespace") or "default")
    return KubeContext(client, namespace or own, str(chosen["name"]))


def path(kind: str, namespace: str | None, name: str | None = None, below: str | None = None) -> str:
    parts = [_PREFIXES.get(kind, "/api/v1")]
    if namespace is not None:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind)
    parts += [quote(name, safe=":")] if name is not None else []
    parts += [below] if below is not None else []
    return "/".join(parts)


def lines_of(response: Any) -> Iterator[bytes]:
    import urllib3

    rest = b""
    try:
        for chunk in response.stream(amt=None, decode_content=True):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
    except urllib3.exceptions.HTTPError as error:
        raise ClusterError(f"the connection to the API server broke: {_reason(error)}") from error
    finally:
        response.close()
    if rest:
        yield rest


def _said(data: bytes) -> str:
    try:
        return clean(str(json.loads(data).get("message") or ""))
    except (ValueError, AttributeError):
        return clean(data[:200].decode("utf-8", "replace"))


def _error(code: int, said: str, where: str) -> ClusterError:
    match code:
        case HTTPStatus.NOT_FOUND if "/streamingjobs" in where and '" not found' not in said:
            return MissingObjectError("the cluster does not know StreamingJobs: install the chart, or its CRD", code)
        case HTTPStatus.NOT_FOUND:
            return MissingObjectError(said or f"there is no {where}", code)
        case HTTPStatus.UNAUTHORIZED:
            return ClusterError("the API server does not know you: log in again, or choose another --context", code)
        case HTTPStatus.FORBIDDEN:
            return ForbiddenError(f"you may not do this: {said}", code)
        case _:
            return ClusterError(f"the API server answers {code}: {said}", code)


def _reason(error: BaseException) -> str:
    """The innermost words: urllib3 wraps what the network said in what it was doing."""
    reason = getattr(error, "reason", None)
    text = str(reason if isinstance(reason, BaseException) else error)
    return clean(text.split(": ", 1)[-1], 200)
