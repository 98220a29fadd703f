"""Describe a streaming job: sources, transformations, windows, joins and sinks, composed like DataFrames.

    def build(p: Pipeline) -> None:
        orders = p.source("orders", p.spark.readStream.schema(SCHEMA).json(p.parameters["input"]),
                          event_time="ordered_at", delay="10 seconds")
        revenue = orders.window("revenue", size="1 minute", keys=["country"], aggregates={"total": F.sum("amount")})
        revenue.to_parquet("out", p.parameters["output"])

Names are what state is kept by: keep them when the code changes, and the job goes on with its state.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from epochal.connectors.registry import AllConnectors
from epochal.connectors.stream_end import named_by
from epochal.operators.aggregate import UpdatingAggregateOperator
from epochal.operators.apply_in_arrow import ApplyInArrowOperator
from epochal.operators.arguments import (
    check_aggregates,
    check_columns_given,
    check_keys,
    check_n,
    check_one_of,
    positive,
    window_lengths,
)
from epochal.operators.changelog import ChangelogAggregateOperator
from epochal.operators.deduplicate import DeduplicateOperator
from epochal.operators.enrich import FAILED, EnrichOperator, EnrichOptions
from epochal.operators.enrich_rows import OnError
from epochal.operators.join import LATE_SIDES, OUTER, IntervalJoinOperator
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
from epochal.operators.lookup import HOW, LookupOperator, Table
from epochal.operators.panes import END, START
from epochal.operators.session import SessionWindowOperator
from epochal.operators.stateless import REST, SplitOperator, TransformOperator, UnionOperator
from epochal.operators.top_n import RunningTopNOperator, TopNOperator
from epochal.operators.user_functions import (
    checked_state,
    enriching,
    keyed_function,
    output_event_time,
    parsed_schema,
)
from epochal.operators.window import LATE, WindowOperator
from epochal.operators.window_join import WindowJoinOperator
from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.graph import SINK, Graph, Input, Node
from epochal.runtime.dataflow.operator import MAIN, Operator
from epochal.runtime.dataflow.source import SourceSpec
from epochal.runtime.dataflow.two_phase_sink import SinkOperator
from epochal.runtime.durations import Duration, to_micros
from epochal.runtime.errors import PipelineError

__all__ = [
    "EnrichedStream",
    "JoinedStream",
    "KeyContext",
    "KeyedFunction",
    "ListState",
    "MapState",
    "Pipeline",
    "StateSpec",
    "Stream",
    "Timer",
    "ValueState",
    "WindowedStream",
    "list_state",
    "map_state",
    "value_state",
]

Keys = Sequence[str]

KEEPING_TIME = ("transform", "union", "split", "lookup", "enrich", "deduplicate")
"""Kinds of operators after which a column of the same name is the same event time."""


class Pipeline:
    """A job being described. Nothing runs until the description is complete and checked.

    ``spark`` is the session to read sources with; ``parameters`` come from the job's manifest.
    """

    def __init__(
        self, spark: SparkSession, storage: StorageConfig, parameters: Mapping[str, str] | None = None
    ) -> None:
        self.spark = spark
        self.parameters = dict(parameters or {})
        self.graph = Graph()
        self.storage = storage

    def source(
        self,
        name: str,
        stream: DataFrame,
        *,
        event_time: str | None = None,
        delay: Duration = "0 seconds",
        idle_after: Duration = "30 seconds",
        max_ahead: Duration | None = "1 hour",
        trigger: Duration | None = None,
        bounded: bool = False,
    ) -> "Stream":
        """Read a stream: any ``p.spark.readStream…`` frame (Kafka, files, rate, a Python data source, …).

        ``event_time`` names its timestamp column; rows may come up to ``delay`` out of order. A source that brings
        nothing for ``idle_after`` does not hold other sources back. Rows whose time is more than ``max_ahead`` ahead of
        the clock do not move the watermark, and count as late (None: any time is believed). ``trigger`` is the time
        between micro-batches (default: as fast as they can be). ``bounded`` reads what is there now and ends: when all
        sources have ended, all windows close. Run again, the job goes on with what has come since.
        """
        if not stream.isStreaming:
            raise PipelineError(f"source {name!r} is not a stream: use p.spark.readStream instead of read")
        if event_time is not None:
            _check_columns(name, stream, [event_time])
            kind = stream.schema[event_time].dataType.typeName()
            if not kind.startswith("timestamp"):
                raise PipelineError(f"source {name!r}: event time {event_time!r} must be a timestamp, not {kind}")
        how: dict[str, Any] = {
            "processingTime": f"{to_micros(trigger) // 1000} milliseconds" if trigger else "0 seconds"
        }
        spec = SourceSpec(
            read=lambda: stream,
            event_time=event_time,
            delay=to_micros(delay),
            idle_after=to_micros(idle_after) / 1e6,
            max_ahead=None if event_time is None or max_ahead is None else positive(name, "max_ahead", max_ahead),
            trigger={"availableNow": True} if bounded else how,
            bounded=bounded,
        )
        self.graph.add(Node(name, "source", (), spec))
        return Stream(self, Input(name), event_time)


class Stream(AllConnectors):
    """Rows on their way from one operator to others."""

    def __init__(self, pipeline: Pipeline, origin: Input, event_time: str | None, *, changelog: bool = False) -> None:
        self._pipeline = pipeline
        self.origin = origin
        self.event_time = event_time
        self.changelog = changelog

    # --- without state ---

    def transform(
        self, name: str, function: Callable[[DataFrame], DataFrame], *, event_time: str | None = None
    ) -> "Stream":
        """Any function of a DataFrame, applied to each micro-batch. ``event_time`` if that column has a new name."""
        operator = TransformOperator(function)
        return self._then(name, "transform", operator, event_time or self.event_time, changelog=self.changelog)

    def sql(self, name: str, query: str, *, event_time: str | None = None) -> "Stream":
        """Spark SQL over each micro-batch, which is called ``input`` in it: ``SELECT … FROM {input}``."""

        def run(frame: DataFrame) -> DataFrame:
            return frame.sparkSession.sql(query, input=frame)

        return self.transform(name, run, event_time=event_time)

    def union(self, name: str, *others: "Stream") -> "Stream":
        """This stream and others as one; columns are matched by name."""
        return self._then(name, "union", UnionOperator(), self.event_time, *others, changelog=self.changelog)

    def split(self, name: str, condition: Column) -> tuple["Stream", "Stream"]:
        """Two streams: the rows that ``condition`` is true of, and the rest, for example those that are malformed."""
        check_columns_given(name, "condition", [condition])
        matching = self._then(name, "split", SplitOperator(condition), self.event_time, changelog=self.changelog)
        return matching, Stream(self._pipeline, Input(name, REST), self.event_time, changelog=self.changelog)

    def lookup(
        self, name: str, table: Table, *, keys: Keys, how: str = "inner", refresh: Duration | None = None
    ) -> "Stream":
        """Each row with the columns of the row of ``table`` with the same ``keys`` (``how="left"``: with nulls where
        there is none). ``table`` is a DataFrame, or a function of the session that gives one; it is read at the start,
        and again every ``refresh``. If reading it again fails, the rows of last time are used further."""
        check_one_of(name, "how", how, HOW)
        check_keys(name, keys, "a lookup")
        if not isinstance(table, DataFrame) and not callable(table):
            raise PipelineError(
                f"operator {name!r}: table must be a DataFrame or a function of the session, not {type(table).__name__}"
            )
        every = None if refresh is None else positive(name, "refresh", refresh) / 1e6
        operator = LookupOperator(table=table, keys=list(keys), how=how, refresh=every)
        return self._then(name, "lookup", operator, self.event_time, changelog=self.changelog)

    # --- with state ---

    def window(
        self,
        name: str,
        *,
        size: Duration,
        aggregates: Mapping[str, Column],
        slide: Duration | None = None,
        keys: Keys = (),
    ) -> "WindowedStream":
        """Tumbling windows (or sliding ones, every ``slide``) of event time, one row per window and key when the window
        is over: ``window_start``, ``window_end``, the keys, and the named aggregates. Late rows are on ``.late``."""
        event_time = self.event_time_for(name)
        check_aggregates(name, aggregates)
        length, step = window_lengths(name, size, slide)
        operator = WindowOperator(
            event_time=event_time, size=length, slide=step, keys=list(keys), aggregates=dict(aggregates)
        )
        stream = self._then(name, "window", operator, START)
        return WindowedStream(self._pipeline, stream.origin, START, late_event_time=event_time)

    def aggregate(
        self,
        name: str,
        *,
        aggregates: Mapping[str, Column],
        keys: Keys,
        retractions: bool = False,
        changelog: bool | None = None,
    ) -> "Stream":
        """Updating aggregates: after each micro-batch, the new values of all keys that it touched.

        With ``retractions`` the result is a changelog: a column ``row_kind`` says of each row whether it is new
        (``+I``), takes back what was said before (``-U``), brings the new values (``+U``) or takes them back for good
        (``-D``). Another aggregate over such a stream takes them as such; of a changelog from elsewhere say
        ``changelog=True``.
        """
        check_aggregates(name, aggregates)
        reads_changelog = self.changelog if changelog is None else changelog
        operator: Operator
        if reads_changelog or retractions:
            operator = ChangelogAggregateOperator(
                keys=list(keys), aggregates=dict(aggregates), changelog=reads_changelog, retractions=retractions
            )
        else:
            operator = UpdatingAggregateOperator(keys=list(keys), aggregates=dict(aggregates))
        return self._then(name, "aggregate", operator, None, changelog=retractions)

    def session_window(
        self, name: str, *, gap: Duration, aggregates: Mapping[str, Column], keys: Keys = ()
    ) -> "WindowedStream":
        """Sessions of event time: rows of the same keys, none more than ``gap`` after the one before. One row per
        session when it is over: ``window_start`` (its first row), ``window_end`` (its last row and ``gap``), the keys
        and the aggregates. Late rows are on ``.late``. Event time goes on as ``window_end``."""
        event_time = self.event_time_for(name)
        check_aggregates(name, aggregates)
        operator = SessionWindowOperator(
            event_time=event_time,
            gap=positive(name, "gap", gap),
            keys=list(keys),
            aggregates=dict(aggregates),
        )
        stream = self._then(name, "session_window", operator, END)
        return WindowedStream(self._pipeline, stream.origin, END, late_event_time=event_time)

    def join(
        self,
        name: str,
        other: "Stream",
        *,
        keys: Keys,
        within: Duration | tuple[Duration, Duration],
        how: str = "inner",
    ) -> "JoinedStream":
        """Join two streams on ``keys`` where the other's event time is ``within`` so much of this one's: a duration to
        both sides, or (lower, upper), for example ``("0 seconds", "1 hour")`` for "up to an hour after". ``how`` is
        inner, left, right or full: rows without a partner come out when none can come any more. Late rows are on
        ``.late``: a pair, those of this stream and those of the other.

        Event time goes on as this stream's, after a right join as the other's; after a full join neither is always
        there: make one column of both and name it with ``transform(…, event_time=…)``."""
        left, right = self.event_time_for(name), other.event_time_for(name)
        lower, upper = within if isinstance(within, tuple) else (-to_micros(within) / 1e6, within)
        bounds = to_micros(lower), to_micros(upper)
        if bounds[0] > bounds[1]:
            raise PipelineError(f"operator {name!r}: within = ({lower}, {upper}) is empty")
        check_keys(name, keys, "a join")
        check_one_of(name, "how", how, OUTER)
        operator = IntervalJoinOperator(
            keys=list(keys), left_time=left, right_time=right, lower=bounds[0], upper=bounds[1], how=how
        )
        origin = self._then(name, "join", operator, None, other).origin
        event_time = {"right": right, "full": None}.get(how, left)
        return JoinedStream(self._pipeline, origin, event_time, late_event_times=(left, right))

    def window_join(
        self,
        name: str,
        other: "Stream",
        *,
        size: Duration,
        keys: Keys,
        slide: Duration | None = None,
        how: str = "inner",
    ) -> "JoinedStream":
        """Join the rows of two streams with the same ``keys`` in the same window (tumbling, or sliding every
        ``slide``), when the window is over: ``window_start``, ``window_end``, the keys, and the columns of both sides.
        ``how`` is inner, left, right or full. Late rows are on ``.late``, as a pair. Event time goes on as
        ``window_start``."""
        times = self.event_time_for(name), other.event_time_for(name)
        length, step = window_lengths(name, size, slide)
        check_keys(name, keys, "a join")
        check_one_of(name, "how", how, OUTER)
        operator = WindowJoinOperator(event_times=times, size=length, slide=step, keys=list(keys), how=how)
        origin = self._then(name, "window_join", operator, START, other).origin
        return JoinedStream(self._pipeline, origin, START, late_event_times=times)

    def deduplicate(self, name: str, *, keys: Keys, within: Duration | None = None) -> "Stream":
        """Of rows with the same ``keys`` only the first, at once: in one micro-batch that of the oldest event time.

        A key is forgotten when the watermark has passed the row that came out by ``within``: give the longest time
        that may lie between the event times of two copies (default: none, they are the same). Rows that are older than
        the watermark are late, and dropped."""
        event_time = self.event_time_for(name)
        check_keys(name, keys, "a deduplication")
        kept = 0 if within is None else to_micros(within)
        if kept < 0:
            raise PipelineError(f"operator {name!r}: within must not be negative, but is {within}")
        return self._then(
            name,
            "deduplicate",
            DeduplicateOperator(event_time=event_time, keys=list(keys), within=kept),
            self.event_time,
        )

    def top_n(self, name: str, *, n: int, order_by: Sequence[Column], per: Keys = ()) -> "Stream":
        """The first ``n`` rows of each event time (and of each value of the ``per`` columns), in the given order and
        with their ``rank``, when the watermark has passed that time. Made for the output of windows, all of whose rows
        have their window's beginning as event time: then these are the first of each window."""
        event_time = self.event_time_for(name)
        check_n(name, n)
        check_columns_given(name, "order_by", order_by)
        operator = TopNOperator(event_time=event_time, n=n, order_by=list(order_by), per=list(per))
        return self._then(name, "top_n", operator, event_time)

    def running_top_n(self, name: str, *, n: int, order_by: Sequence[Column], keys: Keys) -> "Stream":
        """The first ``n`` rows of each of ``keys`` over the whole stream. After each micro-batch, the groups that it
        changed come out whole, with ``rank``."""
        check_n(name, n)
        check_columns_given(name, "order_by", order_by)
        operator = RunningTopNOperator(n=n, order_by=list(order_by), keys=list(keys))
        return self._then(name, "running_top_n", operator, None)

    def apply_in_arrow(
        self,
        name: str,
        function: KeyedFunction | type[KeyedFunction] | Callable[..., Any],
        *,
        keys: Keys,
        schema: str | StructType,
        state: Mapping[str, StateSpec] | None = None,
        on_timer: Callable[..., Any] | None = None,
        event_time: str | None = None,
    ) -> "Stream":
        """Your own Python for each key, with state and timers: a :class:`KeyedFunction`, or a function of
        ``(key, rows, ctx)`` and perhaps an ``on_timer`` of ``(key, timer, ctx)``. ``rows`` is a ``pyarrow.Table``;
        yield tables, record batches or dicts of ``schema``. See docs/stateful-functions.md."""
        with named_by(name):
            if not keys:
                raise PipelineError("give at least one key: state and timers are kept by key")
            output = parsed_schema(schema, "schema")
            operator = ApplyInArrowOperator(
                keyed_function(function, on_timer),
                keys=list(keys),
                schema=output,
                state=checked_state(state or {}),
                event_time=self.event_time,
            )
            return self._then(name, "apply_in_arrow", operator, output_event_time(output, event_time, self.event_time))

    def enrich_async(
        self,
        name: str,
        function: Any,
        *,
        schema: str | StructType,
        concurrency: int = 16,
        timeout: Duration = "10 seconds",
        retries: int = 2,
        retry_delay: Duration = "100 ms",
        ordered: bool = True,
        on_error: OnError = "fail",
    ) -> "EnrichedStream":
        """Ask somebody else about each row: ``function(row)``, async or plain, gets the row as a dict and gives a dict
        of the columns of ``schema``, which are added. Up to ``concurrency`` calls at a time in each executor's task.

        A call that fails or takes longer than ``timeout`` is made again, up to ``retries`` times, after ``retry_delay``
        and twice that each time. Then ``on_error`` says what becomes of the row: ``"fail"`` the job, ``"null"`` in the
        new columns, ``"drop"`` the row, or ``"side"``: the row goes to ``.failed`` with the column ``error``.
        """
        with named_by(name):
            options = EnrichOptions(
                concurrency=concurrency,
                timeout=to_micros(timeout) / 1e6,
                retries=retries,
                retry_delay=to_micros(retry_delay) / 1e6,
                ordered=ordered,
                on_error=on_error,
            )
            options.check()
            operator = EnrichOperator(enriching(function), schema=parsed_schema(schema, "schema"), options=options)
            origin = self._then(name, "enrich", operator, self.event_time).origin
        return EnrichedStream(self._pipeline, origin, self.event_time, changelog=self.changelog)

    def apply(self, name: str, operator: Operator, *others: "Stream", event_time: str | None = None) -> "Stream":
        """An :class:`Operator` of your own, with tables of its own."""
        return self._then(name, type(operator).__name__, operator, event_time or self.event_time, *others)

    # --- ends ---

    def to(self, name: str, sink: SinkOperator) -> None:
        """A sink of your own: a :class:`SinkOperator` that implements ``commit``."""
        self._then(name, SINK, sink, None)

    # --- inside ---

    def _store(self) -> StorageConfig:
        return self._pipeline.storage

    def _then(
        self,
        name: str,
        kind: str,
        operator: Operator,
        event_time: str | None,
        *others: "Stream",
        changelog: bool = False,
    ) -> "Stream":
        inputs = (self.origin, *(other.origin for other in others))
        same = event_time is not None and event_time == self.event_time
        node = Node(name, kind, inputs, operator, keeps_time=same and kind in KEEPING_TIME)
        self._pipeline.graph.add(node)
        return Stream(self._pipeline, Input(name, MAIN), event_time, changelog=changelog)

    def event_time_for(self, name: str) -> str:
        """The column with the event time, for the operator ``name``, which cannot work without one."""
        if self.event_time is None:
            raise PipelineError(
                f"operator {name!r} works on event time, and {self.origin.node!r} has none: "
                "give event_time=… at the source (or where the column got a new name)"
            )
        untimed = self._pipeline.graph.untimed_sources(self.origin.node)
        if untimed:
            raise PipelineError(
                f"operator {name!r} waits for a watermark, and its input {self.origin.node!r} can never have one: "
                f"rows come from source {', '.join(map(repr, untimed))}, which has no event time. Watermarks begin at "
                "sources: make the column there (p.spark.readStream….withColumn(…)) and give event_time=… to p.source"
            )
        return self.event_time


