"""What has been tried on the protocol from outside, and what it answers: the table behind docs/bad-input.md.

    python -m tests.protocol.bad_input --write

writes the page anew (it needs the S3 server, for the part about credentials).
"""

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from obstore.store import S3Store

from epochal.protocol.barrier import decode_barrier
from epochal.protocol.documents import CommitRecord, Seal, encode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import ProtocolError
from epochal.protocol.paths import JobPaths, check_label
from epochal.protocol.resolve import read_epoch
from epochal.protocol.store import RetryPolicy, Store, StoreOptions, open_store
from tests.protocol.making import PATHS, manifest
from tests.support.s3 import S3Bucket, S3Server

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"
QUICK = RetryPolicy(tries=2, first_pause=0.001)


@dataclass(frozen=True)
class Case:
    """``what`` was tried; ``attempt`` does it, and must end with a ProtocolError."""

    what: str
    attempt: Callable[[], object]

    def answer(self) -> tuple[str, str]:
        """The error's class and its message, without what differs from run to run."""
        try:
            outcome = self.attempt()
        except ProtocolError as error:
            return type(error).__name__, _settled(str(error))
        raise AssertionError(f"{self.what}: taken for good: {outcome!r}")


def _settled(message: str) -> str:
    message = re.sub(r"127\.0\.0\.1:\d{2,}", "127.0.0.1:PORT", message)
    message = re.sub(r"file:///\S*/epochal-bad-input-[^/\s:]+", "file:///DIRECTORY", message)
    return message if len(message) <= 330 else f"{message[:160]} … {message[-160:]}"


# --- manifests

NAME = PATHS.manifest(Epoch(3))
GOOD = manifest(3)
DATA = encode(GOOD)


def _sealed(body: str, *, kind: str = "Manifest", version: str = "1") -> bytes:
    """Any body with a right checksum: what a faulty writer could leave."""
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"kind":"{kind}","version":{version},"sha256":"{digest}","body":{body}}}\n'.encode()


BODY = DATA[DATA.index(b'"body":') + 7 : -2].decode()


def _edited(old: str, new: str) -> bytes:
    assert old in BODY, old
    return _sealed(BODY.replace(old, new, 1))


def _flipped(inside: bytes, bit: int) -> bytes:
    damaged = bytearray(DATA)
    damaged[DATA.index(inside)] ^= 1 << bit
    return bytes(damaged)


def _stored(data: bytes) -> Callable[[], object]:
    def attempt() -> object:
        store = open_store("memory:///")
        store.create(NAME, data)
        return read_epoch(store, PATHS, Epoch(3))

    return attempt


