"""The proxy finds requests however the network cuts them up."""

import pytest

from tests.support.proxy import Request, RequestParser

TWO_PUTS_AND_A_GET = (
    b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nGET /body HTTP/1.1\r\n"
    b"PUT /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\n"
    b"GET /c?list-type=2 HTTP/1.1\r\nHost: x\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_requests_are_found_in_pieces_of_any_size(size: int) -> None:
    seen: list[Request] = []
    parser = RequestParser(seen.append)
    for start in range(0, len(TWO_PUTS_AND_A_GET), size):
        parser.feed(TWO_PUTS_AND_A_GET[start : start + size])
    assert seen == [Request("PUT", "/a"), Request("PUT", "/b"), Request("GET", "/c?list-type=2")]
