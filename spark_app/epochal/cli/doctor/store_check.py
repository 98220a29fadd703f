"""The check of a job's store, with the person's own credentials: it writes one small object and deletes it."""

import uuid
from collections.abc import Callable, Iterator

from epochal.cli.doctor.finding import Finding, ok, problem
from epochal.protocol.errors import (
    AccessDeniedError,
    BadCredentialsError,
    MissingBucketError,
    ProtocolError,
    StoreConfigError,
    StoreUnreachableError,
    UnsafeStoreError,
)
from epochal.protocol.store import Store

PROBE = ".epochal-doctor"

_NAMED: tuple[tuple[type[ProtocolError], str, str], ...] = (
    (
        BadCredentialsError,
        "StoreCredentials",
        "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in your environment.",
    ),
    (AccessDeniedError, "StoreDenied", "Allow your identity to get, put, list and delete objects below the prefix."),
    (MissingBucketError, "BucketMissing", "Create the bucket, or correct spec.checkpoint.storage.uri."),
    (UnsafeStoreError, "StoreOverwrites", "Use a server that honours If-None-Match on PUT, or a newer release of it."),
    (StoreUnreachableError, "StoreUnreachable", "Check endpoint, network and proxy from where you are."),
    (StoreConfigError, "StoreMisconfigured", "Correct spec.checkpoint.storage."),
)


def check_store(open_store: Callable[[], Store], about: str) -> Iterator[Finding]:
    """Whether the store answers, takes an object once and not twice, and deletes it."""
    name = f"{PROBE}/{uuid.uuid4().hex}"
    try:
        store = open_store()
        store.create(name, b"first")
        try:
            store.check_create(name, b"first", b"second")
        finally:
            store.delete([name])
    except ProtocolError as error:
        named = next(((what, do) for kind, what, do in _NAMED if isinstance(error, kind)), None)
        what, do = named or ("StoreFails", "See docs/faults.md for the message.")
        yield problem(what, about, str(error), do)
        return
    yield ok(about, "it answers, and creates an object only once")
