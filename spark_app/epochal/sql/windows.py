"""Windows of event time: ``TUMBLE``, ``HOP`` and ``SESSION``, as they are written."""

from dataclasses import replace

from sqlglot import exp

from epochal.connectors.declared_table import quoted
from epochal.sql.context import Context, Path
from epochal.sql.dialect import WindowCall, micros_of
from epochal.sql.errors import RefusedError
from epochal.sql.plan import SelectStep
from epochal.sql.relations import END, START, TIME, Relation, Scope, WindowSpec


def group_window(call: WindowCall, relation: Relation, scope: Scope) -> WindowSpec:
    """``TUMBLE(ts, size)``, ``HOP(ts, slide, size)`` or ``SESSION(ts, gap)`` in GROUP BY."""
    arguments = call.expressions
    if not arguments or not isinstance(arguments[0], exp.Column):
        raise RefusedError(call, f"write {call.name}(ts, …) with the event time column first")
    return window_spec(call, relation, scope.resolve(arguments[0]).name, arguments[0], arguments[1:])


def window_spec(
    call: WindowCall,
    relation: Relation,
    time: str,
    at: exp.Expr,
    durations: list[exp.Expr],
    partition_by: tuple[str, ...] = (),
) -> WindowSpec:
    if call.name == "CUMULATE":
        raise RefusedError(at, "CUMULATE is not there: write TUMBLE for whole windows, or HOP for steps within them")
    if relation.updating:
        raise RefusedError(at, f"a result that changes ({relation.updating}) has no windows: put the window before it")
    if time not in relation.times:
        known = (
            f"its event time is {' or '.join(relation.times)}"
            if relation.times
            else "it has none: declare WATERMARK FOR … in CREATE TABLE, and select the column in views"
        )
        raise RefusedError(at, f"windows go by event time, and {time} is not the event time of this input; {known}")
    wanted = 2 if call.name == "HOP" else 1
    if len(durations) != wanted:
        example = {
            "TUMBLE": "INTERVAL '1' MINUTE",
            "HOP": "INTERVAL '10' SECOND (every), INTERVAL '1' MINUTE (size)",
            "SESSION": "INTERVAL '5' MINUTE",
        }
        raise RefusedError(
            call if call.expressions else at,
            f"{call.name} takes {wanted} interval{'s' if wanted > 1 else ''} after the column: {example[call.name]}",
        )
    lengths = [micros_of(duration, call) for duration in durations]
    size, slide = lengths[-1], lengths[0] if call.name == "HOP" else None
    if size <= 0 or (slide is not None and not 0 < slide <= size):
        raise RefusedError(
            durations[0],
            "a window needs 0 < slide <= size: HOP takes the slide first, then the size"
            if slide is not None
            else "a window must be longer than nothing",
        )
    return WindowSpec(kind=call.name, time=time, size=size, slide=slide, partition_by=partition_by)


def in_windows(ctx: Context, relation: Relation, path: Path, at: exp.Expr) -> Relation:
    """Rows of a window function that nobody groups: each with its window's bounds, which needs no state."""
    spec = relation.window
    if spec is None:
        return relation
    if spec.kind == "SESSION":
        raise RefusedError(
            at.expressions[0],
            "which session a row is in is known when the session is over: GROUP BY window_start, window_end",
        )
    slide = spec.slide or spec.size
    time = f"unix_micros({quoted(spec.time)})"
    last = f"{time} - pmod({time}, {slide})"
    start = (
        last
        if spec.slide is None
        # As many as have the row in them: one more or one less where the slide does not divide the size.
        else f"explode(sequence({last}, {time} - {spec.size - 1}, -{slide}))"
    )
    plain = tuple((name, quoted(name)) for name in relation.columns)
    bounds = (
        (START, "timestamp_micros(`__start`)"),
        (END, f"timestamp_micros(`__start` + {spec.size})"),
        (TIME, f"timestamp_micros(`__start` + {spec.size - 1000})"),
    )
    # A row's window ends after the row: no row of a window comes once the watermark has passed its end.
    relation = replace(relation, window=None)
    begun = ctx.transformed(relation, path, "window-start", SelectStep(columns=(*plain, ("__start", start))), at)
    whole = ctx.transformed(begun, path, "windows", SelectStep(columns=(*plain, *bounds)), at)
    return replace(whole, times=(*whole.times, END))
