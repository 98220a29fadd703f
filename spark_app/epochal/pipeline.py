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

from epochal.operators.aggregate import UpdatingAggregateOperator
from epochal.operators.join import IntervalJoinOperator
from epochal.operators.stateless import TransformOperator, UnionOperator
from epochal.operators.window import LATE, START, WindowOperator
from epochal.protocol.control import StorageConfig
from epochal.runtime.durations import Duration, to_micros
from epochal.runtime.errors import PipelineError
from epochal.runtime.graph import Graph, Input, Node
from epochal.runtime.operator import MAIN, Operator, SinkOperator
from epochal.runtime.source import SourceSpec
from epochal.sinks.foreach_epoch import EpochFunction, ForEachEpochSink, console
from epochal.sinks.parquet import ParquetSink

Keys = Sequence[str]


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
        self._storage = storage

    def source(
        self,
        name: str,
        stream: DataFrame,
        *,
        event_time: str | None = None,
        delay: Duration = "0 seconds",
        idle_after: Duration = "30 seconds",
        trigger: Duration | None = None,
        bounded: bool = False,
    ) -> "Stream":
        """Read a stream: any ``p.spark.readStream…`` frame (Kafka, files, rate, a Python data source, …).

        ``event_time`` names its timestamp column; rows may come up to ``delay`` out of order. A source that brings
        nothing for ``idle_after`` does not hold other sources back. ``trigger`` is the time between micro-batches
        (default: as fast as they can be). ``bounded`` reads what is there now and ends: then all windows close.
        """
        if not stream.isStreaming:
            raise PipelineError(f"source {name!r} is no stream: use p.spark.readStream instead of read")
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
            trigger={"availableNow": True} if bounded else how,
            bounded=bounded,
        )
        self.graph.add(Node(name, "source", (), source=spec))
        return Stream(self, Input(name), event_time)


