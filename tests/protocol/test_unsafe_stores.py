"""A store that does not honour create-if-absent lets every driver win: no generation begins on it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import MemoryStore

from epochal.protocol.epochs import Generation
from epochal.protocol.errors import UnsafeStoreError
from epochal.protocol.publish import Fenced, claim_generation
from epochal.protocol.resolve import StartEmpty
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import Exists, RetryPolicy, Store, StoreOptions, open_store
from tests.protocol.making import PATHS, generation_record
from tests.support.proxy import CountingProxy, Request
from tests.support.s3 import S3Bucket, S3Server


def options(server: S3Server, endpoint: str) -> StoreOptions:
    return StoreOptions(
        endpoint=endpoint,
        region=server.region,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
    )


class Overwriting(CountingProxy):
    """Makes an S3 server one that ignores conditions: what has the name of a PUT is gone before the PUT arrives. To
    take the header out would not do: it is signed."""

    def __init__(self, server: S3Server) -> None:
        super().__init__(server.endpoint)
        self._data = server.data_dir

    def _count(self, request: Request) -> None:
        if request.method == "PUT":
            (self._data / request.target.partition("?")[0].lstrip("/")).unlink(missing_ok=True)
        super()._count(request)


@pytest.mark.s3
def test_no_generation_begins_on_a_server_that_overwrites(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with Overwriting(s3_server) as proxy:
        store = open_store(f"s3://{s3_bucket.name}/root", options(s3_server, proxy.endpoint))
        with pytest.raises(UnsafeStoreError):
            start_generation(store, PATHS, StartRequest(record=generation_record(1)))
        with pytest.raises(UnsafeStoreError) as caught:
            start_generation(store, PATHS, StartRequest(record=generation_record(2)))
    said = str(caught.value)
    assert said.startswith(f"s3://{s3_bucket.name}/root: "), "which store"
    assert f"at {proxy.endpoint} overwrites an object" in said
    assert "If-None-Match" in said, "what to look for in the server's documentation"
    names = store_at(s3_server, s3_bucket).list_names(PATHS.prefix)
    assert names == [PATHS.generation(Generation(number)) for number in (1, 2)], "nothing that nobody knows"


def store_at(server: S3Server, bucket: S3Bucket) -> Store:
    return open_store(f"s3://{bucket.name}/root", options(server, server.endpoint))


@pytest.mark.s3
def test_a_job_goes_on_once_its_server_is_a_good_one(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with Overwriting(s3_server) as proxy:
        bad = open_store(f"s3://{s3_bucket.name}/root", options(s3_server, proxy.endpoint))
        with pytest.raises(UnsafeStoreError):
            start_generation(bad, PATHS, StartRequest(record=generation_record(1)))
    good = store_at(s3_server, s3_bucket)
    assert isinstance(start_generation(good, PATHS, StartRequest(record=generation_record(2))), StartEmpty)


@pytest.fixture(params=["memory", "disk", pytest.param("s3", marks=pytest.mark.s3)])
def good_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        return store_at(request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket"))
    return open_store("memory:///" if request.param == "memory" else f"file://{tmp_path}/store")


def test_the_probe_takes_two_requests_and_leaves_nothing(good_store: Store) -> None:
    """The generation's record is what is created a second time: one refused PUT, and one GET to see whose it is."""
    assert claim_generation(good_store, PATHS, generation_record(1)) is None
    assert good_store.requests == {"create": 2, "get": 1, "list": 2}
    assert good_store.list_names(PATHS.prefix) == [PATHS.generation(Generation(1))]
    assert isinstance(claim_generation(good_store, PATHS, generation_record(1, claim="driver-b")), Fenced)


def test_a_store_that_refuses_and_overwrites_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put

    def put_and_refuse(backend: MemoryStore, name: str, data: bytes, **_: object) -> None:
        there = bool(list(backend.list(name.rpartition("/")[0])))
        put(backend, name, data)
        if there:
            raise AlreadyExistsError(name)

    monkeypatch.setattr(obstore, "put", put_and_refuse)
    with pytest.raises(UnsafeStoreError, match="overwrites an object"):
        claim_generation(Store(MemoryStore(), uri="memory:///"), PATHS, generation_record(1))


# --- servers that do not know the condition ---------------------------------------------------------------------------

NOT_IMPLEMENTED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>NotImplemented</Code><Message>A header you provided implies functionality that is not implemented</Message>
</Error>"""

LISTING = b"<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>"


@contextmanager
def server_that_answers(status: int, body: bytes, *, first: int = 200) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server that answers each PUT with ``status``; the first ``first`` times only."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.headers.get("If-None-Match", ""))
            self._answer(*((status, body) if len(seen) <= first else (412, b"")))

        def do_GET(self) -> None:
            self._answer(200, LISTING)

        def _answer(self, code: int, data: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Last-Modified", "Wed, 18 Nov 2026 12:00:00 GMT")
            self.send_header("ETag", '"1"')
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()


def opened(endpoint: str) -> Store:
    keys = StoreOptions(endpoint=endpoint, region="us-east-1", access_key_id="key", secret_access_key="secret")
    return open_store("s3://bucket/root", keys, retry=RetryPolicy(first_pause=0.01, longest_pause=0.02, tries=3))


@pytest.mark.parametrize(
    ("status", "body"), [(501, NOT_IMPLEMENTED), (501, b""), (400, NOT_IMPLEMENTED)], ids=["501", "501, empty", "400"]
)
def test_a_server_that_does_not_know_the_condition_is_asked_once(status: int, body: bytes) -> None:
    with server_that_answers(status, body) as (endpoint, seen):
        with pytest.raises(UnsafeStoreError) as caught:
            start_generation(opened(endpoint), PATHS, StartRequest(record=generation_record(1)))
        assert seen == ["*"]
    said = str(caught.value)
    assert said.startswith(f"s3://bucket/root: the server at {endpoint} does not implement")
    assert "If-None-Match" in said


def test_a_transient_error_is_no_answer() -> None:
    """A 503 is tried again; that the server then knows the condition is what counts."""
    with server_that_answers(503, b"<Error><Code>SlowDown</Code></Error>", first=2) as (endpoint, seen):
        store = opened(endpoint)
        assert store.create("name", b"data") == Exists(LISTING)
        assert seen == ["*"] * 3
