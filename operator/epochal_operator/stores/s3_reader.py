"""Reading a tenant's S3 store, and nothing else: no server that they name can harm the operator by what it answers.

The store's usual client is made for servers that one trusts. It follows redirects, takes credentials and roles from its
surroundings, and sets aside as much memory as an answer says to need: one header ends the process. Here a request goes
to the host that the job names, with the job's keys; time and bytes are bounded over all that one look at the store asks
for; and of an error only its status and a code that we know are told.
"""

import functools
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import quote, urlencode
from xml.parsers import expat

from epochal.control.exchange import Answer, NoAnswerError, TooLargeError, exchange
from epochal.protocol.errors import (
    AccessDeniedError,
    BadCredentialsError,
    MissingBucketError,
    ObjectMissingError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    StoreUnreachableError,
)
from epochal.protocol.faults import fault_of, worth_waiting
from epochal.protocol.store import PAGE, StoreReader
from epochal_operator.stores.endpoint import Endpoint

SMALL = 2 * 1024 * 1024
"""What a look at a store may read without asking: hundreds may look at the same time."""
LARGEST = 24 * 1024 * 1024
"""What it may read in all. JSON of that size is some hundreds of megabytes in memory."""
LARGEST_PAGE = 2 * 1024 * 1024
LONGEST_REQUEST = 5.0
LONGEST_LOOK = 60.0
"""Long enough to read thousands of small records; one answer that does not come ends it sooner."""
TRIES = 4
FIRST_PAUSE = 0.1

_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,64})</Code>")
_OVERLOADED = (408, 409, 425, 429)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