MANIFESTS: dict[str, bytes] = {
    "empty object": b"",
    "only white space": b" \n",
    "only zero bytes (a disk after power loss)": b"\0" * 400,
    "cut off after 1 byte": DATA[:1],
    "cut off in the header": DATA[:25],
    "cut off in the checksum": DATA[:80],
    "cut off in the body": DATA[: len(DATA) // 2],
    "cut off before the last brace": DATA[:-2],
    "bytes after the end": DATA + b"x",
    "two documents in one object": DATA + DATA,
    "byte order mark in front": b"\xef\xbb\xbf" + DATA,
    "UTF-16": DATA.decode().encode("utf-16"),
    "a Parquet file": b"PAR1" + b"\x15\x04" * 50 + b"PAR1",
    "an HTML error page": b"<!DOCTYPE html><title>502</title>",
    "a JSON list": b"[]\n",
    "JSON null": b"null\n",
    "bit flipped in a brace": _flipped(b"{", 0),
    "bit flipped in a quote": _flipped(b'"kind"', 1),
    "bit flipped in the kind": _flipped(b"Manifest", 0),
    "bit flipped in the version": _flipped(b'1,"release"', 1),
    "bit flipped in the checksum's name": _flipped(b"sha256", 0),
    "bit flipped in the checksum": _flipped(json.loads(DATA)["sha256"].encode(), 0),
    "bit flipped in a number of the body": _flipped(b'3,"generation"', 0),
    "bit flipped in a name of the body": _flipped(b"orders", 0),
    "high bit flipped (no UTF-8)": _flipped(b"Manifest", 7),
    "a number edited by hand": DATA.replace(b'"epoch":3', b'"epoch":4'),
    "version 3": _sealed(BODY, version="3"),
    "version 2 without needs": _sealed(BODY, version="2"),
    "version 0": _sealed(BODY, version="0"),
    'version "1"': _sealed(BODY, version='"1"'),
    "version 1.0": _sealed(BODY, version="1.0"),
    "no version": DATA.replace(b'"version":1,', b""),
    "unknown kind": _sealed(BODY, kind="Manifesto"),
    "a commit record under a manifest's name": encode(CommitRecord(epoch=Epoch(3), generation=Generation(1))),
    "the manifest of another epoch": encode(manifest(4)),
    "a seal of another epoch": encode(Seal(epoch=Epoch(5), generation=Generation(1), claim="c")),
    "field missing": _edited('"epoch":3,', ""),
    "needs of no release": encode(manifest(3), needs=("sketches",)),
    "key twice, in the body": _edited('"epoch":3', '"epoch":4,"epoch":3'),
    "key twice, in the envelope": DATA.replace(b'"kind":"Manifest"', b'"kind":"Seal","kind":"Manifest"'),
    "text for a number": _edited('"epoch":3', '"epoch":"3"'),
    "fraction for a number": _edited('"epoch":3', '"epoch":3.0'),
    "true for a number": _edited('"epoch":3', '"epoch":true'),
    "null for a number": _edited('"epoch":3', '"epoch":null'),
    "NaN": _edited('"epoch":3', '"epoch":NaN'),
    "negative epoch": _edited('"epoch":3', '"epoch":-3'),
    "epoch 0": _edited('"epoch":3', '"epoch":0'),
    "epoch of eleven digits": _edited('"epoch":3', '"epoch":30000000000'),
    "number of 400 digits": _edited('"epoch":3', f'"epoch":{"9" * 400}'),
    "negative row count": _edited('"rows":1', '"rows":-1'),
    "empty claim": _edited('"claim":"driver-a"', '"claim":""'),
    "parent newer than the epoch": _edited('"parent":2', '"parent":9'),
    "min_epoch newer than the epoch": _edited('"min_epoch":1', '"min_epoch":4'),
    "unknown kind of table": _edited('"KeyedTime"', '"Keyed"'),
    "state object outside the store": _edited('"object":"team/orders/state', '"object":"../../orders/state'),
    "state object of another job": _edited('"object":"team/orders/', '"object":"team/other/'),
    "state object that is a manifest": _edited(
        json.loads(BODY)["operators"]["sums"]["tables"]["totals"]["runs"][0]["parts"][0]["object"], NAME
    ),
    "operator named ../x": _edited('"operators":{"sums"', '"operators":{"../x"'),
    "nested 100,000 deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "nested 100,000 deep, cut off": b'{"x":' + b"[" * 100_000,
    "10 MB of text in one field": _edited('"epoch":3', f'"epoch":"{"x" * 10_000_000}"'),
}

# --- names

NAMES: dict[str, str] = {
    "nothing": "",
    "one dot": ".",
    "two dots": "..",
    "a way out": "../x",
    "a separator": "a/b",
    "an absolute path": "/etc/passwd",
    "a backslash": "a\\b",
    "escaped dots": "%2e%2e",
    "escaped separator": "a%2fb",
    "a zero byte": "a\0b",
    "a line end at the end": "orders\n",
    "a space": "my orders",
    "an invisible space": "orders\u200b",
    "a Cyrillic letter": "\u043erders",
    "a full-width letter": "\uff4frders",
    "an accent": "caf\u00e9",
    "foreign digits": "\u0661\u0662",
    "upper case": "Orders",
    "a dash in front": "-orders",
    "a dash at the end": "orders-",
    "a dot": "a.b",
    "what a disk calls half-written": "a#1",
    "64 characters": "a" * 64,
    "300 characters": "a" * 300,
    "a shell variable": "$HOME",
}

OBJECT_NAMES: dict[str, str] = {
    "another job's object": "team/orders-2/epochs/0000000003/manifest.json",
    "a way out": "team/orders/../orders/epochs/0000000003/manifest.json",
    "a number without its zeros": "team/orders/epochs/3/manifest.json",
    "foreign digits": "team/orders/epochs/\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0663/manifest.json",
    "epoch 0": "team/orders/epochs/0000000000/manifest.json",
    "a line end at the end": "team/orders/epochs/0000000003/manifest.json\n",
    "a savepoint in upper case": "team/orders/savepoints/A.json",
    "somebody's notes": "team/orders/notes.txt",
}

# --- barriers

BARRIERS: dict[str, bytes] = {
    "empty": b"",
    "no epoch": b'{"min_epoch":1,"timestamp":0,"then_stop":false}',
    "min_epoch newer than the epoch": b'{"epoch":1,"min_epoch":2,"timestamp":0,"then_stop":false}',
    "1 for true": b'{"epoch":1,"min_epoch":1,"timestamp":0,"then_stop":1}',
}

# --- URIs and options

KEYS = StoreOptions(endpoint="http://127.0.0.1:1", access_key_id="key", secret_access_key="secret")

URIS: dict[str, tuple[str, StoreOptions]] = {
    "nothing": ("", KEYS),
    "a path": ("/var/lib/epochal", KEYS),
    "a scheme that Spark knows": ("s3a://bucket/jobs", KEYS),
    "a web address": ("https://bucket.example.org/jobs", KEYS),
    "no bucket": ("s3:///jobs", KEYS),
    "no bucket, no slashes": ("s3:bucket", KEYS),
    "bucket in upper case": ("s3://Bucket/jobs", KEYS),
    "bucket of two letters": ("s3://ab/jobs", KEYS),
    "bucket with a port": ("s3://bucket:9000/jobs", KEYS),
    "password in the URI": ("s3://key:secret@bucket/jobs", KEYS),
    "options in the URI": ("s3://bucket/jobs?region=eu-west-1", KEYS),
    "a fragment": ("s3://bucket/jobs#x", KEYS),
    "two dots": ("s3://bucket/a/../b", KEYS),
    "escaped dots": ("s3://bucket/%2e%2e/b", KEYS),
    "empty segment": ("s3://bucket//jobs", KEYS),
    "a space": ("s3://bucket/my root", KEYS),
    "a file URI with two slashes": ("file://var/lib", KEYS),
    "a file URI on another host": ("file://host/var/lib", KEYS),
    "broken brackets": ("s3://[bucket/jobs", KEYS),
    "key without secret": ("s3://bucket", StoreOptions(access_key_id="key")),
    "secret without key": ("s3://bucket", StoreOptions(secret_access_key="secret")),
    "endpoint without scheme": ("s3://bucket", StoreOptions(endpoint="127.0.0.1:9000")),
    "S3 options for another store": ("gs://bucket", StoreOptions(region="eu-west-1")),
}

# --- credentials and endpoints


def credentials(bucket: S3Bucket) -> Iterator[Case]:
    """On the real server. Each is asked once for a listing and once to create an object."""
    server = bucket.server
    good = {
        "endpoint": server.endpoint,
        "region": server.region,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
    }
    anonymous = S3Store(
        bucket.name,
        endpoint=server.endpoint,
        region=server.region,
        skip_signature=True,
        client_options={"allow_http": True},
    )
    uri = "s3://bucket/jobs"
    opened: dict[str, Callable[[], Store]] = {
        "a key that the server does not know": lambda: _s3(bucket, good | {"access_key_id": "nobody"}),
        "a secret that does not fit": lambda: _s3(bucket, good | {"secret_access_key": "wrong"}),
        "an empty secret": lambda: _s3(bucket, good | {"secret_access_key": ""}),
        "a session token that is none": lambda: _s3(bucket, good | {"session_token": "x"}),
        "no credentials at all": lambda: Store(anonymous, uri=uri, retry=QUICK),
        "another region": lambda: _s3(bucket, good | {"region": "eu-west-1"}),
        "a bucket that is not there": lambda: open_store("s3://no-such-bucket", StoreOptions(**good), retry=QUICK),
        "nobody at the endpoint": lambda: _s3(bucket, good | {"endpoint": "http://127.0.0.1:1"}),
        "a host that does not exist": lambda: _s3(bucket, good | {"endpoint": "http://store.invalid:9000"}),
        "https where http is spoken": lambda: _s3(
            bucket, good | {"endpoint": server.endpoint.replace("http:", "https:")}
        ),
    }
    for what, opener in opened.items():
        yield Case(f"{what}: list", lambda opener=opener: opener().check())  # type: ignore[misc]
        yield Case(f"{what}: create", lambda opener=opener: opener().create("a", b""))  # type: ignore[misc]


def _s3(bucket: S3Bucket, options: dict[str, str]) -> Store:
    """Under a URI that is the same each time: the bucket's own name is not."""
    store = open_store(f"s3://{bucket.name}/jobs", StoreOptions(**options), retry=QUICK)
    return Store(store._backend, uri="s3://bucket/jobs", retry=QUICK)


def directories(directory: Path) -> Iterator[Case]:
    yield Case("a directory that is not there", lambda: open_store(f"file://{directory}/missing", create=False))

    def removed() -> None:
        store = open_store(f"file://{directory}/removed")
        (directory / "removed").rmdir()
        store.check()

    yield Case("a directory that was removed", removed)

    def file() -> None:
        (directory / "file").touch()
        open_store(f"file://{directory}/file")

    yield Case("a file where a directory is needed", file)


# --- all of it


def sections() -> Iterator[tuple[str, str, list[Case]]]:
    """Title, a sentence, and the cases that need no server."""
    yield (
        "Manifests",
        "Each is read under the name of epoch 3. Restoring skips such an epoch, says so, and tries an older one.",
        [Case(what, _stored(data)) for what, data in MANIFESTS.items()],
    )
    yield (
        "Names of operators, tables and savepoints",
        "Names are refused, never escaped. Namespaces and jobs follow the same rule without the underscore.",
        [
            Case(f"{what}: `{ascii(name) if len(name) < 70 else '…'}`", lambda name=name: check_label("table", name))  # type: ignore[misc]
            for what, name in NAMES.items()
        ],
    )
    yield (
        "Names of jobs",
        "",
        [
            Case("an underscore", lambda: JobPaths("team", "my_job")),
            Case("a way out, as namespace", lambda: JobPaths("..", "orders")),
        ],
    )
    yield (
        "Object names found in the store",
        "Such objects are passed over when reading; cleanup leaves them and reports them.",
        [
            Case(f"{what}: `{name!a}`", lambda name=name: PATHS.parse(name))  # type: ignore[misc]
            for what, name in OBJECT_NAMES.items()
        ],
    )
    yield (
        "Barriers",
        "",
        [Case(what, lambda data=data: decode_barrier(data)) for what, data in BARRIERS.items()],  # type: ignore[misc]
    )
    yield (
        "Store URIs and options",
        "Found before any request is made.",
        [
            Case(f"{what}: `{uri}`", lambda uri=uri, options=options: open_store(uri, options))  # type: ignore[misc]
            for what, (uri, options) in URIS.items()
        ],
    )


def all_sections(bucket: S3Bucket, directory: Path) -> Iterator[tuple[str, str, list[Case]]]:
    yield from sections()
    yield "Directories", "", list(directories(directory))
    yield (
        "Credentials and endpoints",
        "Tried on a real S3 server. The first five show that neither key nor secret is repeated in a message.",
        list(credentials(bucket)),
    )


def page(parts: Iterable[tuple[str, str, list[Case]]]) -> str:
    lines = [
        "# Bad input",
        "",
        "What has been tried on the protocol from outside, and the exact answer.",
        "",
        "Written by `python -m tests.protocol.bad_input --write`; `tests/protocol/test_bad_input.py` keeps it true.",
    ]
    for title, sentence, cases in parts:
        lines += ["", f"## {title}", ""]
        if sentence:
            lines += [sentence, ""]
        lines += ["| tried | error | message |", "|---|---|---|"]
        lines += [row(case) for case in cases]
    return "\n".join(lines) + "\n"


def row(case: Case) -> str:
    error, message = case.answer()
    return f"| {_cell(case.what)} | `{error}` | {_cell(message)} |"


def _cell(text: str) -> str:
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return shown.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def main() -> None:
    with S3Server() as server, tempfile.TemporaryDirectory(prefix="epochal-bad-input-") as directory:
        written = page(all_sections(server.make_bucket("bad-input"), Path(directory)))
    if "--write" in sys.argv:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(written)
    else:
        print(written)


if __name__ == "__main__":
    main()
