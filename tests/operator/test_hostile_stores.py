"""A store's endpoint is its tenant's: it may answer anything, or nothing, and must harm no more than its own jobs."""

import base64
import json
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from epochal.control.job import JobSpec, PipelineSpec, StorageSpec
from epochal.protocol.control import StorageConfig
from epochal.protocol.errors import (
    AccessDeniedError,
    BadCredentialsError,
    MissingBucketError,
    ObjectMissingError,
    StoreConfigError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    StoreUnreachableError,
)
from epochal.protocol.store import StoreOptions, StoreReader, open_store
from epochal_operator.stores import s3_reader
from epochal_operator.stores.endpoint import find_endpoint
from epochal_operator.stores.s3_reader import Keys, LargeReadsBusyError, Look, S3Reader, signed
from epochal_operator.stores.store_access import (
    OF_NAMESPACE,
    REST,
    SLOW_FOR,
    StoreBusyError,
    StoreLook,
    StoreRules,
    Stores,
)
from tests.support.hostile import CHUNKED, UNTIL_CLOSED, Behaviour, HostileServer, answers, claims, drips, floods, hangs
from tests.support.s3 import S3Bucket

KEYS = Keys(access_key_id="KEY", secret_access_key="SECRET")
URI = "s3://bucket/root"
REQUEST, LOOK = 0.4, 0.8
"""The limits of tests that wait for them; the real ones are longer. Others keep those: this machine may be busy."""


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_reader, "LONGEST_REQUEST", REQUEST)
    monkeypatch.setattr(s3_reader, "LONGEST_LOOK", LOOK)


def reader(endpoint: str, **look: Any) -> S3Reader:
    return S3Reader(
        find_endpoint(URI, endpoint, local=True),
        uri=URI,
        bucket="bucket",
        prefix="root",
        region="us-east-1",
        keys=KEYS,
        look=Look(**look),
    )


def get(store: S3Reader) -> object:
    return store.get("ns/job/epochs/1/manifest.json")


def names(store: S3Reader) -> object:
    return store.list_names("ns/job/epochs/")


