"""Epochal: checkpoints for PySpark streaming that are separate from micro-batches.

What is listed here is the public API. Names are looked up when they are used: the operator and the command line's small
commands install without Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from epochal.version import __version__

if TYPE_CHECKING:
    from epochal.api.pipeline import EnrichedStream, JoinedStream, Pipeline, Stream, WindowedStream
    from epochal.operators.keyed_state import (
        KeyContext,
        KeyedFunction,
        ListState,
        MapState,
        StateSpec,
        Timer,
        ValueState,
        list_state,
        map_state,
        value_state,
    )
    from epochal.protocol.barrier import CheckpointBarrier
    from epochal.runtime.dataflow.operator import (
        MAIN,
        Batch,
        BatchStats,
        BindContext,
        BoundOperator,
        Collector,
        Operator,
        OperatorContext,
    )
    from epochal.runtime.dataflow.two_phase_sink import SinkOperator
    from epochal.runtime.errors import PipelineError
    from epochal.runtime.state.latest_table import LatestTable
    from epochal.runtime.state.tables import GlobalTable, KeyedTimeTable

_HOMES = {
    "epochal.api.pipeline": ("EnrichedStream", "JoinedStream", "Pipeline", "Stream", "WindowedStream"),
    "epochal.operators.keyed_state": (
        "KeyContext",
        "KeyedFunction",
        "ListState",
        "MapState",
        "StateSpec",
        "Timer",
        "ValueState",
        "list_state",
        "map_state",
        "value_state",
    ),
    "epochal.protocol.barrier": ("CheckpointBarrier",),
    "epochal.runtime.dataflow.operator": (
        "MAIN",
        "Batch",
        "BatchStats",
        "BindContext",
        "BoundOperator",
        "Collector",
        "Operator",
        "OperatorContext",
    ),
    "epochal.runtime.dataflow.two_phase_sink": ("SinkOperator",),
    "epochal.runtime.errors": ("PipelineError",),
    "epochal.runtime.state.latest_table": ("LatestTable",),
    "epochal.runtime.state.tables": ("GlobalTable", "KeyedTimeTable"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "MAIN",
    "Batch",
    "BatchStats",
    "BindContext",
    "BoundOperator",
    "CheckpointBarrier",
    "Collector",
    "EnrichedStream",
    "GlobalTable",
    "JoinedStream",
    "KeyContext",
    "KeyedFunction",
    "KeyedTimeTable",
    "LatestTable",
    "ListState",
    "MapState",
    "Operator",
    "OperatorContext",
    "Pipeline",
    "PipelineError",
    "SinkOperator",
    "StateSpec",
    "Stream",
    "Timer",
    "ValueState",
    "WindowedStream",
    "__version__",
    "list_state",
    "map_state",
    "value_state",
]


if not TYPE_CHECKING:  # a checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'epochal' has no attribute {name!r}")
        return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
