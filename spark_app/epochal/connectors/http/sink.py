"""Rows to a web server, at least once: HTTP has no transaction to put an epoch into, so a server that must see each
row once has to remember the keys that come with the requests."""

import http.client
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from epochal.connectors.object_sink import ObjectSink
from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.errors import PipelineError, UnavailableError

logger = logging.getLogger(__name__)

KEY_HEADER = "Idempotency-Key"
LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """``headers`` and the URL's query may hold secrets: neither is ever told."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    rows_per_request: int = 500
    timeout: float = 30.0
    patience: float = 600.0

    def __post_init__(self) -> None:
        # The URL itself is not repeated: where it is wrong, anything in it may be the secret.
        if not _is_web_address(self.parts):
            raise PipelineError("the URL is not a web address: give http://HOST/PATH or https://HOST/PATH")
        if self.rows_per_request < 1:
            raise PipelineError(f"rows_per_request is {self.rows_per_request}: give 1 or more")

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    def __str__(self) -> str:
        host = f"{self.parts.hostname}:{self.parts.port}" if self.parts.port else self.parts.hostname
        return f"{self.parts.scheme}://{host}{self.parts.path}"


def _is_web_address(parts: SplitResult) -> bool:
    try:
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


class HttpRefusedError(Exception):
    """The server's answer is not 2xx. The table of faults says what that means; ``retry_after`` is how many seconds the
    server asks to wait."""

    def __init__(self, problem: str, status: int, retry_after: float = 0.0) -> None:
        super().__init__(problem)
        self.status = status
        self.retry_after = retry_after


class HttpSink(ObjectSink):
    """Posts an epoch's rows as JSON arrays, in parts that are the same whenever the epoch is committed.

    Each request has the header ``Idempotency-Key: namespace/job/operator/epoch/part``. After a crash, or when an answer
    was lost, a request comes again with the same key and the same body. While the server is away the runtime waits, and
    commits again: that goes on with the request that was not taken, and makes no other again.
    """

    why_not_taken_back = "rows that were posted stay where they were sent"

    def __init__(self, target: HttpTarget, storage: StorageConfig) -> None:
        super().__init__(storage)
        self._target = target
        self.commit_patience = target.patience
        self._epoch = 0
        """The epoch whose requests were taken in part: so many as ``commit_progress`` says."""

    def open(self, ctx: OperatorContext) -> None:
        logger.info("Sink %s posts rows at least once: requests may come again, with the same %s", ctx.name, KEY_HEADER)

    def encode(self, frame: DataFrame) -> DataFrame:
        return frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"))

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        if epoch != self._epoch:
            self._epoch, self.commit_progress = epoch, 0
        for number, part in enumerate(self._parts(objects)):
            if number >= self.commit_progress:
                self._post(f"{ctx.job.name}/{ctx.name}/{epoch}/{number}", f"[{','.join(part)}]".encode())
                self.commit_progress = number + 1
        self._epoch = 0

    def _parts(self, objects: list[str]) -> Iterator[list[str]]:
        part: list[str] = []
        for batch in self.batches(objects):
            for row in batch.column("value").to_pylist():
                part.append(row)
                if len(part) == self._target.rows_per_request:
                    yield part
                    part = []
        if part:
            yield part

    def _post(self, key: str, body: bytes) -> None:
        target, parts = self._target, self._target.parts
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        assert parts.hostname is not None
        connection = kind(parts.hostname, parts.port, timeout=target.timeout)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", **target.headers, KEY_HEADER: key}
        try:
            connection.request("POST", path, body=body, headers=headers)
            with connection.getresponse() as answer:
                said = answer.read(500).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"{target} does not answer: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            problem = f"{target} answered {answer.status} to {KEY_HEADER} {key}: {said!r}"
            raise HttpRefusedError(problem, answer.status, _seconds(answer.getheader("Retry-After")))


def _seconds(after: str | None) -> float:
    return min(float(after), LONGEST_WAIT) if after and after.isdigit() else 0.0
