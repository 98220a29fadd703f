"""What an error shows of itself, as plain words: classes, codes and texts, of it and of what it was caused by.

No library is imported for that: a driver may lack any of them, and the operator has none. So PostgreSQL's errors are
known by SQLSTATE, Kafka's by name, Java's by the class names in their text.
"""

import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

LONGEST_TEXT = 20_000
"""Characters of one error's text that are looked at."""

_JAVA = re.compile(r"\b(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9]*(?:[_.][A-Z0-9]+)+)\]")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_BASES = frozenset({"builtins.object", "builtins.Exception", "builtins.BaseException"})


@dataclass(slots=True)
class Evidence:
    """``signs`` are words such as ``sqlstate:42P01`` or ``class:psycopg.OperationalError``. ``texts`` are what errors
    said, each with the packages that its class and the classes above come from."""

    signs: set[str] = field(default_factory=set)
    texts: list[tuple[frozenset[str], str]] = field(default_factory=list)

    def shows(self, sign: str) -> bool:
        """Whether it matches a sign of the table: ``KIND:PATTERN``, or ``PACKAGE says TEXT``, with ``*`` for any
        package."""
        package, says, text = sign.partition(" says ")
        if says:
            # A word begins there: a parser's `reportInvalidToken` is no store's `InvalidToken`.
            where = re.compile(rf"(?<!\w){re.escape(text)}")
            return any(where.search(said) and (package == "*" or package in packages) for packages, said in self.texts)
        return sign in self.signs or ("*" in sign and any(fnmatchcase(shown, sign) for shown in self.signs))


def evidence_of(error: BaseException) -> Evidence:
    found = Evidence()
    for one, of_user in _chain(error, of_user=False, seen=set()):
        classes = [_name(kind) for kind in type(one).__mro__]
        found.signs.update(f"class:{name}" for name in classes if name not in _BASES)
        if of_user:
            found.signs.add(f"user:{_name(type(one)).removeprefix('builtins.')}")
        found.signs.update(_codes(one))
        said = _text(one)
        found.texts.append((frozenset(name.partition(".")[0] for name in classes) - {"builtins"}, said))
        found.signs.update(f"java:{name}" for name in _JAVA.findall(said))
        found.signs.update(f"spark:{condition}" for condition in _CONDITION.findall(said))
        found.signs.update(_raised_in_worker(said))
    return found


def _chain(error: BaseException, *, of_user: bool, seen: set[int]) -> Iterator[tuple[BaseException, bool]]:
    """The error and all that it says it was caused by; and whether the user's own code raised it."""
    if id(error) in seen:
        return
    seen.add(id(error))
    yield error, of_user
    # `error` is of our own wrappers, `orig` of SQLAlchemy's; a Kafka exception's error is an argument.
    for cause in (error.__cause__, getattr(error, "error", None), getattr(error, "orig", None)):
        if isinstance(cause, BaseException):
            yield from _chain(cause, of_user=type(error).__name__ == "UserCodeError", seen=seen)
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _chain(one, of_user=of_user, seen=seen)


def _name(kind: type) -> str:
    """The package and the class: modules in between may move, and users know neither."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _codes(error: BaseException) -> Iterator[str]:
    if isinstance(state := getattr(error, "sqlstate", None), str):
        yield f"sqlstate:{state}"
    if isinstance(error, OSError) and error.errno is not None:
        yield f"errno:{error.errno}"
    answer = getattr(error, "response", None)
    system = "kubernetes" if type(error).__name__ == "ApiException" or _is_api_error(error) else "http"
    for where, names in ((error, ("status", "status_code", "http_status_code", "code")), (answer, ("status_code",))):
        for name in names:
            code = getattr(where, name, None)
            if isinstance(code, int) and not isinstance(code, bool) and 100 <= code < 600:
                yield f"{system}:{code}"
    for argument in error.args[:1]:
        yield from _kafka(argument)


def _is_api_error(error: BaseException) -> bool:
    """Of the operator, which is above this package."""
    return any(kind.__name__ == "ApiError" for kind in type(error).__mro__)


def _kafka(error: Any) -> Iterator[str]:
    """Of librdkafka's errors, which are no exceptions."""
    if type(error).__name__ != "KafkaError":
        return
    yield f"kafka:{error.name()}"
    if error.retriable():
        yield "kafka:retriable"


def _text(error: BaseException) -> str:
    try:
        return str(error)[:LONGEST_TEXT]
    except Exception:  # Py4J asks Java for the text, and Java may be gone
        return ""


def _raised_in_worker(said: str) -> Iterator[str]:
    """What a Python worker's traceback ends with: the class that the user's function, or ours, has raised."""
    _, traceback, rest = said.rpartition(_TRACEBACK)
    if not traceback:
        return
    for line in rest.splitlines():
        if raised := _RAISED.match(line):
            package, _, name = raised[1].rpartition(".")
            kind = getattr(builtins, name, None) if not package else None
            if isinstance(kind, type):
                yield f"user:{name}"
                yield from (f"class:{_name(one)}" for one in kind.__mro__ if _name(one) not in _BASES)
            else:
                known = f"{package.partition('.')[0]}.{name}"
                yield f"user:{known}"
                yield f"class:{known}"
            return
