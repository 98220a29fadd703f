"""The job's store as the operator reads it: with the job's own credentials, and never for long."""

import base64
import binascii

from epochal.control.job import JobSpec
from epochal.protocol.errors import StoreConfigError
from epochal.protocol.store import RetryPolicy, Store, StoreOptions, open_store
from epochal_operator.api import Api, NotFoundError

_RETRY = RetryPolicy(tries=4, deadline=5.0, request_timeout=5.0, connect_timeout=2.0)
"""A round must not wait long: the next one comes soon."""


def open_job_store(spec: JobSpec, api: Api) -> Store:
    """Opened anew each time: it is needed rarely, and credentials change."""
    if spec.storage is None:
        raise StoreConfigError("", "the job names no store: set spec.checkpoint.storage")
    config, secret = spec.storage.config, spec.storage.credentials_secret
    keys = _keys(api, spec.namespace, secret) if secret else {}
    options = StoreOptions(
        endpoint=config.endpoint,
        region=config.region,
        access_key_id=keys.get("AWS_ACCESS_KEY_ID"),
        secret_access_key=keys.get("AWS_SECRET_ACCESS_KEY"),
        session_token=keys.get("AWS_SESSION_TOKEN"),
    )
    return open_store(config.uri, options, retry=_RETRY)


def _keys(api: Api, namespace: str, name: str) -> dict[str, str]:
    try:
        data = api.get("secrets", namespace, name).get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}
    except NotFoundError as error:
        raise StoreConfigError(name, "the Secret with the store's credentials does not exist") from error
    except (binascii.Error, UnicodeDecodeError) as error:
        raise StoreConfigError(name, f"the Secret with the store's credentials is not text: {error}") from error
