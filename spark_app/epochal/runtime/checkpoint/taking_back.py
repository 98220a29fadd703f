"""Sinks remove what they have committed of epochs that are left behind, before anything else is done with them."""

import logging
from collections.abc import Callable, Mapping

from epochal.protocol.going_back import plan, refusal
from epochal.protocol.resolve import LeftBehind
from epochal.runtime.dataflow.graph import Graph
from epochal.runtime.dataflow.task import Task
from epochal.runtime.dataflow.two_phase_sink import BoundSink, SinkOperator
from epochal.runtime.errors import OperatorError, OutsideError, PipelineError, WouldRepeatError

logger = logging.getLogger(__name__)


def abilities(graph: Graph) -> dict[str, str | None]:
    """The sinks of a pipeline: why each cannot take back what it has committed; None of one that can."""
    return {
        name: _why_not(node.operator) for name, node in graph.nodes.items() if isinstance(node.operator, SinkOperator)
    }


def take_back(
    left: LeftBehind,
    tasks: Mapping[str, Task],
    could: Mapping[str, str | None],
    say: Callable[[str], None],
    *,
    repeat: bool,
) -> None:
    """Called when sinks are open. Done again after a crash, it ends in the same place.

    1. See that the sinks that ``could`` still can: some know only now. If one cannot, and the spec has not chosen to
       ``repeat``, that is an :class:`WouldRepeatError`, and nothing is removed.
    2. Say what is about to happen.
    3. Each sink that can removes what is newer than the restored epoch.
    """
    # Step 1
    sinks = {task.name: task.operator.sink for task in tasks.values() if isinstance(task.operator, BoundSink)}
    can = {name: _why_not(sink) for name, sink in sinks.items()}
    no_more = {name: why for name, why in can.items() if could.get(name) is None}
    if not repeat and (why := refusal(left, no_more)):
        raise WouldRepeatError(why)
    # Step 2
    said = plan(left, can)
    say(said)
    logger.warning("Going back: %s", said)
    # Step 3
    for name, sink in sinks.items():
        if can[name] is None:
            _take_back(sink, left, tasks[name], repeat=repeat)


def _take_back(sink: SinkOperator, left: LeftBehind, task: Task, *, repeat: bool) -> None:
    try:
        with task.users_code():
            epochs = sink.take_back(left.restored, task.context)
    except OutsideError as error:  # somebody has to let it
        raise OperatorError(task.name, error) from error
    except PipelineError as error:  # it cannot, and knows only now
        if not repeat:
            raise WouldRepeatError(refusal(left, {task.name: str(error)}) or str(error)) from error
        logger.warning("Sink %s cannot take output back and gets rows a second time: %s", task.name, error)
    except Exception as error:
        raise OperatorError(task.name, error) from error
    else:
        logger.warning("Sink %s has taken back %d epochs", task.name, epochs)


def _why_not(sink: SinkOperator) -> str | None:
    return None if sink.can_take_back else sink.why_not_taken_back