class Look:
    """What one look at a store may still cost. ``may_be_large`` is asked once, before more than a little is read."""

    def __init__(
        self, *, may_be_large: Callable[[], bool] = lambda: True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._may_be_large = clock, may_be_large
        self._until = clock() + LONGEST_LOOK
        self._bytes, self._allowed = 0, SMALL

    def seconds(self) -> float:
        return min(LONGEST_REQUEST, self._until - self._clock())

    def room(self) -> int:
        """Bytes that the next answer may have, at most."""
        return max(0, LARGEST - self._bytes)

    def expect(self, length: int | None) -> None:
        """An answer that is ``length`` long is about to be read; None: it does not say."""
        if self._bytes + (LARGEST_PAGE if length is None else length) > self._allowed:
            if not self._may_be_large():
                raise LargeReadsBusyError
            self._allowed = LARGEST

    def add(self, length: int) -> None:
        self._bytes += length


class LargeReadsBusyError(Exception):
    """Others read much from their stores just now: look again later."""


class S3Reader(StoreReader):
    """One bucket, for one look at it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        uri: str,
        bucket: str,
        prefix: str,
        region: str,
        keys: Keys,
        look: Look,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.uri = uri
        self._endpoint, self._bucket = endpoint, bucket
        self._root = f"{prefix}/" if prefix else ""
        self._region, self._keys, self._look = region, keys, look
        self._sleep, self._now = sleep, now

    def get(self, name: str) -> bytes:
        return self._tried(lambda: self._ask("GET", f"/{self._bucket}/{self._root}{name}", {}, name).data)

    def exists(self, name: str) -> bool:
        try:
            self._tried(lambda: self._ask("HEAD", f"/{self._bucket}/{self._root}{name}", {}, name))
        except ObjectMissingError:
            return False
        return True

    def list_names(self, prefix: str, *, after: str | None = None) -> list[str]:
        return self._listed(prefix, after)

    def list_page(self, prefix: str, *, after: str | None = None) -> list[str]:
        return self._listed(prefix, after, enough=PAGE)[:PAGE]

    def _listed(self, prefix: str, after: str | None, *, enough: int | None = None) -> list[str]:
        """A server may end a page early and say that there is more: then it is no end."""
        query = {"list-type": "2", "max-keys": str(PAGE), "prefix": self._root + prefix}
        if after is not None:
            query["start-after"] = self._root + after
        names: list[str] = []
        while True:
            page = self._tried(functools.partial(self._page, query))
            names += [key.removeprefix(self._root) for key in page.keys if key.startswith(self._root + prefix)]
            if page.next is None or (enough is not None and len(names) >= enough):
                return sorted(names)
            query = {**query, "continuation-token": page.next}

    def _page(self, query: Mapping[str, str]) -> "_Page":
        answer = self._ask("GET", f"/{self._bucket}", query, None)
        if len(answer.data) > LARGEST_PAGE:
            raise StoreRefusedError(self.uri, "lists more names at a time than were asked for")
        try:
            return _parsed_page(answer.data)
        except (expat.ExpatError, ValueError) as error:
            raise StoreRefusedError(self.uri, "answers a listing with something else: check the endpoint") from error

    def _tried(self, request: Callable[[], _T]) -> _T:
        for number in range(TRIES - 1):
            try:
                return request()
            except StoreError as error:
                pause = FIRST_PAUSE * 2**number
                if not worth_waiting(error) or isinstance(error, _HungError) or self._look.seconds() <= pause:
                    raise
                self._sleep(pause)
        return request()

    def _ask(self, method: str, path: str, query: Mapping[str, str], name: str | None) -> Answer:
        seconds = self._look.seconds()
        if seconds <= 0:
            raise _HungError(self.uri, f"was not read within {LONGEST_LOOK:.0f} s: check the endpoint and the network")
        where = quote(self._endpoint.path + path, safe="/-_.~")
        asked = urlencode(sorted(query.items()), quote_via=quote, safe="-_.~")
        headers = signed(
            f"{method}\n{where}\n{asked}", self._endpoint.authority, self._keys, region=self._region, now=self._now()
        )
        try:
            answer = exchange(
                self._endpoint.connection(min(seconds / 2, 2.0)),
                method,
                self._endpoint.target(f"{where}?{asked}" if asked else where),
                headers={**headers, "Accept-Encoding": "identity"},
                seconds=seconds,
                largest=self._look.room(),
                before_reading=self._look.expect,
            )
        except NoAnswerError as error:
            if error.hung:
                raise _HungError(
                    self.uri, f"did not answer within {seconds:.0f} s: check the endpoint and the network"
                ) from error
            raise StoreUnreachableError(
                self.uri, f"does not answer: check the endpoint and the network ({_why(error)})"
            ) from error
        except TooLargeError as error:
            raise StoreRefusedError(
                self.uri, f"answers with more than the operator reads at a time ({LARGEST // 2**20} MB)"
            ) from error
        self._look.add(len(answer.data))
        if answer.status != 200:
            raise _problem(self.uri, answer, name)
        return answer


class _HungError(StoreUnavailableError):
    """Waited for in vain: not tried again now."""


# --- what it answers --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Page:
    keys: list[str]
    next: str | None = None


def _parsed_page(data: bytes) -> _Page:
    """Of a ListBucketResult. Document types are refused, and with them entities."""
    page, texts, path = _Page([]), list[str](), list[str]()
    found = {"IsTruncated": "", "NextContinuationToken": ""}

    def refuse(*_: object) -> None:
        raise ValueError("a document type")

    def start(tag: str, _: object) -> None:
        path.append(tag)
        texts.clear()

    def end(tag: str) -> None:
        path.pop()
        if tag == "Key" and path == ["ListBucketResult", "Contents"]:
            page.keys.append("".join(texts))
        elif tag in found and path == ["ListBucketResult"]:
            found[tag] = "".join(texts)

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, texts.append
    parser.Parse(data, True)
    if found["IsTruncated"] == "true":
        page.next = found["NextContinuationToken"]
        if not 0 < len(page.next) <= 4096:
            raise ValueError("no way to go on")
    return page


def _problem(uri: str, answer: Answer, name: str | None) -> StoreError:
    """What is told of an error: its status, and what a code of S3 means that we know. What else stands in it may come
    from a server that whoever reads our words could not ask."""
    match = _CODE.search(answer.data[:4096])
    code, status = (match[1].decode() if match else ""), answer.status
    fault = fault_of(RuntimeError(code)).name
    if fault == "store-no-bucket":
        return MissingBucketError(uri, "there is no such bucket: create it, or correct the URI")
    if fault == "store-credentials" or status == 401:
        return BadCredentialsError(
            uri, f"does not accept the credentials: check access key and secret (status {status})"
        )
    if status == 404 and name is not None:
        return ObjectMissingError(uri, f"has no object {name}")
    if status == 403:
        return AccessDeniedError(uri, "does not allow to read: check the permissions of the key")
    if status >= 500 or status in _OVERLOADED:
        return StoreUnavailableError(uri, f"failed to read: it answers with status {status}")
    hint = ", which is not followed" if 300 <= status < 400 else ""
    return StoreRefusedError(uri, f"refused to read: check region and endpoint (status {status}{hint})")


def _why(error: NoAnswerError) -> str:
    """In words that are ours: those of http.client quote what the server sent."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return getattr(cause, "verify_message", "") or cause.strerror or "the connection broke"
    return "what answers there does not speak HTTP"


# --- signatures -------------------------------------------------------------------------------------------------------


def signed(resource: str, host: str, keys: Keys, *, region: str, now: datetime) -> dict[str, str]:
    """The headers of a request without a body, with version 4 of AWS' signatures. ``resource``: method, path and query,
    a line each; both encoded, and the query sorted."""
    moment, day = f"{now:%Y%m%dT%H%M%SZ}", f"{now:%Y%m%d}"
    headers = {"host": host, "x-amz-content-sha256": _EMPTY_SHA256, "x-amz-date": moment}
    if keys.session_token is not None:
        headers["x-amz-security-token"] = keys.session_token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"{resource}\n{lines}\n{names}\n{_EMPTY_SHA256}"
    scope = f"{day}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys.secret_access_key}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{keys.access_key_id}/{scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return headers
