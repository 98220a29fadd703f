"""Requests to the Kubernetes API: JSON in, JSON out, every failure told apart, every request counted.

The official client brings configuration, credentials, TLS and connections. Its typed models are left aside: turning
each pod into a tree of objects costs a millisecond, and the operator looks at a few fields.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import kubernetes
import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from epochal.control.foreign import clean

JsonObject = dict[str, Any]

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 15.0


class ApiError(Exception):
    """The API server did not do what was asked. ``code`` is None if it did not answer at all; ``said`` are its own
    words, ``reason`` its word for it; ``retry_after`` is how many seconds it wants to be left alone."""

    def __init__(
        self,
        message: str,
        code: int | None = None,
        *,
        said: str = "",
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.said, self.reason = code, said or message, reason
        self.retry_after = retry_after


class NotFoundError(ApiError):
    """There is no such object."""


class ConflictError(ApiError):
    """The object exists already, or has changed since it was read."""


class GoneError(ApiError):
    """The version to watch from is too old: list again."""


class NamespaceEndsError(ApiError):
    """The namespace is being deleted: nothing can be created in it any more."""


_ERRORS: dict[int, type[ApiError]] = {404: NotFoundError, 409: ConflictError, 410: GoneError}

_PREFIXES = {
    "pods": "/api/v1",
    "services": "/api/v1",
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "serviceaccounts": "/api/v1",
    "jobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "nodes": "/api/v1",
    "streamingjobs": "/apis/epochal.dev/v1alpha1",
}

OnRequest = Callable[[str, str, str], None]
"""Told of every request: verb, resource, and the answer's code (or ``error``)."""


def load_client(*, connections: int = 64) -> ApiClient:
    """For the cluster that this process runs in; outside of one, for the kubeconfig's current context."""
    configuration = Configuration()
    try:
        kubernetes.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except kubernetes.config.ConfigException:
        kubernetes.config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    configuration.connection_pool_maxsize = connections
    # A write whose answer is lost is looked at in the next round, not sent again unseen.
    configuration.retries = urllib3.Retry(total=0)
    return ApiClient(configuration)


