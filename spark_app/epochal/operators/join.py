"""Interval join: rows of two streams with the same keys whose event times are close.

Rows of an outer side that found no partner come out when none can come any more. Which ones these are is worked out
then, from the rows of both sides that are kept: nothing has to be noted with each match, and nothing can be forgotten
over a restart. For that the other side's rows are kept until the last row that they may have been partners of is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from epochal.operators.bounds import append_on_time, at_least, before
from epochal.operators.definitions import seconds, typed
from epochal.operators.keys import KEY, as_they_came, check_sides, join_key, key_columns, without_nulls
from epochal.runtime.dataflow.operator import MAIN, Batch, BatchStats, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.jvm_columns import Prepared
from epochal.runtime.spark.plan_metrics import micros
from epochal.runtime.state.tables import KeyedTimeTable, Run, union

SIDES = ("left", "right")
LATE_SIDES = ("late_left", "late_right")
"""The ports of rows that came too late: their columns are those of their own side."""
OUTER = {"inner": (False, False), "left": (True, False), "right": (False, True), "full": (True, True)}
"""Whether rows without a partner come out, of the left and of the right side."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntervalJoinOperator(Operator):
    """Joins a left row at time t with right rows at times from t + ``lower`` to t + ``upper`` (microseconds).

    Columns of both sides, the keys once. A row that is older than the watermark is late: it is counted and goes to the
    port of its side, so a row that came out without a partner never gets one.
    """

    takes_changelog: ClassVar[bool] = False

    keys: list[str]
    left_time: str
    right_time: str
    lower: int
    upper: int
    how: str = "inner"

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        left, right = ctx.empty(inputs[0]), ctx.empty(inputs[1])
        check_sides(left, right, self.keys, names=("the left stream", "the right stream"))
        if {self.left_time, self.right_time} & set(self.keys):
            raise PipelineError("an event time cannot be a key of the join: the times need only be close")
        return _IntervalJoin(self, (left, right))


