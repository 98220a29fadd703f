"""Asking a real API server what it thinks of a manifest."""

import json
import time
from typing import Any, Self

import kubernetes
import yaml

from cluster.control_plane import ControlPlane
from epochal.control.schema import load_crd
from epochal_operator.api import Api

JOBS = "/apis/epochal.dev/v1alpha1/namespaces/default/streamingjobs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = "fieldValidation=Strict"


class RefusedError(Exception):
    """The API server's own message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Server:
    """Requests as `kubectl` makes them: YAML, strict about unknown fields."""

    def __init__(self, plane: ControlPlane) -> None:
        self._client = kubernetes.config.new_client_from_config(str(plane.kubeconfig))  # type: ignore[no-untyped-call]
        self.api = Api(self._client)

    def request(
        self,
        method: str,
        path: str,
        body: str | None = None,
        kind: str = "application/yaml",
        accept: str = "application/json",
    ) -> Any:
        answer = self._client.rest_client.pool_manager.request(
            method,
            f"{self._client.configuration.host}{path}",
            body=None if body is None else body.encode(),
            headers={"Accept": accept, "Content-Type": kind},
        )
        found = json.loads(answer.data)
        if answer.status >= 400:
            raise RefusedError(answer.status, found["message"])
        return found

    def install_crd(self) -> None:
        """Put the CRD there as it is in `crds/`, and wait until its kind is served."""
        crd = load_crd()
        name = crd["metadata"]["name"]
        self.request(
            "PATCH", f"{CRDS}/{name}?fieldManager=tests&force=true", yaml.safe_dump(crd), "application/apply-patch+yaml"
        )
        for _ in range(200):
            conditions = self.request("GET", f"{CRDS}/{name}").get("status", {}).get("conditions") or []
            served = {condition["type"]: condition["status"] for condition in conditions}.get("Established") == "True"
            if served and self._answers(JOBS):
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} was not served within 10 s")

    def _answers(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except (RefusedError, ValueError):
            return False
        return True

    def create(self, text: str, *, dry: bool = False) -> Any:
        return self.request("POST", f"{JOBS}?{STRICT}{'&dryRun=All' if dry else ''}", text)

    def replace(self, name: str, text: str, *, dry: bool = False) -> Any:
        return self.request("PUT", f"{JOBS}/{name}?{STRICT}{'&dryRun=All' if dry else ''}", text)

    def table(self) -> Any:
        """All jobs as `kubectl get` is given them."""
        return self.request("GET", JOBS, accept="application/json;as=Table;g=meta.k8s.io;v=v1")

    def delete(self, name: str) -> None:
        self.request("DELETE", f"{JOBS}/{name}")

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