class Api:
    """Safe to use from several threads."""

    def __init__(
        self,
        client: ApiClient,
        on_request: OnRequest = lambda *_: None,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self._client = client
        self._on_request = on_request
        self._connect_timeout, self._read_timeout = connect_timeout, read_timeout
        self.before_write: Callable[[], None] = lambda: None
        """Called before each request that changes something, in the thread that makes it."""

    @property
    def configuration(self) -> Configuration:
        configuration: Configuration = self._client.configuration
        return configuration

    def get(self, kind: str, namespace: str | None, name: str) -> JsonObject:
        return self._json("GET", kind, path(kind, namespace, name))

    def list(self, kind: str, namespace: str | None, *, selector: str = "", name: str = "") -> JsonObject:
        query = {"labelSelector": selector} if selector else {}
        query |= {"fieldSelector": f"metadata.name={name}"} if name else {}
        return self._json("GET", kind, path(kind, namespace), query=query)

    def create(self, kind: str, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        return self._json("POST", kind, path(kind, namespace), body=body)

    def create_dry(self, kind: str, namespace: str, body: Mapping[str, Any]) -> None:
        """See whether it would be taken; nothing is made."""
        self._json("POST", kind, path(kind, namespace), query={"dryRun": "All"}, body=body)

    def replace(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> JsonObject:
        """Write all but the status; :class:`ConflictError` if it is not at the body's resourceVersion any more."""
        return self._json("PUT", kind, path(kind, namespace, name), body=_at_a_version(body))

    def replace_status(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> JsonObject:
        """Write the status; :class:`ConflictError` if the object is not at the body's resourceVersion any more."""
        return self._json("PUT", kind, path(kind, namespace, name, "status"), body=_at_a_version(body))

    def delete(self, kind: str, namespace: str, name: str, *, uid: str, grace: int | None = None) -> None:
        """Delete it and, in the background, what it owns. That it is gone already is fine."""
        options: JsonObject = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self._json("DELETE", kind, path(kind, namespace, name), body=options)
        except NotFoundError:
            return
        except ConflictError:
            # Another object has taken the name by now: the one that was meant is gone.
            return

    def watch(
        self, kind: str, namespace: str | None, *, selector: str, version: str, seconds: int
    ) -> Iterator[JsonObject]:
        """Changes after ``version``, for ``seconds``. A connection that has died is noticed a little later."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        response = self._send("GET", kind, path(kind, namespace), query=query, read_timeout=seconds + 10.0)
        raw = response.response
        try:
            rest = b""
            for chunk in raw.stream(amt=None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event: JsonObject = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise _error(int(status.get("code", 500)), "", status)
                    yield event
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(f"the watch of {kind} broke: {error}") from error
        finally:
            raw.close()

    def _json(
        self,
        method: str,
        kind: str,
        where: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> JsonObject:
        response = self._send(method, kind, where, query=query, body=body)
        try:
            answer: JsonObject = json.loads(response.response.data)
        except (ValueError, urllib3.exceptions.HTTPError) as error:
            raise ApiError(f"{method} {where}: the answer cannot be read: {error}") from error
        return answer

    def _send(
        self,
        method: str,
        kind: str,
        where: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        read_timeout: float | None = None,
    ) -> Any:
        url = f"{where}?{urlencode(query)}" if query else where
        headers = {"Accept": "application/json"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        if method != "GET":
            self.before_write()
        timeout = (self._connect_timeout, self._read_timeout if read_timeout is None else read_timeout)
        try:
            response = self._request(method, url, body=data, headers=headers, timeout=timeout)
        except ApiError:
            self._on_request(method, kind, "error")
            raise
        self._on_request(method, kind, str(response.status))
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _error(response.status, f"{method} {where}: ", _status(response))
        return response

    def _request(
        self, method: str, url: str, *, body: bytes | None, headers: Mapping[str, str], timeout: tuple[float, float]
    ) -> Any:
        sent = dict(headers)
        # Tokens expire: the client reads a new one when it is time.
        self._client.update_params_for_auth(sent, [], ["BearerToken"], url, method, body)
        pool = self._client.rest_client.pool_manager
        try:
            answer = pool.request(
                method,
                self._client.configuration.host + url,
                body=body,
                headers=sent,
                timeout=urllib3.Timeout(connect=timeout[0], read=timeout[1]),
                preload_content=False,
            )
            return kubernetes.client.rest.RESTResponse(answer)
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise ApiError(f"{method} {url.split('?')[0]}: the API server does not answer: {error}") from error


def path(kind: str, namespace: str | None, name: str | None = None, below: str | None = None) -> str:
    parts = [_PREFIXES[kind]]
    if namespace is not None:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind)
    if name is not None:
        parts.append(quote(name, safe=":"))
    if below is not None:
        parts.append(below)
    return "/".join(parts)


def _at_a_version(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whoever replaces something says what it was when it was read."""
    if not body["metadata"].get("resourceVersion"):
        raise ValueError(f"{body.get('kind')} is to be replaced, and has no resourceVersion")
    return body


def _error(code: int, where: str, status: JsonObject) -> ApiError:
    """From a Status object, or what is there of one."""
    said, reason = clean(str(status.get("message", ""))), clean(str(status.get("reason") or ""))
    details: JsonObject = status.get("details") or {}
    causes = {cause.get("reason") for cause in details.get("causes") or []}
    kind = NamespaceEndsError if "NamespaceTerminating" in causes else _ERRORS.get(code, ApiError)
    return kind(where + said, code, said=said, reason=reason, retry_after=details.get("retryAfterSeconds"))


def _status(response: Any) -> JsonObject:
    """Of an answer that is an error: it stays one when its body cannot be read."""
    try:
        data = bytes(response.response.data)
    except (urllib3.exceptions.HTTPError, OSError):
        data = b""
    try:
        status = json.loads(data)
    except ValueError:
        status = None
    if not isinstance(status, dict) or not isinstance(status.get("details") or {}, dict):
        status = {"message": data[:200].decode("utf-8", "replace")}
    asked = str(response.response.headers.get("Retry-After", ""))
    # Whoever answers for a server that has too much to do may know no Status.
    return (
        status | {"details": {"retryAfterSeconds": int(asked)} | (status.get("details") or {})}
        if asked.isdigit()
        else status
    )