class Stream:
    """Rows on their way from one operator to others."""

    def __init__(self, pipeline: Pipeline, origin: Input, event_time: str | None) -> None:
        self._pipeline = pipeline
        self._origin = origin
        self.event_time = event_time

    # --- without state ---

    def transform(
        self, name: str, function: Callable[[DataFrame], DataFrame], *, event_time: str | None = None
    ) -> "Stream":
        """Any function of a DataFrame, applied to each micro-batch. ``event_time`` if that column has a new name."""
        return self._then(name, "transform", TransformOperator(function), event_time or self.event_time)

    def sql(self, name: str, query: str, *, event_time: str | None = None) -> "Stream":
        """Spark SQL over each micro-batch, which is called ``input`` in it: ``SELECT … FROM {input}``."""

        def run(frame: DataFrame) -> DataFrame:
            return frame.sparkSession.sql(query, input=frame)

        return self.transform(name, run, event_time=event_time)

    def union(self, name: str, *others: "Stream") -> "Stream":
        """This stream and others as one; columns are matched by name."""
        return self._then(name, "union", UnionOperator(), self.event_time, *others)

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
        event_time = self._needs_event_time(name)
        _check_aggregates(name, aggregates)
        length, step = to_micros(size), None if slide is None else to_micros(slide)
        if length <= 0 or (step is not None and not 0 < step <= length):
            raise PipelineError(f"operator {name!r}: a window needs 0 < slide <= size, not {slide} and {size}")
        operator = WindowOperator(
            event_time=event_time, size=length, slide=step, keys=list(keys), aggregates=dict(aggregates)
        )
        stream = self._then(name, "window", operator, START)
        return WindowedStream(self._pipeline, stream._origin, START, late_event_time=event_time)

    def aggregate(self, name: str, *, aggregates: Mapping[str, Column], keys: Keys) -> "Stream":
        """Updating aggregates: after each micro-batch, the new values of all keys that it touched."""
        _check_aggregates(name, aggregates)
        return self._then(
            name, "aggregate", UpdatingAggregateOperator(keys=list(keys), aggregates=dict(aggregates)), None
        )

    def join(self, name: str, other: "Stream", *, keys: Keys, within: Duration | tuple[Duration, Duration]) -> "Stream":
        """Join two streams on ``keys`` where the other's event time is ``within`` so much of this one's: a duration to
        both sides, or (lower, upper), for example ``("0 seconds", "1 hour")`` for "up to an hour after"."""
        left, right = self._needs_event_time(name), other._needs_event_time(name)
        lower, upper = within if isinstance(within, tuple) else (-to_micros(within), within)
        bounds = to_micros(lower), to_micros(upper)
        if bounds[0] > bounds[1]:
            raise PipelineError(f"operator {name!r}: within = ({lower}, {upper}) is empty")
        if not keys:
            raise PipelineError(f"operator {name!r}: a join needs at least one key")
        operator = IntervalJoinOperator(
            keys=list(keys), left_time=left, right_time=right, lower=bounds[0], upper=bounds[1]
        )
        return self._then(name, "join", operator, left, other)

    def apply(self, name: str, operator: Operator, *others: "Stream", event_time: str | None = None) -> "Stream":
        """An :class:`Operator` of your own, with tables of its own."""
        return self._then(name, type(operator).__name__, operator, event_time or self.event_time, *others)

    # --- ends ---

    def to_parquet(self, name: str, uri: str) -> None:
        """Parquet files below ``uri`` (``s3://``, ``file://`` or a path), exactly once."""
        if "://" not in uri:
            from pathlib import Path

            uri = Path(uri).absolute().as_uri()
        self._then(name, "sink", ParquetSink(uri, self._pipeline._storage), None)

    def to_console(self, name: str, *, rows: int = 20) -> None:
        """Print each epoch's rows."""
        self.for_each_epoch(name, console(rows))

    def for_each_epoch(self, name: str, function: EpochFunction) -> None:
        """Call ``function(rows, epoch)`` after each epoch that has rows. Make it idempotent by epoch, and it is exactly
        once."""
        self._then(name, "sink", ForEachEpochSink(function), None)

    def to(self, name: str, sink: SinkOperator) -> None:
        """A two-phase sink of your own."""
        self._then(name, "sink", sink, None)

    # --- inside ---

    def _then(self, name: str, kind: str, operator: Operator, event_time: str | None, *others: "Stream") -> "Stream":
        inputs = (self._origin, *(other._origin for other in others))
        node = Node(name, kind, inputs, operator=operator)
        schema_of = getattr(operator, "schema_of", None)
        if schema_of is not None:
            node.schema_of = schema_of
        self._pipeline.graph.add(node)
        return Stream(self._pipeline, Input(name, MAIN), event_time)

    def _needs_event_time(self, name: str) -> str:
        if self.event_time is None:
            raise PipelineError(
                f"operator {name!r} works on event time, and {self._origin.node!r} has none: "
                "give event_time=… at the source (or where the column got a new name)"
            )
        return self.event_time


class WindowedStream(Stream):
    """The result of windows. ``late`` holds the rows that came after their windows were emitted."""

    def __init__(self, pipeline: Pipeline, origin: Input, event_time: str, *, late_event_time: str) -> None:
        super().__init__(pipeline, origin, event_time)
        self.late = Stream(pipeline, Input(origin.node, LATE), late_event_time)


def _check_columns(name: str, frame: DataFrame, columns: Keys) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise PipelineError(
            f"source {name!r} has no column {', '.join(map(repr, missing))}; it has {', '.join(frame.columns)}"
        )


def _check_aggregates(name: str, aggregates: Mapping[str, Column]) -> None:
    if not aggregates:
        raise PipelineError(f"operator {name!r}: give at least one aggregate, for example {{'orders': F.count('*')}}")
    for key, column in aggregates.items():
        if not isinstance(column, Column):
            raise PipelineError(f"operator {name!r}: aggregate {key!r} must be a Column such as F.sum('amount')")
