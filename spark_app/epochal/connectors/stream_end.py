"""The end of a stream, as connectors see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from epochal.connectors.connector import Connector
from epochal.protocol.control import StorageConfig
from epochal.runtime.errors import PipelineError

if TYPE_CHECKING:
    from epochal.runtime.dataflow.two_phase_sink import SinkOperator


class StreamEnd:
    """What each connector derives its class from: that has what the connector says of itself, and the methods that it
    adds to a stream. Rows go from the job's store through the driver; executors need none of the clients."""

    _connector: ClassVar[Connector]

    def to(self, name: str, sink: "SinkOperator") -> None:
        """A sink of your own: a :class:`SinkOperator` that implements ``commit``."""
        raise NotImplementedError

    def _store(self) -> StorageConfig:
        """Where the job's epochs are."""
        raise NotImplementedError


@contextmanager
def needs_extra(extra: str, name: str) -> Iterator[None]:
    """Around the import of a sink whose client is optional."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"operator {name!r}: the Python package {error.name!r} is not installed; the driver needs it: "
            f"pip install 'epochal[{extra}]'"
        ) from error


@contextmanager
def named_by(name: str) -> Iterator[None]:
    """Name the operator in what a check says."""
    try:
        yield
    except PipelineError as error:
        raise PipelineError(f"operator {name!r}: {error}") from error
