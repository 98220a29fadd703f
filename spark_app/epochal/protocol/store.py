"""The object store: get, create-if-absent, copy, list, delete. Nothing is ever overwritten with other bytes.

:meth:`Store.create` is the protocol's only concurrency primitive. Every request has a bounded number of tries with
growing pauses between them and one deadline over all; what a store says is turned into the errors of
:mod:`epochal.protocol.errors`, which tell wrong credentials, a missing bucket and an unreachable endpoint apart.
"""

import html
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import obstore
import obstore.exceptions as obstore_errors
import tenacity
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from epochal.protocol.errors import (
    AccessDeniedError,
    BadCredentialsError,
    MissingBucketError,
    ObjectMissingError,
    StoreConfigError,
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
    StoreUnreachableError,
    UnsafeStoreError,
)
from epochal.protocol.faults import fault_of, worth_waiting

SCHEMES = ("s3", "gs", "az", "file", "memory")

PAGE = 1000
"""Names that a store lists, or deletes, by one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to go on asking a store that does not answer, or answers with errors."""

    # Enough for the deadline to be what counts: with fewer, a store that refuses at once is given up after seconds.
    tries: int = 20
    first_pause: float = 0.1
    longest_pause: float = 5.0
    deadline: float = 30.0
    request_timeout: float = 20.0
    connect_timeout: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What a URI does not say. Left out, the store's usual environment variables and workload identity count."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Created:
    """The object is there, and it is ours. ``again``: it was there already, with our bytes: by an earlier try whose
    answer was lost, or by somebody who writes the same."""

    again: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """Somebody else's object has that name. Ours was not written."""

    data: bytes


_T = TypeVar("_T")


