"""Panes: the longest pieces of event time that every window is a whole number of.

For tumbling windows a pane is the window itself; a sliding window shares its panes with its neighbours. State is kept
by pane, and what depends on the watermark is decided by the smallest and largest panes of runs: a plan with a number
that changes from batch to batch would be compiled anew each time, and run cold.
"""

from dataclasses import dataclass
from math import gcd

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.runtime.spark.plan_metrics import micros
from epochal.runtime.state.tables import Run

START, END = "window_start", "window_end"
PANE = "__pane"
"""When a pane begins: microseconds since 1970."""
_END = "__end"

MOST_LISTED = 1_000
"""Up to so many due panes are listed one by one. A listed set is data to Spark and not code, as a range would be."""

FEWEST_LISTED = 16
"""A shorter list would become code: Spark makes sets of lists from 11 on."""


@dataclass(frozen=True, slots=True)
class Panes:
    """Windows of ``size`` that begin at multiples of ``slide`` (microseconds), and their panes."""

    size: int
    slide: int

    @property
    def length(self) -> int:
        return gcd(self.size, self.slide)

    def of(self, event_time: str) -> Column:
        """The pane that a row belongs to."""
        time = micros(F.col(event_time))
        return time - F.pmod(time, F.lit(self.length))

    def last_over(self, watermark: int | None) -> int | None:
        """The newest pane all of whose windows have been emitted."""
        return None if watermark is None else self.next_start(watermark) - self.length

    def next_start(self, watermark: int) -> int:
        """The beginning of the oldest window that is not over."""
        return (watermark - self.size) // self.slide * self.slide + self.slide

    def due(self, runs: list[Run], watermark: int, before: int | None) -> range:
        """The ends of windows that the watermark passes now, as far as there are panes of them in runs."""
        oldest = min((run.min_time for run in runs if run.min_time is not None), default=None)
        newest = max((run.max_time for run in runs if run.max_time is not None), default=None)
        if oldest is None or newest is None:
            return range(0)
        after = oldest if before is None else max(before, oldest)
        until = min(watermark, newest + self.size)
        first = (after - self.size) // self.slide + 1
        last = (until - self.size) // self.slide
        return range(first * self.slide + self.size, last * self.slide + self.size + 1, self.slide)

    @property
    def tumbling(self) -> bool:
        return self.slide == self.size

    def windows(self, rows: DataFrame, ends: range) -> DataFrame:
        """The rows of the windows with these ends. Of a sliding window's row there is one for each of its windows, and
        ``PANE`` is the window's end then; :meth:`end` gives it in any case."""
        if self.tumbling:
            return rows.where(_among(PANE, range(ends.start - self.size, ends.stop - self.size, ends.step)))
        # A pane belongs to the windows that begin before it ends and end after it begins.
        last_end = F.col(PANE) - F.pmod(F.col(PANE), F.lit(self.slide)) + self.size
        spread = F.explode(F.sequence(last_end, F.col(PANE) + self.length, F.lit(-self.slide)))
        spread_out = rows.withColumn(_END, spread)
        return spread_out.where(_among(_END, ends)).drop(PANE).withColumnRenamed(_END, PANE)

    def end(self, pane: Column) -> Column:
        """The end of the window that :meth:`windows` put a row into."""
        return pane + self.size if self.tumbling else pane

    def columns(self, end: Column) -> list[Column]:
        """``window_start`` and ``window_end``."""
        return [F.timestamp_micros(end - self.size).alias(START), F.timestamp_micros(end).alias(END)]


def pane_time() -> Column:
    return F.timestamp_micros(PANE)


def after(rows: DataFrame, over: int) -> DataFrame:
    """Without the panes that are over. A plain comparison would make Spark forget how the runs are partitioned."""
    return rows.where(F.coalesce(F.col(PANE) > over, F.lit(False)))


def _among(column: str, values: range) -> Column:
    """As text, which is one call to the JVM, however many values there are."""
    if len(values) > MOST_LISTED:
        chosen = (
            f"{column} BETWEEN {values[0]}L AND {values[-1]}L AND pmod({column} - {values[0]}L, {values.step}L) = 0"
        )
    else:
        # Filled up with numbers that no pane has, so that the list is always a set to Spark.
        listed = [*values, *range(-(2**62), -(2**62) + max(FEWEST_LISTED - len(values), 0))]
        chosen = f"{column} IN ({', '.join(f'{value}L' for value in listed)})"
    return F.expr(f"coalesce({chosen}, false)")
