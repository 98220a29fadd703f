"""An API server that has too much to do is left alone for a while, and for longer each time."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import urllib3
from kubernetes.client import ApiClient, Configuration

from epochal_operator.api import Api, ApiError, ConflictError, NamespaceEndsError
from epochal_operator.backoff import LONGEST, LONGEST_ASKED, Pauses


def test_pauses_double_up_to_a_limit_and_differ() -> None:
    pauses = Pauses()
    took = [pauses.next(ApiError("no answer")) for _ in range(8)]
    for pause, longest in zip(took, [1, 2, 4, 8, 15, 15, 15, 15], strict=True):
        assert longest / 2 <= pause <= min(longest, LONGEST)
    assert len({Pauses().next(ApiError("no answer")) for _ in range(20)}) > 1
    pauses.reset()
    assert pauses.next(ApiError("no answer")) <= 1


@pytest.mark.parametrize(("asked", "least", "most"), [(7, 7, 7), (None, 0.5, 1), (86400, LONGEST_ASKED, LONGEST_ASKED)])
def test_what_the_server_asks_for_counts_within_bounds(asked: float | None, least: float, most: float) -> None:
    assert least <= Pauses().next(ApiError("too many requests", 429, retry_after=asked)) <= most


def test_a_pause_ends_also_if_the_clock_is_set_back() -> None:
    pauses = Pauses()
    pauses.begin(ApiError("too many requests", 429, retry_after=10), 1000.0)
    assert pauses.lasts(1009.0)
    assert not pauses.lasts(1010.0)
    assert not pauses.lasts(100.0)


ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "header": (429, {"Retry-After": "7"}, b'{"kind": "Status", "message": "too many requests"}'),
    "proxy": (503, {"Retry-After": "9"}, b"upstream is away"),
    "details": (429, {}, b'{"message": "slow down", "details": {"retryAfterSeconds": 4}}'),
    "odd": (500, {}, b'["no Status"]'),
    "odder": (500, {}, b'{"message": "x", "details": "y"}'),
    "ending": (403, {}, b'{"message": "m", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}'),
    "conflict": (409, {}, b'{"message": "there is one", "details": null}'),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        code, headers, body = ANSWERS[self.path.rsplit("/", 1)[1]]
        self.send_response(code)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_port}"
    configuration.retries = urllib3.Retry(total=0)
    yield Api(ApiClient(configuration))
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "code", "asked", "kind"),
    [
        ("header", 429, 7, ApiError),
        ("proxy", 503, 9, ApiError),
        ("details", 429, 4, ApiError),
        ("odd", 500, None, ApiError),
        ("odder", 500, None, ApiError),
        ("ending", 403, None, NamespaceEndsError),
        ("conflict", 409, None, ConflictError),
    ],
)
def test_what_an_error_says(api: Api, name: str, code: int, asked: float | None, kind: type[ApiError]) -> None:
    with pytest.raises(ApiError) as caught:
        api.get("pods", "shop", name)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.retry_after) == (code, asked)