class StoreReader(ABC):
    """What can be asked of a store without changing it: all that a controller does."""

    uri: str

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The whole object; :class:`ObjectMissingError` if there is none."""

    @abstractmethod
    def exists(self, name: str) -> bool: ...

    @abstractmethod
    def list_names(self, prefix: str, *, after: str | None = None) -> list[str]:
        """The names of all objects below ``prefix`` that sort after ``after``, sorted."""

    @abstractmethod
    def list_page(self, prefix: str, *, after: str | None = None) -> list[str]:
        """The first of them, at most :data:`PAGE`; fewer only if there are no more. One request."""


class Store(StoreReader):
    """One job store. Safe to use from several threads."""

    def __init__(
        self,
        backend: ObjectStore,
        *,
        uri: str,
        endpoint: str | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        largest: int | None = None,
    ) -> None:
        """``largest``: the size of an object beyond which it is not read."""
        self.uri = uri
        self.endpoint = endpoint
        self.requests: Counter[str] = Counter()
        self._backend = backend
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._largest = largest
        self._counting = threading.Lock()

    def get(self, name: str) -> bytes:
        def read() -> bytes:
            found = obstore.get(self._backend, name)
            if self._largest is not None and found.meta["size"] > self._largest:
                raise StoreRefusedError(self.uri, f"object {name} is larger than {self._largest} bytes: it is not read")
            return bytes(found.bytes())

        return self._tried("get", name, read)

    def create(self, name: str, data: bytes) -> Created | Exists:
        """Write the object unless one of that name exists.

        A try whose answer was lost may have written it. So an object that exists is compared: if it holds our bytes
        it is ours. Callers whose claim must be theirs alone therefore put something unique into ``data``.
        """

        def put() -> bool:
            try:
                obstore.put(self._backend, name, data, mode="create", use_multipart=False)
            except obstore_errors.AlreadyExistsError:
                return False
            return True

        for _ in range(self._retry.tries):
            if self._tried("create", name, put):
                return Created()
            try:
                existing = self.get(name)
            except ObjectMissingError:
                continue  # deleted since: the name is free again
            return Created(again=True) if existing == data else Exists(existing)
        raise StoreUnavailableError(self.uri, f"contradicts itself: {name} can be neither created nor read")

    def check_create(self, name: str, data: bytes, other: bytes) -> None:
        """See that the object that we have just created cannot be created again: two requests, and nothing is left
        behind. ``other`` stands there after all if the store does not honour the condition."""
        match self.create(name, other):
            case Exists(existing) if existing == data:
                return
            case _:
                problem = f"overwrites an object that was to be created only once ({name})"
                raise _unsafe(self.uri, self.endpoint, problem)

    def exists(self, name: str) -> bool:
        try:
            self._tried("head", name, lambda: obstore.head(self._backend, name))
        except ObjectMissingError:
            return False
        return True

    def copy(self, name: str, new_name: str) -> None:
        """Let the store copy an object, so that no byte of it comes here. What has the new name is overwritten: only
        for names that always stand for the same bytes."""
        self._tried("copy", name, lambda: obstore.copy(self._backend, name, new_name))

    def list_names(self, prefix: str, *, after: str | None = None) -> list[str]:
        return [info.name for info in self.list_objects(prefix, after=after)]

    def list_objects(self, prefix: str, *, after: str | None = None) -> list[ObjectInfo]:
        """All objects below ``prefix`` whose names sort after ``after``, sorted by name."""

        def pages() -> list[ObjectInfo]:
            found: list[ObjectInfo] = []
            stream = obstore.list(self._backend, prefix, offset=after, chunk_size=PAGE)
            for number, page in enumerate(stream):
                if number:
                    self._count("list")  # the first page is counted with the request itself
                found.extend(ObjectInfo(meta["path"], meta["size"]) for meta in page)
            return found

        return sorted(self._tried("list", prefix, pages), key=lambda info: info.name)

    def list_page(self, prefix: str, *, after: str | None = None) -> list[str]:
        def page() -> list[str]:
            stream = obstore.list(self._backend, prefix, offset=after, chunk_size=PAGE)
            if isinstance(self._backend, LocalStore):  # a disk does not sort
                return sorted(meta["path"] for part in stream for meta in part)[:PAGE]
            return [meta["path"] for meta in next(iter(stream), [])]

        return self._tried("list", prefix, page)

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects, in this order. What does not exist is no error: it may be a second try."""
        for page in _paged(names):
            self._tried("delete", page[0], lambda page=page: self._delete_page(page))  # type: ignore[misc]

    def _delete_page(self, page: "list[str]") -> None:
        try:
            obstore.delete(self._backend, page)
        except FileNotFoundError as error:
            self._raise_unless_object_missing(page[0], error)
            # A disk stops at the first missing one; a bucket does not mind.
            for name in page:
                try:
                    obstore.delete(self._backend, name)
                except FileNotFoundError as missing:
                    self._raise_unless_object_missing(name, missing)

    def _raise_unless_object_missing(self, name: str, error: Exception) -> None:
        """A missing bucket and an unknown key come as "not found", too; to take them for done would hide them."""
        translated = _translated(self.uri, "delete", name, error)
        if not isinstance(translated, ObjectMissingError):
            raise translated from error

    def check(self) -> None:
        """Ask for one listing, so that a wrong bucket, key or endpoint is told before anything depends on it."""
        if isinstance(self._backend, LocalStore) and not _local_path(self.uri).is_dir():
            # A disk lists a missing directory as an empty one.
            raise MissingBucketError(self.uri, _NO_DIRECTORY)
        self._tried("list", "", lambda: next(iter(obstore.list(self._backend, chunk_size=1)), None))

    def _count(self, kind: str) -> None:
        with self._counting:
            self.requests[kind] += 1

    def _tried(self, kind: str, name: str, request: Callable[[], _T]) -> _T:
        """Make one request, again where that may help."""

        def once() -> _T:
            self._count(kind)
            try:
                return request()
            except StoreError:
                raise
            except Exception as error:
                if kind == "create" and _not_implemented(error):
                    raise _unsafe(self.uri, self.endpoint, f"does not implement it ({_said(error)})") from error
                raise _translated(self.uri, kind, name, error) from error

        policy = self._retry
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(worth_waiting),
            stop=tenacity.stop_after_attempt(policy.tries) | tenacity.stop_before_delay(policy.deadline),
            wait=tenacity.wait_random_exponential(multiplier=policy.first_pause, max=policy.longest_pause),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(once)