class WindowedStream(Stream):
    """The result of windows. ``late`` holds the rows that came after their windows were emitted."""

    def __init__(self, pipeline: Pipeline, origin: Input, event_time: str, *, late_event_time: str) -> None:
        super().__init__(pipeline, origin, event_time)
        self.late = Stream(pipeline, Input(origin.node, LATE), late_event_time)


class JoinedStream(Stream):
    """The rows of two streams. ``late`` holds those of the left one and those of the right one that came too late to be
    joined, each with its own columns."""

    def __init__(
        self, pipeline: Pipeline, origin: Input, event_time: str | None, *, late_event_times: tuple[str, str]
    ) -> None:
        super().__init__(pipeline, origin, event_time)
        left, right = (
            Stream(pipeline, Input(origin.node, port), time)
            for port, time in zip(LATE_SIDES, late_event_times, strict=True)
        )
        self.late = left, right


class EnrichedStream(Stream):
    """Rows with what was learnt about them. ``failed`` holds those of which nothing could be learnt, and why, where
    ``on_error`` is ``"side"``."""

    def __init__(self, pipeline: Pipeline, origin: Input, event_time: str | None, *, changelog: bool = False) -> None:
        super().__init__(pipeline, origin, event_time, changelog=changelog)
        self.failed = Stream(pipeline, Input(origin.node, FAILED), event_time, changelog=changelog)


def _check_columns(name: str, frame: DataFrame, columns: Keys) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise PipelineError(
            f"source {name!r} has no column {', '.join(map(repr, missing))}; it has {', '.join(frame.columns)}"
        )