class _IntervalJoin(BoundOperator):
    def __init__(self, spec: IntervalJoinOperator, sides: tuple[DataFrame, DataFrame]) -> None:
        self._keys = spec.keys
        self._times = (spec.left_time, spec.right_time)
        self._time_columns = (F.col(spec.left_time), F.col(spec.right_time))
        lower, upper = self._lower, self._upper = spec.lower, spec.upper
        self._outer = OUTER[spec.how]
        self._key_types = sides[0].schema
        self._waits = (max(upper, 0), max(-lower, 0))
        """How far the watermark must be past a row until no partner can come."""
        self._kept = (
            max(self._waits[0], self._waits[1] + upper if self._outer[1] else 0),
            max(self._waits[1], self._waits[0] - lower if self._outer[0] else 0),
        )
        """How far the watermark must be past a row until it is of no use."""
        distance = micros(self._time_columns[1]) - micros(self._time_columns[0])
        self._close = distance.between(lower, upper)
        fields = [[field for field in side.schema.fields if field.name not in spec.keys] for side in sides]
        self._nothing = [[F.lit(None).cast(one.dataType).alias(one.name) for one in some] for some in fields]
        """Each side's columns where it has no row."""
        names = [[F.col(one.name) for one in some] for some in fields]
        self._inputs = [Prepared([*names[side], join_key(spec.keys, side=side)]) for side in (0, 1)]
        self._output = Prepared([*key_columns(spec.keys), *names[0], *names[1]])
        keyed = [self._keyed(frame, side) for side, frame in enumerate(sides)]
        self._tables = [
            KeyedTimeTable(side, frame.schema, partitioned_by=[KEY]) for side, frame in zip(SIDES, keyed, strict=True)
        ]
        late = dict(zip(LATE_SIDES, (side.schema for side in sides), strict=True))
        super().__init__({MAIN: self._joined(keyed[0], keyed[1]).schema, **late}, self._tables)

    def state_definition(self) -> dict[str, str]:
        outer = [side for side, outer in zip(SIDES, self._outer, strict=True) if outer]
        return {
            "keys": typed(self._keys, self._key_types),
            "times": f"{self._times[1]} from {seconds(self._lower)} to {seconds(self._upper)} after {self._times[0]}",
            "outer": " and ".join(outer) or "none",
        }

    def prepare(self, batch: Batch) -> Run:
        rows = self._keyed(batch.frame, batch.channel).repartition(KEY)
        return self._tables[batch.channel].computed(rows, self._time_columns[batch.channel])

    def process(self, batch: Batch, out: Collector) -> BatchStats:
        channel = batch.channel
        time = self._time_columns[channel]

        def tell_late(late: DataFrame) -> None:
            if out.is_read(LATE_SIDES[channel]):
                out.emit(as_they_came(late, self._keys, batch.frame.columns), LATE_SIDES[channel])

        computed = batch.prepared or self.prepare(batch)
        added, stats = append_on_time(self._tables[channel], computed, time, batch, on_late=tell_late)
        if not added.rows:
            return stats
        since, until = self._partners(channel, added.min_time, added.max_time)
        others = self._tables[1 - channel].read(since=since, until=until)
        if others is not None:
            # The batch is hashed, and the other side's state goes past it.
            hashed = added.frame.hint("shuffle_hash")
            out.emit(self._joined(hashed, others) if channel == 0 else self._joined(others, hashed))
        horizon = None if batch.watermark is None else batch.watermark - self._kept[channel]
        self._tables[channel].merge_small(
            lambda rows: rows if horizon is None else rows.where(at_least(micros(time), horizon)), time
        )
        return stats

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        alone = [
            rows
            for channel in (0, 1)
            if self._outer[channel] and (rows := self._left_alone(channel, watermark, before)) is not None
        ]
        if (rows := union(alone)) is not None:
            out.emit(rows)
        for table, kept in zip(self._tables, self._kept, strict=True):
            table.expire(before=watermark - kept)

    def output_watermark(self, watermark: int) -> int:
        """A row that comes now may join one as old as the oldest that is waited with; the event time that counts
        downstream is the left row's, unless that may be missing."""
        return watermark - (max(self._waits) if all(self._outer) else self._waits[1 if self._outer[1] else 0])

    def _keyed(self, frame: DataFrame, channel: int) -> DataFrame:
        """With the keys as one column. A row without a key or a time has no partner; it counts if its side is outer
        and it has a time."""
        known = without_nulls(frame, [self._times[channel], *(() if self._outer[channel] else self._keys)])
        return self._inputs[channel].select(known)

    def _joined(self, left: DataFrame, right: DataFrame) -> DataFrame:
        return self._output.select(left.join(right, KEY).where(self._close))

    def _left_alone(self, channel: int, watermark: int, last: int | None) -> DataFrame | None:
        """Rows of one side that are done now and have no partner, with nulls for the other side."""
        wait = self._waits[channel]
        until = watermark - wait
        since = None if last is None else last - wait
        rows = self._tables[channel].read(since=since, until=until - 1)
        if rows is None:
            return None
        time = micros(F.col(self._times[channel]))
        done = rows.where(before(time, until) if since is None else before(time, until) & at_least(time, since))
        others = self._possible_partners(1 - channel, *self._partners(channel, since, until))
        if others is not None:
            same = done[KEY] == others[KEY]
            done = done.join(others.hint("shuffle_hash"), same & self._close, "left_anti")
        names = [name for name in done.columns if name != KEY]
        nothing = self._nothing[1 - channel]
        sides = (names, nothing) if channel == 0 else (nothing, names)
        return done.select(*key_columns(self._keys), *sides[0], *sides[1])

    def _possible_partners(self, channel: int, since: int | None, until: int | None) -> DataFrame | None:
        rows = self._tables[channel].read(since=since, until=until)
        if rows is None or since is None:
            return rows
        return rows.where(at_least(micros(F.col(self._times[channel])), since))

    def _partners(self, channel: int, oldest: int | None, newest: int | None) -> tuple[int | None, int | None]:
        """The event times that the other side's partners can have."""
        low, high = (self._lower, self._upper) if channel == 0 else (-self._upper, -self._lower)
        return (None if oldest is None else oldest + low), (None if newest is None else newest + high)
