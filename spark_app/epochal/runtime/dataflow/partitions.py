"""Event times of a Kafka source, partition by partition: one that lags behind holds the watermark back, so its rows are
not late; one that brings nothing for long does not.

What a job reads has usually lost the columns that say where a record comes from. So they are carried along, from
Spark's Kafka source up through the plan, under names of their own, until the batch's times are known.
"""

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.runtime.spark.plan_metrics import PlanMetrics, micros
from epochal.runtime.spark.stream_plans import HiddenKafka, with_kafka_columns

TOPIC, NUMBER = "__epochal_topic", "__epochal_partition"

FEW = 8
"""Up to so many the times are computed on the way, with one aggregate each: with 64, every row would cost seven times
as much as with one. Of more, the batch is held and grouped."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    topic: str
    number: int


def with_partition(name: str, frame: DataFrame) -> DataFrame | None:
    """The frame of the source ``name`` with two more columns, if it reads from Kafka and nothing else."""
    marked = with_kafka_columns(frame, {TOPIC: "topic", NUMBER: "partition"})
    if isinstance(marked, HiddenKafka):
        logger.info("Source %s: one watermark for all partitions that it reads: %s hides them", name, marked.by)
        return None
    return marked


def offsets(text: str) -> dict[Partition, int]:
    """Offsets of Kafka's, as Spark writes them."""
    topics: dict[str, dict[str, int]] = json.loads(text)
    return {Partition(topic, int(number)): offset for topic, of in topics.items() for number, offset in of.items()}


def ends_of_batch(directory: Path, batch: int) -> dict[Partition, int]:
    """Where a batch ends in each partition that there is. Spark writes it down before the batch begins."""
    return offsets((directory / "offsets" / str(batch)).read_text().split("\n")[2])


class Partitions:
    """The newest event time of each partition, and when it brought one. Times of the clock are monotonic seconds."""

    def __init__(self, event_time: str, *, idle_after: float, bounded: bool) -> None:
        self._event_time = event_time
        self._idle_after = idle_after
        self._bounded = bounded
        self._newest: dict[Partition, int | None] = {}
        self._last: dict[Partition, float] = {}
        self._metrics: PlanMetrics | None = None

    def know(self, known: Iterable[Partition], looked: float) -> None:
        """Spark has looked: these are all that there are. One that is new may have rows any moment."""
        found = sorted(known)
        if found != list(self._newest):
            self._metrics = None
        self._newest = {one: self._newest.get(one) for one in found}
        self._last = {one: self._last.get(one, looked) for one in found}

    @property
    def several(self) -> bool:
        return len(self._newest) > 1

    @property
    def many(self) -> bool:
        return len(self._newest) > FEW

    @property
    def metrics(self) -> PlanMetrics:
        """Of a batch, for those that are known and few."""
        if self._metrics is None:
            time = micros(F.col(self._event_time))
            each = {f"newest_{place}": F.max(F.when(self._is(one), time)) for place, one in enumerate(self._newest)}
            self._metrics = PlanMetrics({"rows": F.count(F.lit(1)), **each})
        return self._metrics

    def _is(self, one: Partition) -> Column:
        number = F.col(NUMBER) == one.number
        topics = {other.topic for other in self._newest}
        return number if len(topics) == 1 else number & (F.col(TOPIC) == one.topic)

    def times(self, seen: dict[str, Any]) -> dict[Partition, int]:
        """The newest times among a batch's metrics."""
        found = {one: seen.get(f"newest_{place}") for place, one in enumerate(self._newest)}
        return {one: time for one, time in found.items() if time is not None}

    def grouped(self, held: DataFrame, latest: int | None) -> dict[Partition, int]:
        """The newest times of a batch that is held, up to the ``latest`` that counts: by a job of their own, which
        costs the same for any number of partitions."""
        time = micros(F.col(self._event_time))
        counted = held.where(time.isNotNull() if latest is None else time <= latest)
        rows = counted.groupBy(TOPIC, NUMBER).agg(F.max(time)).collect()
        return {Partition(topic, number): newest for topic, number, newest in rows}

    def note(self, times: Mapping[Partition, int], now: float) -> None:
        """A batch had these newest times. One that is not known (any more) holds nobody back."""
        for one, time in times.items():
            if one in self._newest:
                before = self._newest[one]
                self._newest[one] = time if before is None else max(before, time)
                self._last[one] = now

    def newest(self, looked: float, unread: Collection[Partition] | None) -> int | None:
        """The newest time that all have come to which are not idle; None if one has not come to any yet.

        Idle is who had brought nothing for long when Spark looked last. ``unread``: those with records that Spark has
        not come to (None: nobody knows yet); of a bounded source, all others have ended."""
        active = [time for one, time in self._newest.items() if not self._is_idle(one, looked, unread)]
        if not active:
            return max((time for time in self._newest.values() if time is not None), default=None)
        known = [time for time in active if time is not None]
        return min(known) if len(known) == len(active) else None

    def _is_idle(self, one: Partition, looked: float, unread: Collection[Partition] | None) -> bool:
        if self._bounded:
            return unread is not None and one not in unread
        return looked - self._last[one] >= self._idle_after and one not in (unread or ())
