"""What a person who wrote a pipeline is told. Every message names the operator."""


class PipelineError(Exception):
    """The pipeline cannot work, found before anything starts: a bad name, a wrong column, a dangling graph."""


class OperatorError(Exception):
    """An operator failed while the job was running."""

    def __init__(self, operator: str, error: BaseException) -> None:
        super().__init__(f"operator {operator!r} failed: {_told(error)}")
        self.operator = operator
        self.error = error


class UnreadableStateError(Exception):
    """A state object that an epoch names is gone or damaged: the epoch cannot be restored."""


class JobStoppingError(Exception):
    """Raised into a source's batch that came after the last barrier: the batch belongs to nobody."""


def _told(error: BaseException) -> str:
    """The first lines of an error: Spark's messages carry whole stack traces."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = "\n".join(lines[:4]) or type(error).__name__
    return text if len(text) <= 1000 else text[:1000] + "…"
