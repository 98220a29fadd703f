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
WATCH_TIMEOUT = 240.0
"""Seconds after which the API server ends a watch; a connection that is silent for longer is dead."""
MERGE_PATCH = "application/merge-patch+json"

_TRY_AGAIN = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)

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

    @property
    def is_outage(self) -> bool:
        """Whether it goes by itself."""
        return self.code is None or self.code >= HTTPStatus.INTERNAL_SERVER_ERROR or self.code in _TRY_AGAIN


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
        where = path(kind, namespace, name)
        found = self.json("GET", where)
        if not _is_object(found):
            raise self._no_api_server(where)
        return found

    def list(self, kind: str, namespace: str | None, **query: str) -> list[JsonObject]:
        """All objects of a kind; ``None`` is all namespaces. Large lists come in pieces."""
        items: list[JsonObject] = []
        following = ""
        where = path(kind, namespace)
        while True:
            page = self.json("GET", where, {**query, "limit": "500", "continue": following})
            found = page.get("items", "")
            if not isinstance(found, list | None) or not all(map(_is_object, found or [])):
                raise self._no_api_server(where)
            items += found or []
            following = (page.get("metadata") or {}).get("continue") or ""
            if not following:
                return items

    def create(self, kind: str, namespace: str | None, body: Mapping[str, Any]) -> JsonObject:
        return self.json("POST", path(kind, namespace), body=body)

    def patch(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> JsonObject:
        return self.json("PATCH", path(kind, namespace, name), body=body, content=MERGE_PATCH)

    def watch(self, kind: str, namespace: str | None, **query: str) -> Iterator[JsonObject]:
        """Changes as they come, each with its object; ends when the API server ends the watch."""
        where = path(kind, namespace)
        asked = {**query, "watch": "true", "timeoutSeconds": f"{WATCH_TIMEOUT:.0f}"}
        for line in lines_of(self._send("GET", where, asked, stream=True, quiet=WATCH_TIMEOUT)):
            try:
                event = json.loads(line)
            except ValueError as error:
                raise ClusterError("the connection to the API server broke in the middle of an answer") from error
            if not isinstance(event, dict):
                raise self._no_api_server(where)
            if event.get("type") in ("ADDED", "MODIFIED", "DELETED") and _is_object(event.get("object")):
                yield event

    def lines(self, where: str, query: Mapping[str, str], *, follow: bool = False) -> Iterator[bytes]:
        """An answer that is text, line by line as it comes."""
        yield from lines_of(self._send("GET", where, query, stream=True, quiet=None if follow else 0))

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
            answer = json.loads(response.data)
        except ValueError as error:
            raise self._no_api_server(where) from error
        if not isinstance(answer, dict):
            raise self._no_api_server(where)
        return answer

    def _no_api_server(self, where: str) -> ClusterError:
        return ClusterError(f"{self.host}{where} does not answer as an API server does: check the address")

    def _send(
        self,
        method: str,
        where: str,
        query: Mapping[str, str],
        *,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
        stream: bool = False,
        quiet: float | None = 0,
    ) -> Any:
        """The answer, read to its end unless it is a ``stream``. ``quiet`` are the seconds for which an answer may
        rightly pause; None if for ever."""
        import urllib3

        asked = {name: value for name, value in query.items() if value}
        url = f"{self.host}{where}" + (f"?{urlencode(asked)}" if asked else "")
        headers = {"Accept": "application/json", "Content-Type": content}
        self._log_in(headers, method, where, body)
        try:
            response = self.client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=None if quiet is None else READ_TIMEOUT + quiet),
                retries=urllib3.Retry(total=0),
                preload_content=not stream,
            )
            said = response.data if response.status >= HTTPStatus.BAD_REQUEST else b""
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ClusterError(
                f"the API server at {self.host} does not answer ({_reason(error)}): check the kubeconfig's context "
                f"{self.context or '(none)'} and your network"
            ) from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _error(response.status, _said(said), where)
        return response

    def _log_in(self, headers: dict[str, str], method: str, where: str, body: Mapping[str, Any] | None) -> None:
        """Tokens expire, and plugins make new ones: programs of others, which fail in any way."""
        try:
            self.client.update_params_for_auth(headers, [], ["BearerToken"], where, method, body)
        except Exception as error:
            raise ClusterError(
                f"you cannot log in by the kubeconfig's context {self.context or '(none)'}: {_reason(error)}"
            ) from error


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("metadata"), dict)


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
        contexts, current = _contexts(file)
    except UserError as error:
        if context is not None:
            raise UserError(f"--context {context}: {error.message}") from error
        configuration = kubernetes.client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            raise UserError(
                f"{error.message}: set KUBECONFIG, or name a manifest file such as job.yaml for a local job"
            ) from error
        return KubeContext(kubernetes.client.ApiClient(configuration), namespace or "default", "")
    name = context or current
    there = ", ".join(sorted(contexts)) or "no context"
    if name is None:
        raise UserError(f"the kubeconfig names no current context: choose one with --context, it has {there}")
    if name not in contexts:
        told = f"--context {context}" if context else f"the current context {name}"
        raise UserError(f"{told}: the kubeconfig has {there}")
    try:
        client = config.new_client_from_config(file, context=name)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever is wrong in it: the library checks little of it
        raise UserError(f"context {name} of the kubeconfig cannot be used: {clean(str(error))}") from error
    if not str(client.configuration.host).startswith(("https://", "http://")):
        host = client.configuration.host
        raise UserError(f"context {name} of the kubeconfig cannot be used: its server {host} must begin with https://")
    return KubeContext(client, namespace or str(contexts[name].get("namespace") or "default"), name)


def _contexts(file: str) -> tuple[dict[str, Mapping[str, Any]], str | None]:
    """The contexts of the kubeconfig by name, and the name of the current one."""
    from kubernetes.config.kube_config import KubeConfigMerger

    found: dict[str, Mapping[str, Any]] = {}
    why = f"there is no file {file}"
    try:
        merged = KubeConfigMerger(file).config  # type: ignore[no-untyped-call]
        if merged is not None:
            for one in merged.value["contexts"]:
                found[str(one.value["name"])] = dict(one.value.get("context") or {})
            return found, merged.value.get("current-context") or None
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    except (AttributeError, KeyError, TypeError):
        why = f"{file} is another kind of file"
    except Exception as error:  # of YAML, or the library's own
        why = clean(str(error))
    raise UserError(f"there is no kubeconfig that can be used ({why})")


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
    except (urllib3.exceptions.HTTPError, OSError) as error:
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
