"""A function of yours, called with the rows of each epoch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from epochal.connectors.connector import Connector, Promise, TakingBack, Writes
from epochal.connectors.stream_end import StreamEnd, named_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Function(StreamEnd):
    _connector = Connector(
        name="function",
        title="Function",
        writes=Writes(
            method="for_each_epoch",
            promise=Promise(
                guarantee="yours to make: your function may be called twice for an epoch",
                how="[pipelines](pipelines.md#sinks)",
            ),
            taking_back=(TakingBack(how="it is unknown what the function did with the rows"),),
        ),
    )

    def for_each_epoch(self, name: str, function: Callable[["DataFrame", int], None]) -> None:
        """Call ``function(rows, epoch)`` after each epoch that has rows. Make it idempotent by epoch, and it is exactly
        once."""
        from epochal.connectors.function.sink import ForEachEpochSink
        from epochal.runtime.dataflow.sink_contract import check_called

        with named_by(name):
            check_called(function, getattr(function, "__name__", "the function"), "rows", "epoch")
        self.to(name, ForEachEpochSink(function))
