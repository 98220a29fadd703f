"""Users' functions that run inside executors, checked while the pipeline is described."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from epochal.operators.apply_in_arrow import state_type
from epochal.operators.keyed_rows import PlainFunction
from epochal.operators.keyed_state import KeyedFunction, StateSpec
from epochal.runtime.errors import PipelineError, summarize_error


def keyed_function(function: Any, on_timer: Callable[..., Any] | None) -> KeyedFunction | type[KeyedFunction]:
    """What the user gave, as a :class:`KeyedFunction`: a class of these, one of them, or a plain function."""
    is_class = inspect.isclass(function)
    if (is_class and issubclass(function, KeyedFunction)) or isinstance(function, KeyedFunction):
        kind = function if is_class else type(function)
        if on_timer is not None:
            raise PipelineError(f"on_timer= goes with a plain function: {kind.__name__} has a method on_timer")
        if kind.process is KeyedFunction.process:
            raise PipelineError(f"{kind.__name__} has no method process(self, key, rows, ctx)")
        if is_class:
            check_constructor(function)
        check_sendable(function)
        keyed: KeyedFunction | type[KeyedFunction] = function
        return keyed
    if is_class or not callable(function):
        what = f"the class {function.__name__}" if is_class else f"a {type(function).__name__}"
        raise PipelineError(f"give a KeyedFunction or a function of (key, rows, ctx), not {what}")
    check_arguments(function, "key", "rows", "ctx")
    if on_timer is not None:
        check_arguments(on_timer, "key", "timer", "ctx")
    check_sendable(function, on_timer)
    return PlainFunction(function, on_timer)


def enriching(function: Any) -> Any:
    """What the user gave to enrich rows with: a function of a row, or a class or object that can be called so."""
    if inspect.isclass(function):
        check_constructor(function)
        if "__call__" not in vars(function) and not any("__call__" in vars(base) for base in function.__mro__[:-1]):
            raise PipelineError(f"{function.__name__} has no method __call__(self, row)")
    elif not callable(function):
        raise PipelineError(f"give a function of (row), not a {type(function).__name__}")
    else:
        check_arguments(function, "row")
    check_sendable(function)
    return function


def check_constructor(kind: type) -> None:
    try:
        inspect.signature(kind).bind()
    except TypeError:
        raise PipelineError(
            f"{kind.__name__} cannot be made without arguments in an executor: give an instance, {kind.__name__}(…)"
        ) from None


def check_arguments(function: Callable[..., Any], *names: str) -> None:
    called = getattr(function, "__name__", type(function).__name__)
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        raise PipelineError(f"{called} must take {len(names)} arguments: {', '.join(names)}") from None


def check_sendable(*functions: Any) -> None:
    """Whether executors can get it. Spark would tell at the first batch, and not which function."""
    for function in functions:
        try:
            cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise PipelineError(
                f"{name} cannot be sent to executors: {summarize_error(error)} "
                "(make sessions, connections and locks inside of it)"
            ) from None


def parsed_schema(schema: str | StructType, what: str) -> StructType:
    try:
        parsed = schema if isinstance(schema, StructType) else DataType.fromDDL(schema)
    except Exception as error:
        raise PipelineError(f"{what} {schema!r} is not a schema: {summarize_error(error)}") from None
    if not isinstance(parsed, StructType) or not parsed.names:
        raise PipelineError(f"{what} has no columns: write for example 'user string, orders long'")
    twice = sorted({name for name in parsed.names if parsed.names.count(name) > 1})
    if twice:
        raise PipelineError(f"{what} has the columns {', '.join(map(repr, twice))} more than once")
    return parsed


def checked_state(state: Mapping[str, StateSpec]) -> dict[str, StateSpec]:
    for name, spec in state.items():
        if not name.isidentifier():
            raise PipelineError(f"state {name!r}: use letters, digits and _ for its name")
        if not isinstance(spec, StateSpec):
            raise PipelineError(f"state {name!r} must be a value_state(…), list_state(…) or map_state(…)")
        try:
            state_type(spec)
        except Exception as error:
            raise PipelineError(f"state {name!r}: {summarize_error(error)}") from None
        if spec.key is not None and not _can_be_key(spec.key):
            raise PipelineError(f"state {name!r}: a map's keys must be plain values, not {spec.key}")
    return dict(state)


def _can_be_key(kind: str) -> bool:
    return not isinstance(DataType.fromDDL(kind), ArrayType | MapType | StructType)


def output_event_time(schema: StructType, given: str | None, inherited: str | None) -> str | None:
    """The event time of what comes out: the column that is named, or the input's if it is still there."""
    name = given or inherited
    if name is None or (given is None and name not in schema.names):
        return None
    if name not in schema.names:
        raise PipelineError(f"event time {name!r} is not in the schema, which has {', '.join(schema.names)}")
    kind = schema[name].dataType.typeName()
    if not kind.startswith("timestamp"):
        if given is None:
            return None
        raise PipelineError(f"event time {name!r} must be a timestamp, not {kind}")
    return name
