"""One thing that a check has found."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    UNKNOWN = "unknown"
    """The person may not look at what the check needs."""
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``name`` is what documents and scripts call it, ``about`` the object, ``do`` what helps."""

    name: str
    level: Level
    about: str
    message: str
    do: str = ""


def ok(about: str, message: str) -> Finding:
    return Finding(name="Ok", level=Level.OK, about=about, message=message)


def problem(name: str, about: str, message: str, do: str) -> Finding:
    return Finding(name=name, level=Level.PROBLEM, about=about, message=message, do=do)


def warning(name: str, about: str, message: str, do: str) -> Finding:
    return Finding(name=name, level=Level.WARNING, about=about, message=message, do=do)


def unknown(about: str, message: str) -> Finding:
    return Finding(
        name="NotAllowedToLook",
        level=Level.UNKNOWN,
        about=about,
        message=message,
        do="Ask somebody who may, or have the rights given to you.",
    )
