"""The few questions that the harness itself asks an API server, by plain HTTPS with the admin's certificate."""

import http.client
import json
import ssl
from typing import Any

from cluster.control_plane_config import ADMIN, ControlPlaneConfig

TIMEOUT = 5.0


def answers(config: ControlPlaneConfig, path: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        status, _ = _get(config, path)
    # Among the first are: no certificates, because no cluster was made yet.
    except (OSError, http.client.HTTPException):
        return False
    return status == http.client.OK


def get(config: ControlPlaneConfig, path: str) -> Any:
    """The object at the path, or None while there is none or nobody answers."""
    try:
        status, body = _get(config, path)
    except (OSError, http.client.HTTPException):
        return None
    return json.loads(body) if status == http.client.OK else None


def _get(config: ControlPlaneConfig, path: str) -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=str(config.pki.authority.certificate))
    pair = config.pki.pair(ADMIN)
    context.load_cert_chain(pair.certificate, pair.key)
    connection = http.client.HTTPSConnection(config.address, config.port, context=context, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
