"""Text of others, on its way to people: of drivers, pods, stores and admission webhooks.

Whoever runs a driver or a store chooses what it says. Before any of it reaches a log, an event, a condition or the
record, it is made one line of printable characters, and short.
"""

import logging
import unicodedata

LONGEST_TEXT = 1024
LONGEST_LINE = 8192
"""Of a log: the operator's own words and what others said."""

_CUT = "…"


def clean(text: str, longest: int = LONGEST_TEXT) -> str:
    """One line, without control characters, escape sequences, marks that change the direction of writing and other
    invisible characters, and at most ``longest`` long."""
    some = text[: longest + 1]  # what comes later is not even looked at
    line = " ".join("".join(char if _visible(char) else " " for char in some).split())
    return line if len(text) <= longest else line[: longest - 1] + _CUT


def _visible(char: str) -> bool:
    return char.isprintable() and unicodedata.category(char) != "Cf"


class CleanLines(logging.Filter):
    """Makes each record one printable line. Tracebacks are left: they are our own code's."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if not message.isprintable() or len(message) > LONGEST_LINE:
            record.msg, record.args = clean(message, LONGEST_LINE), ()
        return True