def error_of(behave: Behaviour, question: Callable[[S3Reader], object]) -> StoreError:
    """What the operator makes of it: one error, in time, in a few plain words, with little memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with HostileServer(behave) as server:
        begun = time.monotonic()
        with pytest.raises(StoreError) as caught:
            question(reader(server.endpoint))
        assert time.monotonic() - begun < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
    return caught.value


HANGING = {
    "says nothing": hangs,
    "drips headers": drips(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
    "drips promises": drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drips": drips(UNTIL_CLOSED, b" "),
    "drips chunks": drips(CHUNKED, b"1\r\n \r\n"),
    "drips an error": drips(b"HTTP/1.1 500 Bad\r\n\r\n", b"x"),
    "promises a body": claims(200, 1000),
}

TOO_LARGE = {
    # With the client that drivers use, this one header ends the process: it sets aside as much memory.
    "an error of 100 GB is promised": claims(400, 100_000_000_000),
    "a manifest of 5 GB is promised": claims(200, 5_000_000_000),
    "floods": floods(UNTIL_CLOSED),
    "floods in chunks": floods(CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "floods with an error": floods(b"HTTP/1.1 403 No\r\n\r\n"),
}


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("question", [get, names])
@pytest.mark.parametrize("behave", [pytest.param(each, id=name) for name, each in HANGING.items()])
def test_one_that_does_not_get_to_an_end_is_waited_for_once(
    behave: Behaviour, question: Callable[[S3Reader], object]
) -> None:
    assert isinstance(error_of(behave, question), StoreUnavailableError)


@pytest.mark.parametrize("question", [get, names])
@pytest.mark.parametrize("behave", [pytest.param(each, id=name) for name, each in TOO_LARGE.items()])
def test_no_more_is_read_than_a_look_may_cost(behave: Behaviour, question: Callable[[S3Reader], object]) -> None:
    assert isinstance(error_of(behave, question), StoreRefusedError | StoreUnavailableError)


def page(keys: str, end: str = "<IsTruncated>false</IsTruncated>") -> bytes:
    return f"<ListBucketResult>{keys}{end}</ListBucketResult>".encode()


KEY = "<Contents><Key>root/ns/job/epochs/1/manifest.json</Key><Size>1</Size></Contents>"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<!DOCTYPE x [<!ENTITY a 'aaaaaaaa'>]>" + page(KEY), id="entities"),
        pytest.param(b"<!DOCTYPE x SYSTEM 'file:///etc/passwd'>" + page(KEY), id="a file"),
        pytest.param(b"<a>" * 500_000, id="deep"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"", id="nothing"),
        pytest.param(page(KEY, "<IsTruncated>true</IsTruncated>"), id="no way to go on"),
        pytest.param(page(KEY * 30_000), id="a large page"),
    ],
)
def test_a_listing_that_is_none_is_refused(body: bytes) -> None:
    assert isinstance(error_of(answers(200, body), names), StoreRefusedError)


def test_pages_without_end_end() -> None:
    end = "<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
    assert isinstance(error_of(answers(200, page(KEY * 1000, end)), names), StoreRefusedError | StoreUnavailableError)


def test_names_of_other_places_are_left_out() -> None:
    others = "<Contents><Key>root/other/job/epochs/1</Key></Contents><Contents><Key>/etc</Key></Contents><Key>x</Key>"
    with HostileServer(answers(200, page(others + KEY))) as server:
        assert reader(server.endpoint).list_names("ns/job/epochs/") == ["ns/job/epochs/1/manifest.json"]


def test_no_redirect_is_followed_and_what_stands_elsewhere_is_not_told() -> None:
    with HostileServer(answers(200, b"token of somebody")) as other:
        error = error_of(answers(307, Location=f"{other.endpoint}/latest/meta-data"), get)
        assert other.requests == []
    assert "307" in str(error)
    assert other.endpoint not in str(error)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"", ObjectMissingError),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", MissingBucketError),
        (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", BadCredentialsError),
        (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>", BadCredentialsError),
        (403, b"", AccessDeniedError),
        (400, b"", StoreRefusedError),
        (503, b"", StoreUnavailableError),
        (429, b"", StoreUnavailableError),
    ],
)
def test_of_an_error_its_kind_is_told_and_not_its_words(status: int, body: bytes, kind: type[StoreError]) -> None:
    """They may be those of a server that the tenant cannot ask and the operator can."""
    secret = b"\n\x1b[2Jpassword=hunter2" * 1000
    error = error_of(answers(status, body + secret), get)
    assert type(error) is kind
    assert "hunter2" not in str(error)


def test_a_server_of_another_kind_is_not_quoted() -> None:
    def ssh(connection: Any, _: bytes) -> None:
        connection.sendall(b"SSH-2.0-hunter2\r\n")

    error = error_of(ssh, get)
    assert isinstance(error, StoreUnreachableError)
    assert "hunter2" not in str(error)


def test_what_fails_for_a_moment_is_tried_again() -> None:
    def behave(connection: Any, head: bytes) -> None:
        answers(503 if len(server.requests) < 3 else 200, b"x")(connection, head)

    with HostileServer(behave) as server:
        assert reader(server.endpoint).get("a") == b"x"


def test_only_one_may_read_much_at_a_time() -> None:
    large = answers(200, b"x" * (s3_reader.SMALL + 1))
    with HostileServer(large) as server:
        assert get(reader(server.endpoint))
        with pytest.raises(LargeReadsBusyError):
            get(reader(server.endpoint, may_be_large=lambda: False))


# --- where it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254",
        "http://2852039166",
        "http://[::ffff:169.254.169.254]",
        "http://[fd00:ec2::254]",
        "http://[fe80::1]",
        "http://127.0.0.1:8080",
        "http://127.1",
        "http://localhost:8081",
        "http://[::1]",
        "http://0.0.0.0:8080",
        "http://0:8080",
    ],
)
def test_the_operators_own_machine_and_the_clouds_metadata_are_no_stores(endpoint: str) -> None:
    with pytest.raises(StoreConfigError, match="metadata"):
        find_endpoint(URI, endpoint, local=False)


@pytest.mark.parametrize(
    "endpoint",
    ["ftp://store", "http://", "http://user:password@store", "http://store:port", "http://store/?x", "http://[1"],
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(StoreConfigError) as caught:
        find_endpoint(URI, endpoint, local=False)
    assert "password" not in str(caught.value)


def test_an_administrators_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostileServer(answers(200, b"x")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.endpoint)
        monkeypatch.setenv("NO_PROXY", "")
        endpoint = find_endpoint(URI, "http://store.example:9000", local=False)
        monkeypatch.delenv("HTTP_PROXY")
        assert S3Reader(endpoint, uri=URI, bucket="b", prefix="", region="r", keys=KEYS, look=Look()).get("a") == b"x"
        assert proxy.requests[0].startswith(b"GET http://store.example:9000/b/a HTTP/1.1\r\n")


def test_a_request_is_signed_as_aws_documents_it() -> None:
    """The example "GET Bucket (List Objects)" of AWS' documentation of signatures, version 4."""
    keys = Keys(access_key_id="AKIAIOSFODNN7EXAMPLE", secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    headers = signed(
        "GET\n/\nmax-keys=2&prefix=J",
        "examplebucket.s3.amazonaws.com",
        keys,
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    assert headers["authorization"].endswith(f"Signature={expected}")


# --- whose it is ------------------------------------------------------------------------------------------------------


class Secrets:
    """An API server that has one kind of Secret."""

    def __init__(self, **data: str) -> None:
        self.data = data or {"AWS_ACCESS_KEY_ID": "S0VZ", "AWS_SECRET_ACCESS_KEY": "U0VDUkVU"}

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        return {"data": self.data}


def job(
    uri: str = URI, *, secret: str | None = "keys", namespace: str = "ns", name: str = "job", **config: str
) -> JobSpec:
    storage = StorageSpec(config=StorageConfig(uri=uri, **config), credentials_secret=secret)
    return JobSpec(namespace=namespace, name=name, pipeline=PipelineSpec(module="m"), storage=storage)


def stores(rules: StoreRules | None = None, **given: Any) -> Stores:
    return Stores(Secrets(), rules, **given)  # type: ignore[arg-type]


def test_nothing_of_the_operators_own_identity_goes_to_a_tenants_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "OPERATOR")
    with HostileServer(answers(200, page(KEY))) as server:
        spec = job(endpoint=server.endpoint)
        look = stores(StoreRules(local=True)).look(spec)
        assert look.reader.list_names("ns/job/epochs/")
        for rules in (StoreRules(), StoreRules(local=True), StoreRules(own_identity=(URI,), local=True)):
            with pytest.raises(StoreConfigError):
                _ = stores(rules).look(job(secret=None, endpoint=server.endpoint)).reader
    assert len(server.requests) == 1
    assert b"Credential=KEY/" in server.requests[0]
    assert b"OPERATOR" not in server.requests[0]


@pytest.mark.parametrize(
    ("spec", "rules", "problem"),
    [
        (job("file:///data"), StoreRules(), "is inside one pod"),
        (job("memory:///"), StoreRules(), "is inside one pod"),
        (job("file:///data"), StoreRules(local=True), None),
        (job(), StoreRules(), None),
        (job(secret=None), StoreRules(), "credentialsSecret, or ask"),
        (job(secret=None), StoreRules(own_identity=("s3://bucket/other", "s3://bucket")), "credentialsSecret, or ask"),
        (job(secret=None), StoreRules(own_identity=("s3://bucket/root/",)), None),
        (job(secret=None, endpoint="http://mine"), StoreRules(own_identity=(URI,)), "credentialsSecret, or ask"),
        (job("gs://bucket/x"), StoreRules(), "ask the administrator"),
        (job("gs://bucket/x", secret=None), StoreRules(own_identity=("gs://bucket/x",)), None),
    ],
)
def test_which_stores_a_job_may_have(spec: JobSpec, rules: StoreRules, problem: str | None) -> None:
    assert spec.storage is not None
    found = rules.problem(spec.storage)
    assert problem in found if problem and found else found == problem


@pytest.mark.parametrize("value", ["a\r\nX-Header: 1", "\x00", "ä"])
def test_keys_that_would_be_more_than_keys_are_refused(value: str) -> None:
    api = Secrets(AWS_ACCESS_KEY_ID=base64.b64encode(value.encode()).decode(), AWS_SECRET_ACCESS_KEY="U0VDUkVU")
    with pytest.raises(StoreConfigError) as caught:
        _ = Stores(api).look(job(endpoint="http://192.0.2.1")).reader  # type: ignore[arg-type]
    assert value not in str(caught.value)


# --- how many at a time -----------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_namespace_takes_no_more_than_its_share() -> None:
    all_stores = stores()
    looks = [all_stores.look(job(name=f"job-{number}")) for number in range(OF_NAMESPACE)]
    with pytest.raises(StoreBusyError):
        all_stores.look(job(name="one-more"))
    all_stores.look(job(namespace="other")).close()
    looks.pop().close()
    all_stores.look(job(name="one-more")).close()


def test_jobs_whose_stores_are_slow_take_nothing_from_the_others() -> None:
    clock = Clock()
    all_stores = stores(clock=clock)

    def slow(number: int) -> StoreLook:
        return all_stores.look(job(name=f"slow-{number}"))

    for number in range(OF_NAMESPACE):
        look = slow(number)
        clock.now += 2.0
        look.close()
        clock.now -= 2.0
    clock.now += 2.0
    with pytest.raises(StoreBusyError):
        slow(0)  # it rests
    clock.now += REST * 2.0
    for number in range(OF_NAMESPACE):
        slow(number)
    for number in range(OF_NAMESPACE):
        all_stores.look(job(name=f"quick-{number}"))
    clock.now += SLOW_FOR
    with pytest.raises(StoreBusyError):
        slow(0)  # counts as quick again, where all places are taken


def test_documents_that_are_large_in_memory_are_not_read_side_by_side() -> None:
    dense = json.dumps([[]] * (s3_reader.SMALL // 3)).encode()
    with HostileServer(answers(200, dense)) as server:
        all_stores = stores(StoreRules(local=True))
        first, second = (all_stores.look(job(name=name, endpoint=server.endpoint)) for name in ("a", "b"))
        assert first.reader.get("x")
        with pytest.raises(LargeReadsBusyError):
            second.reader.get("x")
        first.close()
        assert second.reader.get("x")
        second.close()
        assert not all_stores.large.locked()


# --- the real one -----------------------------------------------------------------------------------------------------


@pytest.mark.s3
def test_the_real_store_is_read_as_the_usual_client_reads_it(
    s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_reader, "LONGEST_REQUEST", 20.0)
    server, uri = s3_bucket.server, f"s3://{s3_bucket.name}/a/r=o+o@t"
    # As objects of this server are files, more than a page of them is made soonest so.
    for number in range(1005):
        directory = server.data_dir / s3_bucket.name / "a" / "r=o+o@t" / "ns/job/epochs" / f"{number:05d}"
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_bytes(b"{}")
    options = StoreOptions(
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
    )
    usual = open_store(uri, options)
    usual.create("ns/job/generations/1.json", b"written")

    def own(uri: str = uri, key: str = server.access_key, secret: str = server.secret_key) -> StoreReader:
        data = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        secrets = Secrets(**{name: base64.b64encode(value.encode()).decode() for name, value in data.items()})
        spec = job(uri, endpoint=server.endpoint, region=server.region)
        return Stores(secrets, StoreRules(local=True)).look(spec).reader  # type: ignore[arg-type]

    assert own().get("ns/job/generations/1.json") == b"written"
    for after in (None, "ns/job/epochs/00007", "ns/job/epochs/00007/manifest.json", "ns/job/epochs/2"):
        found = own().list_names("ns/job/epochs/", after=after)
        assert found == usual.list_names("ns/job/epochs/", after=after)
    assert len(own().list_names("ns/job/epochs/")) == 1005
    assert own().list_names("ns/job/none/") == []
    assert own().exists("ns/job/generations/1.json")
    assert not own().exists("ns/job/generations/2.json")
    with pytest.raises(ObjectMissingError):
        own().get("ns/job/generations/2.json")
    with pytest.raises(MissingBucketError):
        own("s3://no-such-bucket/a").list_names("x/")
    for key, secret in ((server.access_key, "wrong"), ("unknown", "wrong")):
        with pytest.raises(BadCredentialsError):
            own(key=key, secret=secret).list_names("x/")
