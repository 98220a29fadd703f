"""What a sink must be, looked at while the pipeline is described: after an epoch is published it would be too late."""

import inspect
from typing import Any

from epochal.runtime.dataflow.operator import BoundOperator
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.errors import PipelineError

_HOOKS = {"open": ("ctx",), "encode": ("frame",), "commit": ("epoch", "frame", "objects", "ctx")}
"""The methods that a sink may implement, and what they are called with."""
_TAKING_BACK = {"take_back": ("after", "ctx")}
_RUNTIMES = ("bind", *(name for name in vars(BoundOperator) if not name.startswith("_")))
"""The methods of an operator that are no sink's to have: by them the runtime holds the rows."""


def check_sink(sink: object) -> None:
    """Refuse what could not commit, or could lose what it was given."""
    kind = type(sink).__name__
    if not isinstance(sink, SinkOperator):
        raise PipelineError(
            f"{_told(sink)} is not a sink: derive the class from epochal.SinkOperator and implement "
            "commit(self, epoch, frame, objects, ctx), or use for_each_epoch with a function of (rows, epoch)"
        )
    if type(sink).commit is SinkOperator.commit:
        raise PipelineError(f"{kind} has no method commit(self, epoch, frame, objects, ctx): implement it")
    for name in _RUNTIMES:
        if name in vars(sink) or inspect.getattr_static(type(sink), name, None) is not _inherited(name):
            raise PipelineError(
                f"{kind} has a {name} of its own, which would go around what holds a sink's rows until they are "
                "committed: put what starts it into open(self, ctx), what changes rows into encode(self, frame), and "
                "what writes them into commit(self, epoch, frame, objects, ctx)"
            )
    hooks = _HOOKS | _TAKING_BACK if sink.can_take_back else _HOOKS
    for name, arguments in hooks.items():
        check_called(getattr(sink, name), f"{kind}.{name}", *arguments)
    if sink.can_take_back and type(sink).take_back is SinkOperator.take_back:
        raise PipelineError(f"{kind} sets can_take_back but has no method take_back(self, after, ctx): implement it")


def check_called(function: Any, called: str, *arguments: str) -> None:
    """See that a call with these arguments does what the function says."""
    if not callable(function):
        raise PipelineError(f"{called} must be a function of ({', '.join(arguments)}), not a {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(inspect.unwrap(function)):
        raise PipelineError(
            f"{called} is async or a generator, so calling it would do nothing: make it a plain function"
        )
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        raise PipelineError(f"{called} must take {len(arguments)} arguments: {', '.join(arguments)}") from None
    except ValueError:  # one written in C may not say what it takes
        return


def _inherited(name: str) -> object:
    return inspect.getattr_static(SinkOperator, name, None)


def _told(value: object) -> str:
    return f"the class {value.__name__}" if inspect.isclass(value) else f"a {type(value).__name__}"
