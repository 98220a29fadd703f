"""The table of who mends what: every line is reached by real errors, and nothing is reached by mistake."""

import importlib
import re

import psycopg.errors
import pytest
from confluent_kafka import KafkaError

from epochal.protocol.control import EXIT_FAILED, EXIT_MISCONFIGURED, EXIT_REFUSED
from epochal.protocol.evidence import evidence_of
from epochal.protocol.faults import TABLE, UNKNOWN, FixedBy, exit_code, fault_of, worth_waiting
from epochal.runtime.errors import OperatorError
from tests.protocol.fault_cases import CASES, PAGE, caused, in_worker, page

LINES = {line.name: line for line in (*TABLE, UNKNOWN)}
WRITE = "write it anew: python -m tests.protocol.fault_cases --write"


@pytest.mark.parametrize(
    ("name", "error"),
    [(name, error) for name, found in CASES.items() for error in found],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_error_falls_under_its_line(name: str, error: BaseException) -> None:
    assert fault_of(error).name == name
    # However deep it is wrapped.
    wrapped = OperatorError("out", caused(RuntimeError("in between"), error))
    assert fault_of(wrapped).name == name


def test_every_line_is_reached() -> None:
    assert CASES.keys() == LINES.keys()
    assert len(LINES) == len(TABLE) + 1, "two lines of one name"


def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE.read_text(), WRITE


def test_who_mends_it_says_how_the_driver_ends() -> None:
    codes = {FixedBy.TIME: EXIT_FAILED, FixedBy.PERSON: EXIT_REFUSED, FixedBy.EDIT: EXIT_MISCONFIGURED}
    for name, found in CASES.items():
        line = LINES[name]
        assert {exit_code(error) for error in found} == {codes[line.fixed_by]}
        assert {worth_waiting(error) for error in found} == {line.in_place}
        assert line.fixed_by is FixedBy.TIME or not line.in_place, "what a person mends is not waited for"


def _signs(kind: str) -> list[str]:
    return [sign.partition(":")[2] for line in TABLE for sign in line.signs if sign.startswith(f"{kind}:")]


def test_every_sign_can_be_shown() -> None:
    """A slip in a sign would leave it without effect, and nobody would see."""
    kinds = {"sqlstate", "kafka", "http", "kubernetes", "errno", "user", "spark", "class", "java"}
    for line in TABLE:
        for sign in line.signs:
            assert " says " in sign or sign.partition(":")[0] in kinds, sign
    codes = {getattr(found, "sqlstate", None) for found in vars(psycopg.errors).values()} - {None}
    for sign in _signs("sqlstate"):
        assert any(re.fullmatch(sign.replace("*", ".*"), str(code)) for code in codes), sign
    names = {KafkaError(value).name() for value in vars(KafkaError).values() if isinstance(value, int)}
    for sign in set(_signs("kafka")) - {"retriable"}:
        assert any(re.fullmatch(sign.replace("*", ".*"), name) for name in names), sign


_WHERE = {
    "pyiceberg": ["pyiceberg.exceptions"],
    "psycopg": ["psycopg"],
    "_internal": ["deltalake.exceptions"],
    "builtins": ["builtins"],
    "obstore": ["obstore.exceptions"],
    "py4j": ["py4j.protocol"],
    "pyspark": ["pyspark.errors"],
    "sqlalchemy": ["sqlalchemy.exc"],
    "http": ["http.client"],
    "urllib": ["urllib.error"],
    "urllib3": ["urllib3.exceptions"],
    "requests": ["requests.exceptions"],
    "socket": ["socket"],
    "ssl": ["ssl"],
    "epochal": [
        "epochal.runtime.errors",
        "epochal.protocol.errors",
        "epochal.connectors.commit_ledger",
        "epochal.connectors.delta.log",
    ],
    "epochal_operator": ["epochal_operator.api"],
}
_NOT_INSTALLED = ("httpx", "aiohttp")


def test_every_class_is_there() -> None:
    for sign in _signs("class"):
        package, _, name = sign.partition(".")
        if package in _NOT_INSTALLED:
            continue
        found = [getattr(importlib.import_module(module), name, None) for module in _WHERE[package]]
        kind = next((one for one in found if one is not None), None)
        assert kind is not None, sign
        assert f"{kind.__module__.partition('.')[0]}.{kind.__name__}" == sign


def test_what_a_worker_raised_is_known_by_its_last_line() -> None:
    signs = evidence_of(in_worker("shop.errors.TooManyError: KeyError: 3")).signs
    assert "user:shop.TooManyError" in signs
    assert "user:KeyError" not in signs


def test_an_error_that_cannot_say_what_it_is() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise ConnectionError("Java is gone")

    assert fault_of(SilentError()) is UNKNOWN


def test_errors_that_name_each_other() -> None:
    one, other = RuntimeError("one"), ConnectionResetError("other")
    one.__cause__, other.__cause__ = other, one
    assert fault_of(one).name == "network"


def test_of_several_errors_at_once_each_is_looked_at() -> None:
    assert fault_of(ExceptionGroup("calls", [RuntimeError("one"), TimeoutError("other")])).name == "network"