def open_store(
    uri: str,
    options: StoreOptions | None = None,
    *,
    retry: RetryPolicy | None = None,
    create: bool = True,
    largest: int | None = None,
) -> Store:
    """Open the store at ``uri``: ``s3://bucket/prefix``, ``gs://…``, ``az://container/…``, ``file:///path`` or ``memory:///``.

    No request is made: call :meth:`Store.check` to see that it works. A directory is made if ``create`` is set.
    """
    policy = retry or RetryPolicy()
    scheme = check_uri(uri)
    try:
        backend: ObjectStore
        if scheme == "memory":
            backend = MemoryStore()
        elif scheme == "file":
            backend = _local(uri, create=create)
        else:
            backend = _remote(uri, scheme, options or StoreOptions(), policy)
    except (obstore_errors.BaseError, ValueError, OSError) as error:
        raise StoreConfigError(uri, f"cannot be opened: {_said(error)}") from error
    return Store(backend, uri=uri, endpoint=options.endpoint if options else None, retry=policy, largest=largest)


def check_uri(uri: str) -> str:
    """The scheme of a URI that can be a store's."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise StoreConfigError(uri, f"is no URI: {error}") from error
    if not uri:
        raise StoreConfigError("store URI", "is empty")
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise StoreConfigError(uri, f"is not a supported store: a store URI begins with one of {known}")
    if parts.username or parts.password:
        # Not repeated in the message: it would end in logs.
        raise StoreConfigError(
            f"{parts.scheme}://…", "holds a user name or password: give credentials as options or environment variables"
        )
    if parts.query or parts.fragment:
        raise StoreConfigError(uri, "has a '?' or '#' part: give options apart from the URI")
    if parts.scheme in ("s3", "gs", "az") and not _BUCKET.fullmatch(parts.netloc):
        raise StoreConfigError(
            uri,
            f"names no bucket: write {parts.scheme}://BUCKET/PREFIX, "
            "with 3 to 63 of a-z, 0-9, '.', '_' and '-' for the bucket",
        )
    if parts.scheme == "file" and (parts.netloc not in ("", "localhost") or not parts.path.startswith("/")):
        raise StoreConfigError(uri, "is not an absolute path: write file:///PATH, with three slashes")
    if not _PLAIN_PATH.fullmatch(parts.path):
        # Stores differ in what they make of anything else: one takes '%2e%2e' for a name, the next for a way out.
        raise StoreConfigError(
            uri, "has a path that not every store takes literally: use letters, digits and '.', '_', '-', '+', '=', '@'"
        )
    segments = parts.path.removeprefix("/").removesuffix("/").split("/")
    if segments != [""] and any(segment in ("", ".", "..") for segment in segments):
        raise StoreConfigError(uri, "has an empty, '.' or '..' segment in its path")
    return parts.scheme


_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._+=@/-]*")
_NO_DIRECTORY = "there is no such directory: create it, or correct the URI"


def _local_path(uri: str) -> Path:
    return Path(urlsplit(uri).path)


def _local(uri: str, *, create: bool) -> LocalStore:
    path = _local_path(uri)
    if path.exists() and not path.is_dir():
        raise StoreConfigError(uri, "is a file; a directory is needed")
    if not create and not path.exists():
        raise MissingBucketError(uri, _NO_DIRECTORY)
    return LocalStore(path, mkdir=True)


def _remote(uri: str, scheme: str, options: StoreOptions, policy: RetryPolicy) -> ObjectStore:
    given = {
        "endpoint": options.endpoint,
        "region": options.region,
        "access_key_id": options.access_key_id,
        "secret_access_key": options.secret_access_key,
        "session_token": options.session_token,
    }
    config = {key: value for key, value in given.items() if value is not None}
    if scheme != "s3" and config:
        raise StoreConfigError(uri, f"{', '.join(sorted(config))}: these options are for s3:// only")
    if (options.access_key_id is None) != (options.secret_access_key is None):
        raise StoreConfigError(uri, "access_key_id and secret_access_key go together: give both or none")
    if options.endpoint is not None and not options.endpoint.startswith(("http://", "https://")):
        raise StoreConfigError(uri, f"endpoint {options.endpoint!r} must begin with http:// or https://")
    return from_url(  # type: ignore[call-overload, no-any-return]
        uri,
        config=config,
        client_options={
            "allow_http": bool(options.endpoint and options.endpoint.startswith("http://")),
            "timeout": timedelta(seconds=policy.request_timeout),
            "connect_timeout": timedelta(seconds=policy.connect_timeout),
        },
        # Tries are counted in one place: Store._tried.
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=policy.request_timeout)},
    )


_NO_ANSWER = ("kind: Connect", "dns error", "error trying to connect")
_METADATA = ("/latest/api/token", "/latest/meta-data/")


def _translated(uri: str, kind: str, name: str, error: Exception) -> StoreError:
    """Our error for what a store said, by the table of faults. A missing object stands in no table: it is often what
    was expected. "Not found" is also said of buckets and of keys, so these come first."""
    text, said = str(error), _said(error)
    what = f"{kind} {name}".rstrip()
    match fault_of(error).name:
        case "store-no-bucket":
            return MissingBucketError(uri, "there is no such bucket: create it, or correct the URI")
        case "store-credentials":
            return BadCredentialsError(uri, f"does not accept the credentials: check access key and secret ({said})")
        case _ if isinstance(error, FileNotFoundError | obstore_errors.NotFoundError):
            return ObjectMissingError(uri, f"has no object {name}")
        case "store-not-allowed" | "file":
            return AccessDeniedError(uri, f"does not allow to {what}: check the permissions of key or user ({said})")
        case "store-full":
            return StoreFullError(uri, f"is full, cannot {what}: make room, or let cleanup keep fewer epochs")
        case "store-refused" if "status code: 4" in text:
            return StoreRefusedError(uri, f"refused to {what}: check region, endpoint and options ({said})")
        case "store-refused":
            return StoreRefusedError(uri, f"refused to {what}: not an object name ({said})")
        case _:
            return _unanswered(uri, what, text, said)


def _unanswered(uri: str, what: str, text: str, said: str) -> StoreError:
    if not any(sign in text for sign in _NO_ANSWER):
        return StoreUnavailableError(uri, f"failed to {what}: {said}")
    if any(sign in text for sign in _METADATA):
        # Without keys the client asks the machine for a role. That may be slow to come up, so it is tried again.
        return StoreUnreachableError(
            uri,
            "found no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role "
            f"(its metadata service does not answer: {said})",
        )
    return StoreUnreachableError(uri, f"does not answer: check the endpoint and the network ({said})")


def _not_implemented(error: Exception) -> bool:
    """Whether the server knows no such request. Servers say so of a header, too."""
    text = str(error)
    return isinstance(error, NotImplementedError | obstore_errors.NotSupportedError) or any(
        sign in text for sign in ("status code: 501", "501 Not Implemented", "<Code>NotImplemented</Code>")
    )


def _unsafe(uri: str, endpoint: str | None, problem: str) -> UnsafeStoreError:
    server = f"the server at {endpoint}" if endpoint else "the store"
    return UnsafeStoreError(
        uri,
        f"{server} {problem}. Epochal needs a store with create-if-absent (PUT with If-None-Match: *): without it two "
        "drivers could write the same epoch. Use a server or a release of it that supports conditional writes, and see "
        "that no gateway in between drops the header",
    )


def _said(error: Exception) -> str:
    """What the store said, short and without what differs each time."""
    text = str(error).split("\n\nDebug source:", 1)[0]
    code, message = (re.search(rf"<{tag}>([^<]*)</{tag}>", text) for tag in ("Code", "Message"))
    if code:
        return f"{code[1]}: {html.unescape(message[1])}" if message else code[1]
    return re.sub(r" in [0-9.]+(?:ns|µs|ms|s)\b", "", text.strip().split("\n", 1)[0])[:300]


def _paged(names: Iterable[str]) -> Iterator[list[str]]:
    page: list[str] = []
    for name in names:
        page.append(name)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page
