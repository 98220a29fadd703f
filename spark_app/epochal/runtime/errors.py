"""What a person who wrote a pipeline is told. Every message names the operator."""

import re

from epochal.protocol.faults import FixedBy, fault_of

NOT_HERE = "EPOCHAL_STATE_NOT_HERE"
"""In the message of a task that misses files: the executor that had them is gone."""

DAMAGED = "EPOCHAL_STATE_DAMAGED"
"""In the message of a task that read a damaged state object, before the object's name."""


class PipelineError(Exception):
    """The pipeline cannot work, found before anything starts: a bad name, a wrong column, a dangling graph."""


class OutsideError(PipelineError):
    """The same, but it is not the pipeline that has to change: a table, a topic, a right. A person fixes that outside
    of the job, and a later generation finds it fixed."""


class UserCodeError(Exception):
    """The user's function failed while it described the pipeline. Its cause says who can fix that."""


class OperatorError(Exception):
    """An operator failed. What it was caused by says who can fix that."""

    def __init__(self, operator: str, error: BaseException) -> None:
        super().__init__(f"operator {operator!r} failed: {summarize_error(error)}")
        self.operator = operator
        self.error = error


class UnavailableError(Exception):
    """What an operator needs does not answer now. A later generation may find it, so the job is not wrong."""


class DamagedStateError(Exception):
    """A state object is not what an epoch's manifest says of it: the epoch cannot be restored. Raised for nothing else;
    :mod:`epochal.runtime.state.state_objects` has the list."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{DAMAGED} {name} {problem}")
        self.object = name
        self.problem = problem


class WouldRepeatError(Exception):
    """Output that is committed would come a second time, and the spec has not chosen that."""


class FencedError(Exception):
    """A newer generation of the job has begun: what this driver was about to do is no longer its own to do."""


class JobStoppingError(Exception):
    """Raised into a source's batch that came after the last barrier: the batch belongs to nobody."""


def explained(error: BaseException, where: str, said: str = "") -> Exception:
    """An error of a target, of the kind that the table of faults says: use it with ``raise … from error``. ``said`` is
    the error's text if it is not the one to show."""
    said = said or summarize_error(error)
    match fault_of(error).fixed_by:
        case FixedBy.TIME:
            return UnavailableError(f"{where} does not answer, or cannot serve now: {said}")
        case FixedBy.PERSON:
            return OutsideError(f"{where}: {said}")
        case FixedBy.EDIT:
            return PipelineError(f"{where}: {said}")


def undescribed(message: str, error: Exception) -> Exception:
    """An error that came up while the pipeline was described, by the user's code or because of it: use it with
    ``raise … from error``."""
    found = UserCodeError(message)
    found.__cause__ = error
    return PipelineError(message) if fault_of(found).fixed_by is FixedBy.EDIT else found


def lost_state(error: BaseException) -> bool:
    """Whether a run is gone with the executor that held it."""
    return any(sign in str(error) for sign in ("CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND", NOT_HERE))


def failed_by_lost_state(error: BaseException | None) -> bool:
    """Whether an error, or one that it stands for, is that a run is gone."""
    while error is not None:
        if lost_state(error):
            return True
        error = error.error if isinstance(error, OperatorError) else error.__cause__
    return False


def damaged_object(error: BaseException) -> str | None:
    """The state object that this error, perhaps another process's, calls damaged."""
    found = _DAMAGED.search(str(error))
    return found[1] if found else None


LOST_STATE = (
    "an executor was lost, and with it state that only this executor held: the next generation restores the newest "
    "epoch (with spark.epochal.stateReplicas of 2 the job would have gone on)"
)


WORKER_DIED = "Python worker exited unexpectedly"
WORKER_DIED_MEANS = (
    "a Python worker was killed or has crashed. If its executor was out of memory, raise spec.executor.memory "
    "(spec.driver.memory for a job that runs in its driver)"
)


def summarize_error(error: BaseException) -> str:
    """What an error says, on one line: Spark's messages carry the stack traces of two languages."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    if lost_state(error):
        return LOST_STATE
    if any(WORKER_DIED in line for line in lines):
        return WORKER_DIED_MEANS
    if any(line.startswith("An exception was thrown from the Python worker") for line in lines):
        text = _told_by_worker(lines)
    elif lines and lines[0].startswith("An error occurred while calling"):
        text = _told_by_java(lines)
    else:
        # Spark's own errors may end with the plan. Python's may begin with a quote, as a plan's lines do.
        plan = ("==", "'", "+-", "JVM")
        said = [line.strip() for place, line in enumerate(lines) if not place or not line.startswith(plan)]
        text = " ".join(said[:4])
    text = text or type(error).__name__
    return text if len(text) <= 1000 else text[:1000] + "…"


def _told_by_worker(lines: list[str]) -> str:
    """The last line of the traceback, and where in the user's function that was."""
    said = [line for line in lines if not line.startswith((" ", "\t", "Traceback"))][-1]
    if ours := _OURS.match(said):
        return said[ours.end() :]
    where = [match for line in lines if (match := _FRAME.match(line))]
    return said + (f" ({where[-1][1]}:{where[-1][2]}, in {where[-1][3]})" if where else "")


def _told_by_java(lines: list[str]) -> str:
    """The exception, and what it was caused by in the first place."""
    said = [_EXCEPTION.sub("", line) for line in lines[1:] if line.startswith((": ", "Caused by: "))]
    return " ".join(dict.fromkeys((said[0], said[-1]))) if said else lines[0]


_DAMAGED = re.compile(rf"{DAMAGED} (\S+)")
_FRAME = re.compile(r'  File "(.+)", line (\d+), in (\S+)')
_OURS = re.compile(r"epochal(\.\w+)+: ")
_EXCEPTION = re.compile(r"^(: |Caused by: )((\w+\.)+\w*(Exception|Error): )?")
