"""A driver's image is its tenant's: it may answer anything, or nothing, and must harm no more than its own job."""

import time
from collections.abc import Callable

import msgspec
import pytest

from epochal.control.driver_client import (
    LARGEST_ANSWER,
    REST,
    DriverClient,
    DriverError,
    DriverUnreachable,
    RememberingDriver,
)
from epochal.control.foreign import LONGEST_TEXT, clean
from epochal.protocol.control import CheckpointReport, CheckpointState, DriverPhase, DriverStatus
from epochal.protocol.epochs import Epoch, Generation
from tests.support.hostile import CHUNKED, UNTIL_CLOSED, Behaviour, HostileServer, answers, claims, drips, floods, hangs

TIMEOUT = 0.3

STATUS = DriverStatus(
    namespace="n", job="j", generation=Generation(1), phase=DriverPhase.RUNNING, started=1, message="it runs"
)
REPORT = CheckpointReport(
    epoch=Epoch(1), generation=Generation(1), then_stop=False, state=CheckpointState.READY, started=1
)


def asked(behave: Behaviour, question: Callable[[DriverClient], object] = DriverClient.status) -> object:
    """What came of it; in any case within a few time-outs."""
    with HostileServer(behave) as server:
        begun = time.monotonic()
        try:
            return question(DriverClient(server.endpoint, "token", timeout=TIMEOUT))
        finally:
            assert time.monotonic() - begun < 10 * TIMEOUT


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(hangs, id="says nothing"),
        pytest.param(drips(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"), id="drips headers"),
        pytest.param(drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), id="drips promises"),
        pytest.param(drips(UNTIL_CLOSED, b" "), id="drips"),
        pytest.param(drips(CHUNKED, b"1\r\n \r\n"), id="drips chunks"),
        pytest.param(claims(200, 1000), id="promises a body"),
        pytest.param(answers(200, b"{}", Content_Length="1000"), id="ends too early"),
    ],
)
def test_one_that_does_not_get_to_an_end_is_not_waited_for(behave: Behaviour) -> None:
    with pytest.raises(DriverUnreachable):
        asked(behave)


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(claims(200, 10**9), id="a gigabyte is promised"),
        pytest.param(claims(500, 10**30), id="an error without end is promised"),
        pytest.param(floods(UNTIL_CLOSED), id="floods"),
        pytest.param(floods(CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n"), id="floods in chunks"),
        pytest.param(answers(200, b" " * (LARGEST_ANSWER + 1)), id="a byte too many"),
    ],
)
def test_no_more_is_read_than_an_answer_can_have(behave: Behaviour) -> None:
    with pytest.raises(DriverError, match=r"larger|more than"):
        asked(behave)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 500_000, id="deep"),
        pytest.param(b"\xff\xfe", id="not text"),
        pytest.param(b'{"message":"\\ud800"}', id="half a character"),
        pytest.param(msgspec.json.encode(STATUS).replace(b'"started":1', b'"started":NaN'), id="NaN"),
        pytest.param(msgspec.json.encode(STATUS).replace(b'"started":1', b'"started":-1'), id="before all time"),
        pytest.param(msgspec.json.encode(STATUS).replace(b'"started":1', b'"started":1e999'), id="infinite"),
        pytest.param(msgspec.json.encode(STATUS).replace(b'"started":1', b'"started":' + b"9" * 5000), id="digits"),
        pytest.param(msgspec.json.encode(STATUS).replace(b'"started":1', b'"started":1,"late_rows":-5'), id="minus"),
        pytest.param(
            msgspec.json.encode(STATUS).replace(b'"started":1', b'"started":1,"newest_number":99999999999'), id="epoch"
        ),
        pytest.param(b'{"phase":"' + b"\\u001b[2J" * 1000 + b'"}', id="screen"),
    ],
)
def test_nonsense_is_an_error_in_a_few_plain_words(body: bytes) -> None:
    with pytest.raises(DriverError) as caught:
        asked(answers(200, body))
    assert len(str(caught.value)) < 2 * LONGEST_TEXT
    assert str(caught.value).isprintable()


def test_a_number_that_no_metric_can_hold_is_not_believed() -> None:
    body = msgspec.json.encode(REPORT).replace(b'"bytes":0', b'"bytes":' + b"9" * 400)
    with pytest.raises(DriverError):
        asked(answers(200, body), lambda client: client.get_checkpoint(Epoch(1)))


def test_what_it_says_comes_as_one_short_line() -> None:
    hostile = "done\n2026-11-18 INFO all is well\x1b[2J\u202egpj.exe" + "x" * 100_000
    status = msgspec.structs.replace(
        STATUS, message=hostile, skipped_epochs={f"{hostile}{number}": hostile for number in range(3)}
    )
    found = asked(answers(200, msgspec.json.encode(status)))
    assert isinstance(found, DriverStatus)
    texts = [found.message, *found.skipped_epochs, *found.skipped_epochs.values()]
    assert all(text.isprintable() and len(text) <= LONGEST_TEXT for text in texts)
    assert found.message.startswith("done 2026-11-18 INFO all is well [2J gpj.exe")


def test_an_error_in_its_own_words_is_one_short_line() -> None:
    with pytest.raises(DriverError) as caught:
        asked(answers(500, b"first\nsecond\x00\x1b[31m" * 1000))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_no_redirect_is_followed() -> None:
    with HostileServer(answers(200, msgspec.json.encode(STATUS))) as other:
        with pytest.raises(DriverError, match="302"):
            asked(answers(302, Location=f"{other.endpoint}/v1/status"))
        assert other.requests == []


def test_one_that_hangs_is_left_alone_for_longer_than_it_was_waited_for() -> None:
    with HostileServer(hangs) as server:
        client = DriverClient(server.endpoint, "token", timeout=TIMEOUT)
        driver = RememberingDriver(client, time.monotonic, 10.0)
        begun = time.monotonic()
        while time.monotonic() - begun < 3 * (1 + REST) * TIMEOUT:
            with pytest.raises(DriverUnreachable):
                driver.status()
            time.sleep(0.01)
        assert len(server.requests) <= 4
        server.behave = answers(200, msgspec.json.encode(STATUS))
        time.sleep((REST + 0.5) * TIMEOUT)
        assert driver.status().message == "it runs"


def test_clean_keeps_what_can_be_read() -> None:
    assert clean("Größe: 5 µm – 漢字 ok") == "Größe: 5 µm – 漢字 ok"
    assert clean("  two\r\n\tlines\u2028and a third ") == "two lines and a third"
    assert clean("a\u200bb\u2066c\ud800d\x7f") == "a b c d"
    assert clean("x" * 50, 10) == "x" * 9 + "…"
