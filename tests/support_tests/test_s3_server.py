"""The S3 server of the tests behaves as S3 where the protocol relies on it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError

from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Bucket, S3Server

pytestmark = pytest.mark.s3


def test_put_get_list(s3_bucket: S3Bucket) -> None:
    store = s3_bucket.store(prefix="a/b")
    obstore.put(store, "c/one", b"1")
    obstore.put(store, "c/two", b"2")
    assert bytes(obstore.get(store, "c/one").bytes()) == b"1"
    assert [meta["path"] for meta in obstore.list(store).collect()] == ["c/one", "c/two"]
    assert [meta["path"] for meta in obstore.list(s3_bucket.store()).collect()] == ["a/b/c/one", "a/b/c/two"]


def test_create_if_absent_refuses_the_second(s3_bucket: S3Bucket) -> None:
    store = s3_bucket.store()
    obstore.put(store, "key", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "key", b"second", mode="create")
    assert bytes(obstore.get(store, "key").bytes()) == b"first"


def test_create_if_absent_has_one_winner_among_racing_writers(s3_bucket: S3Bucket) -> None:
    store = s3_bucket.store()

    def create(value: int) -> int | None:
        try:
            obstore.put(store, "key", str(value).encode(), mode="create")
        except AlreadyExistsError:
            return None
        return value

    for _ in range(10):
        with ThreadPoolExecutor(8) as pool:
            winners = [value for value in pool.map(create, range(8)) if value is not None]
        assert len(winners) == 1
        assert bytes(obstore.get(store, "key").bytes()) == str(winners[0]).encode()
        obstore.delete(store, "key")


def test_wrong_secret_is_refused(s3_bucket: S3Bucket) -> None:
    store = s3_bucket.store(secret_key="not-the-secret")
    with pytest.raises(PermissionDeniedError):
        obstore.put(store, "key", b"")
    with pytest.raises(PermissionDeniedError):
        obstore.get(store, "key")


def test_missing_bucket_looks_like_a_missing_object_except_when_listing(s3_server: S3Server) -> None:
    """Whoever takes "not found" for "nothing there yet" must list first."""
    store = S3Bucket(s3_server, "no-such-bucket").store()
    with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
        obstore.get(store, "key")
    with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
        obstore.put(store, "key", b"", mode="create")
    with pytest.raises(GenericError, match="NoSuchBucket"):
        obstore.list(store).collect()


def test_stopped_and_started_again_it_has_its_port_and_objects() -> None:
    with S3Server() as server:
        bucket = server.make_bucket("bucket")
        store = bucket.store(max_retries=0)
        obstore.put(store, "key", b"value")
        server.stop()
        with pytest.raises(GenericError, match="error sending request"):
            obstore.get(store, "key")
        server.start()
        assert bytes(obstore.get(store, "key").bytes()) == b"value"


def test_server_ends_with_the_process_that_started_it() -> None:
    program = (
        "import time; from tests.support.s3 import S3Server; server = S3Server(); server.start(); "
        "print(server.pid, server._home, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, home = parent.stdout.readline().split()
        assert _runs(int(pid))
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while _runs(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(int(pid))
    subprocess.run(["rm", "-rf", home], check=True)


def test_proxy_counts_requests_by_method(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        store = s3_bucket.store(endpoint=proxy.endpoint)
        for number in range(3):
            obstore.put(store, f"key/{number}", os.urandom(200_000))
        obstore.list(store).collect()
        assert proxy.counts == {"PUT": 3, "GET": 1}


def test_proxy_delays_both_directions(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint, delay=0.1) as proxy:
        started = time.monotonic()
        obstore.put(s3_bucket.store(endpoint=proxy.endpoint), "key", b"value")
        assert 0.2 <= time.monotonic() - started < 1.0


def test_proxy_refuses_and_accepts_again(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        store = s3_bucket.store(endpoint=proxy.endpoint, max_retries=0)
        obstore.put(store, "key", b"value")
        proxy.refuse()
        with pytest.raises(GenericError):
            obstore.get(store, "key")
        proxy.accept()
        assert bytes(obstore.get(store, "key").bytes()) == b"value"


def test_a_lost_answer_leaves_the_object_written(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    with CountingProxy(s3_server.endpoint) as proxy:
        store = s3_bucket.store(endpoint=proxy.endpoint, max_retries=0)
        proxy.lose_answers(1)
        with pytest.raises(GenericError):
            obstore.put(store, "key", b"value", mode="create")
        assert bytes(obstore.get(store, "key").bytes()) == b"value"


def test_a_create_that_the_client_retries_may_find_its_own_object(s3_server: S3Server, s3_bucket: S3Bucket) -> None:
    """The answer "already exists" does not mean that somebody else was first: compare what is there."""
    with CountingProxy(s3_server.endpoint) as proxy:
        store = s3_bucket.store(endpoint=proxy.endpoint, max_retries=2)
        proxy.lose_answers(1)
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "key", b"mine", mode="create")
        assert proxy.counts == {"PUT": 2}
        assert bytes(obstore.get(store, "key").bytes()) == b"mine"


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
