"""Why a process ended, in a line: the signal or the exit code, and the last error that it told. Pure.

What a process wrote last is seldom why it ended. One that is killed has written whatever it was doing: with Spark,
often a warning about a block of an RDD. Such lines are never a cause.
"""

import re
import signal

from epochal.control.foreign import clean

_OURS = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) \S+ (?P<said>.*)")
_LOG4J = re.compile(r"^(?:\d\d|\d{4})[/-]\d\d[/-]\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})? (?P<level>[A-Z]+) \S+ (?P<said>.*)")
_EXCEPTION = re.compile(
    r"^(?:Exception in thread \S+ |Caused by: |Terminating due to )?"
    r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*"
)
_JVM_CRASH = re.compile(r"^# +(?P<said>(?:SIG[A-Z]+ \(0x|There is insufficient memory|A fatal error).*)")
_TRACE = re.compile(r"^(\s|\tat |Traceback |\.\.\. \d+ more)")
_SERIOUS = ("ERROR", "CRITICAL", "FATAL")
_KILLED = 128
"""A shell, and Kubernetes, add the number of the signal to this."""

_OUT_OF_MEMORY = "it ran out of memory (OOMKilled): raise spec.driver.memory, or make its batches smaller"
_MEANING = {
    signal.SIGKILL: "at once: by a node without memory, kill -9, or the end of a grace period",
    signal.SIGTERM: "it was asked to end and did not take a last checkpoint in time",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGABRT: "a crash of the JVM or of native code",
    signal.SIGBUS: "a crash in native code: often a full disk below a mapped file",
}


def signal_of(code: int) -> signal.Signals | None:
    """The signal that an exit code stands for: of a shell or Kubernetes (137), or of Python (-9)."""
    number = -code if code < 0 else code - _KILLED
    try:
        return signal.Signals(number) if number > 0 else None
    except ValueError:
        return None


def how_it_ended(code: int | None, reason: str = "", said: str = "") -> str:
    """Why a process ended. ``reason`` is Kubernetes' word for it, ``said`` the last that it wrote: its own cause, or
    the end of its log. Empty if there is nothing to add to the exit code."""
    if reason == "OOMKilled":
        return _OUT_OF_MEMORY
    cause = last_error(said)
    number = signal_of(code) if code is not None else None
    if number is not None:
        means = _MEANING.get(number)
        head = f"killed by {number.name}" + (f" ({means})" if means else "")
        return f"{head}; its last error was: {cause}" if cause else head
    # "Error" and "Completed" say no more than the exit code.
    return cause if reason in ("", "Error", "Completed") else ": ".join(filter(None, (reason, cause)))


def last_error(text: str) -> str:
    """The last error in the end of a log, without when and where it was said; the last line that no logger wrote if
    there is none. Empty if the log has warnings and news only."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    spoken = ""
    for line in reversed(lines):
        if logged := _OURS.match(line) or _LOG4J.match(line):
            if logged["level"] in _SERIOUS and logged["said"].strip():
                return clean(logged["said"])
        elif crash := _JVM_CRASH.match(line):
            return clean(crash["said"])
        elif _EXCEPTION.match(line):
            return clean(line)
        elif not spoken and not _TRACE.match(line) and not line.startswith("#"):
            spoken = clean(line)
    return spoken
