"""The store: the same meaning in memory, on disk and on S3; bounded tries; every failure told apart."""

import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import obstore
import pytest
import tenacity
from obstore.store import S3Store

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
from epochal.protocol.store import (
    PAGE,
    Created,
    Exists,
    ObjectInfo,
    RetryPolicy,
    Store,
    StoreOptions,
    open_store,
)
from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Bucket, S3Server

QUICK = RetryPolicy(tries=3, first_pause=0.001, longest_pause=0.002)
NOBODY = "http://127.0.0.1:1"


def s3_store(bucket: S3Bucket, *, name: str | None = None, retry: RetryPolicy = QUICK, **options: str) -> Store:
    server = bucket.server
    given = {
        "endpoint": server.endpoint,
        "region": server.region,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
    }
    return open_store(f"s3://{name or bucket.name}/some/root", StoreOptions(**given | options), retry=retry)


@pytest.fixture(params=["memory", "disk", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return open_store("memory:///")
        case "disk":
            return open_store((tmp_path / "root").as_uri())
        case _:
            return s3_store(request.getfixturevalue("s3_bucket"))


# --- one meaning on every store


def test_what_was_created_is_there(store: Store) -> None:
    assert store.create("a/b", b"data") == Created()
    assert store.get("a/b") == b"data"


def test_what_was_copied_is_there_twice(store: Store) -> None:
    store.create("some/name", b"content")
    assert not store.exists("another/name")
    for _ in range(2):
        store.copy("some/name", "another/name")
        assert store.exists("another/name")
        assert store.get("some/name") == store.get("another/name") == b"content"


def test_what_is_not_there_cannot_be_copied(store: Store) -> None:
    with pytest.raises(ObjectMissingError, match="some/name"):
        store.copy("some/name", "another/name")
    assert not store.exists("another/name")


def test_an_object_may_be_empty(store: Store) -> None:
    assert store.create("a/b", b"") == Created()
    assert store.get("a/b") == b""


def test_a_missing_object_is_named(store: Store) -> None:
    with pytest.raises(ObjectMissingError, match="has no object a/b"):
        store.get("a/b")


def test_the_second_create_gets_the_first_ones_data(store: Store) -> None:
    store.create("a/b", b"first")
    assert store.create("a/b", b"second") == Exists(b"first")
    assert store.get("a/b") == b"first"


def test_creating_the_same_again_is_a_success(store: Store) -> None:
    store.create("a/b", b"mine")
    assert store.create("a/b", b"mine") == Created()


def test_a_deleted_name_is_free_again(store: Store) -> None:
    store.create("a/b", b"first")
    store.delete(["a/b"])
    assert store.create("a/b", b"second") == Created()


def test_a_listing_is_sorted_and_holds_sizes(store: Store) -> None:
    for name in ("a/2", "a/10", "a/1", "b/1"):
        store.create(name, name.encode())
    assert store.list_objects("a/") == [ObjectInfo("a/1", 3), ObjectInfo("a/10", 4), ObjectInfo("a/2", 3)]


def test_a_listing_starts_strictly_after_the_name_that_it_is_given(store: Store) -> None:
    for number in range(5):
        store.create(f"a/{number}", b"")
    assert store.list_names("a/", after="a/2") == ["a/3", "a/4"]


def test_a_listing_may_start_at_a_name_that_does_not_exist(store: Store) -> None:
    for number in range(5):
        store.create(f"a/{number}/m", b"")
    assert store.list_names("a/", after="a/2") == ["a/2/m", "a/3/m", "a/4/m"]


def test_a_prefix_ends_with_a_whole_name(store: Store) -> None:
    store.create("a/b/1", b"")
    store.create("a/bc/1", b"")
    assert store.list_names("a/b/") == ["a/b/1"]


def test_nothing_below_a_prefix_is_an_empty_listing(store: Store) -> None:
    assert store.list_names("none/") == []
    store.check()


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    store.create("a/1", b"")
    store.create("a/3", b"")
    store.delete(["a/0", "a/1", "a/2", "a/3"])
    assert store.list_names("a/") == []
    store.delete([])
    store.delete(["a/1"])


def test_more_than_one_page_is_listed_and_deleted_whole(store: Store) -> None:
    names = [f"a/{number:05d}" for number in range(PAGE + 5)]
    for name in names:
        store.create(name, b"")
    store.requests.clear()
    assert store.list_names("a/") == names
    store.delete(names)
    assert store.list_names("a/") == []
    assert store.requests["delete"] == 2


def test_what_is_half_written_on_a_disk_is_not_there(tmp_path: Path) -> None:
    """A crash while writing leaves the part under a name that no object has."""
    store = open_store(tmp_path.as_uri())
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b#1").write_bytes(b"ha")
    assert store.list_names("") == []
    assert store.create("a/b", b"whole") == Created()
    assert store.get("a/b") == b"whole"


def test_a_create_never_asks_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that says "exists" and "not there" of one name at once."""
    store = open_store("memory:///", retry=QUICK)
    store.create("a", b"other")

    def missing(name: str) -> bytes:
        raise ObjectMissingError(store.uri, name)

    monkeypatch.setattr(store, "get", missing)
    with pytest.raises(StoreUnavailableError, match="neither created nor read"):
        store.create("a", b"mine")


@pytest.mark.parametrize("name", ["../x", "a/../b", "a//b", "."])
def test_a_name_that_leads_elsewhere_is_refused_at_once(tmp_path: Path, name: str) -> None:
    store = open_store((tmp_path / "root").as_uri(), retry=QUICK)
    with pytest.raises(StoreRefusedError, match="not an object name"):
        store.create(name, b"")
    assert store.requests == {"create": 1}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# --- tries are bounded


def unreachable(retry: RetryPolicy, sleep: Callable[[float], None]) -> Store:
    options = StoreOptions(endpoint=NOBODY, region="r", access_key_id="k", secret_access_key="s")
    store = open_store("s3://bucket", options, retry=retry)
    return Store(store._backend, uri=store.uri, retry=retry, sleep=sleep)


def test_a_store_that_does_not_answer_is_asked_a_given_number_of_times() -> None:
    pauses: list[float] = []
    store = unreachable(RetryPolicy(tries=5, first_pause=1, longest_pause=4, deadline=1000), pauses.append)
    with pytest.raises(StoreUnreachableError):
        store.get("a")
    assert store.requests == {"get": 5}
    assert len(pauses) == 4
    assert all(0 <= pause <= longest for pause, longest in zip(pauses, [1, 2, 4, 4], strict=True))


def test_no_pause_goes_past_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(pause: float) -> None:
        nonlocal now
        now += pause

    monkeypatch.setattr(tenacity, "time", types.SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    store = unreachable(RetryPolicy(tries=10_000, first_pause=1, longest_pause=5, deadline=30), sleep)
    with pytest.raises(StoreUnreachableError):
        store.list_names("a/")
    assert 20 <= now < 30


def test_what_stays_wrong_is_asked_once() -> None:
    store = open_store("memory:///")
    with pytest.raises(ObjectMissingError):
        store.get("a")
    assert store.requests == {"get": 1}


@pytest.mark.s3
def test_a_create_whose_answer_was_lost_is_still_ours(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        store = s3_store(s3_bucket, endpoint=proxy.endpoint)
        proxy.lose_answers(1)
        assert store.create("a/b", b"mine") == Created()
        assert proxy.counts == {"PUT": 2, "GET": 1}
        assert store.requests == {"create": 2, "get": 1}
        assert store.list_names("a/") == ["a/b"]
        assert s3_store(s3_bucket).create("a/b", b"other") == Exists(b"mine")


@pytest.mark.s3
def test_a_get_whose_answer_was_lost_is_asked_again(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        store = s3_store(s3_bucket, endpoint=proxy.endpoint)
        store.create("a", b"x" * 3_000_000)
        proxy.lose_answers(1)
        assert len(store.get("a")) == 3_000_000
        proxy.lose_answers(1)
        assert store.list_names("") == ["a"]


@pytest.mark.s3
def test_a_write_that_is_cut_off_leaves_nothing(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint, delay=0.2) as proxy:
        store = s3_store(s3_bucket, endpoint=proxy.endpoint, retry=RetryPolicy(tries=1))
        errors: list[StoreError] = []

        def create() -> None:
            try:
                store.create("a", b"x" * 20_000_000)
            except StoreError as error:
                errors.append(error)

        writer = Thread(target=create)
        writer.start()
        while not proxy.requests:
            writer.join(0.01)
        proxy.cut()
        writer.join()
        assert len(errors) == 1
    direct = s3_store(s3_bucket)
    assert direct.list_names("") == []
    assert direct.create("a", b"whole") == Created()


@pytest.mark.s3
def test_s3_may_be_away_for_a_while(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        opened = s3_store(s3_bucket, endpoint=proxy.endpoint)
        pauses: list[float] = []

        def sleep(pause: float) -> None:
            pauses.append(pause)
            if len(pauses) % 4 == 0:
                proxy.accept()

        store = Store(opened._backend, uri=opened.uri, sleep=sleep)
        uses: list[Callable[[], object]] = [
            lambda: store.create("a", b"1"),
            lambda: store.get("a"),
            lambda: store.list_names(""),
            lambda: store.delete(["a"]),
        ]
        for number, use in enumerate(uses, start=1):
            proxy.refuse()
            use()
            assert len(pauses) == 4 * number


# --- failures are told apart

USES: dict[str, Callable[[Store], object]] = {
    "check": lambda store: store.check(),
    "list": lambda store: store.list_names("a/"),
    "get": lambda store: store.get("a/b"),
    "create": lambda store: store.create("a/b", b""),
    "delete": lambda store: store.delete(["a/b"]),
}
each_use = pytest.mark.parametrize("use", USES.values(), ids=USES.keys())


@each_use
def test_nothing_at_the_endpoint(use: Callable[[Store], object]) -> None:
    with pytest.raises(StoreUnreachableError, match="does not answer: check the endpoint and the network"):
        use(unreachable(QUICK, lambda _: None))


@each_use
@pytest.mark.s3
def test_no_bucket(s3_bucket: S3Bucket, use: Callable[[Store], object]) -> None:
    with pytest.raises(MissingBucketError, match="no such bucket: create it, or correct the URI"):
        use(s3_store(s3_bucket, name="no-such-bucket"))


@each_use
@pytest.mark.s3
def test_a_wrong_key(s3_bucket: S3Bucket, use: Callable[[Store], object]) -> None:
    with pytest.raises(BadCredentialsError, match="check access key and secret"):
        use(s3_store(s3_bucket, access_key_id="nobody"))


@each_use
@pytest.mark.s3
def test_a_wrong_secret(s3_bucket: S3Bucket, use: Callable[[Store], object]) -> None:
    with pytest.raises(BadCredentialsError, match=r"check access key and secret \(SignatureDoesNotMatch: ") as caught:
        use(s3_store(s3_bucket, secret_access_key="not-the-secret"))
    assert "not-the-secret" not in str(caught.value)
    assert s3_bucket.server.access_key not in str(caught.value)


@each_use
@pytest.mark.s3
def test_not_allowed(s3_bucket: S3Bucket, use: Callable[[Store], object]) -> None:
    backend = S3Store(
        s3_bucket.name,
        endpoint=s3_bucket.server.endpoint,
        region=s3_bucket.server.region,
        skip_signature=True,
        client_options={"allow_http": True},
    )
    with pytest.raises(AccessDeniedError, match="check the permissions"):
        use(Store(backend, uri=f"s3://{s3_bucket.name}", retry=QUICK))


@each_use
@pytest.mark.s3
def test_a_wrong_region(s3_bucket: S3Bucket, use: Callable[[Store], object]) -> None:
    store = s3_store(s3_bucket, region="eu-west-1")
    with pytest.raises(StoreRefusedError, match=r'check region.*expecting "us-east-1"'):
        use(store)
    assert store.requests.total() == 1


def test_a_full_disk(tmp_path: Path) -> None:
    program = (
        "from epochal.protocol.store import open_store; from epochal.protocol.errors import StoreError\n"
        f"store = open_store('file://{tmp_path}/root')\n"
        "try: store.create('a', b'x' * 1_000_000)\n"
        "except StoreError as error: print(type(error).__name__, error)\n"
        "print(store.list_names(''), dict(store.requests))\n"
    )
    unshare = shutil.which("unshare")
    mount = f'mount -t tmpfs -o size=64k none {tmp_path} 2>/dev/null || exit 77; exec "$0" -c "$1"'
    if unshare is None:
        pytest.skip("no unshare, so no small disk to fill")
    done = subprocess.run(
        [unshare, "-rm", "sh", "-c", mount, sys.executable, program], capture_output=True, text=True, check=False
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("not allowed to mount a small disk to fill")
    first, second = done.stdout.splitlines()
    assert first == (
        f"StoreFullError file://{tmp_path}/root: is full, cannot create a: make room, or let cleanup keep fewer epochs"
    ), done.stderr
    assert second == "[] {'create': 1, 'list': 1}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri(), retry=QUICK)
    tmp_path.chmod(0o500)
    with pytest.raises(AccessDeniedError, match="check the permissions"):
        store.create("a/b", b"")


def test_a_directory_that_went_away(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = open_store(root.as_uri())
    store.check()
    root.rmdir()
    with pytest.raises(MissingBucketError, match="no such directory"):
        store.check()
    with pytest.raises(MissingBucketError, match="no such directory"):
        open_store(root.as_uri(), create=False)


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreConfigError, match="a directory is needed"):
        open_store((tmp_path / "file").as_uri())


def test_requests_are_counted_over_threads() -> None:
    store = open_store("memory:///")
    obstore.put(store._backend, "a", b"")
    threads = [Thread(target=lambda: [store.get("a") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.requests == {"get": 800}
